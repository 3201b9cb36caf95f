"""Plain text, as it is."""

from collections.abc import Iterator
from typing import Final

from corral.readers.contract import RawFile, ReaderOptions
from corral.reading import decode
from corral_chunkers import Document

__all__ = ["TextReader"]


class TextReader:
    """Gives a text file's text, nothing dropped, replaced or normalised."""

    suffixes: Final = (".txt", ".text", ".log", ".adoc", ".asciidoc", ".org", ".tex")
    version: Final = 1
    confined: Final = False

    def read(self, file: RawFile, options: ReaderOptions) -> Iterator[Document]:  # noqa: ARG002
        """Yield the text."""
        yield Document(text=decode(file.path, file.raw).text, source=file.source)
