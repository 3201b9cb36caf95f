"""Files to documents: which reader, in which process, under which limits."""

import contextlib
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Self

from corral.errors import NotTextError, UsageError
from corral.readers import calls
from corral.readers.contract import RawFile, ReaderOptions
from corral.readers.process import ReadingProcess
from corral.readers.registry import NamedReader, reader_for
from corral.reading import DEFAULT_MAX_BYTES, STDIN, read_bytes
from corral_chunkers import Document

__all__ = ["DEFAULT_MEMORY", "DEFAULT_SECONDS", "LoadedFile", "Readers"]

DEFAULT_SECONDS: Final = 120.0
"""Most seconds for a file; a PDF of thousands of pages takes some ten."""

DEFAULT_MEMORY: Final = 2 * 2**30
"""Most bytes of address space of the process that reads."""

_LEAST_MEMORY: Final = 2**28
_LIBRARIES: Final = (
    *("corral", "charset-normalizer", "docutils", "langchain-text-splitters", "lxml"),
    *("markdown-it-py", "mdit-py-plugins", "nbformat", "pypdfium2", "python-docx", "python-pptx"),
    *("pyyaml", "selectolax", "tree-sitter", "tree-sitter-language-pack"),
)
"""A new version of which may read or cut the same bytes otherwise."""


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """A file's bytes, and what is to make documents of them.

    Args:
        file: which.
        reader: that was chosen.
        options: for it.
    """

    file: RawFile
    reader: NamedReader
    options: ReaderOptions

    @property
    def hash(self) -> str:
        """SHA-256 over all that its documents depend on, in hexadecimal."""
        how = repr((self.file.source, self.reader.label, self.options, _versions()))
        found = hashlib.sha256(how.encode("utf-8", "surrogatepass"))
        found.update(hashlib.sha256(self.file.raw).digest())
        return found.hexdigest()


@cache
def _versions() -> tuple[str, ...]:
    """Versions of what reads and cuts; of what is not installed none."""
    found = []
    for name in _LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    return tuple(found)


class Readers:
    """All readers that are installed; a context manager, which ends the process that reads.

    Args:
        options: for files of records.
        max_bytes: size of the largest file to read.
        seconds: most that one file may take.
        memory: most bytes of address space that the process that reads may have.
        keeps_stdin: whether what standard input brings is held, so that it can be read again.

    Raises:
        UsageError: a limit is out of range.
    """

    def __init__(
        self,
        options: ReaderOptions | None = None,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        seconds: float = DEFAULT_SECONDS,
        memory: int = DEFAULT_MEMORY,
        keeps_stdin: bool = False,
    ) -> None:
        """Check the limits; nothing is started yet."""
        self._options = options or ReaderOptions()
        if not seconds > 0:
            raise UsageError(f"reader seconds are {seconds:g}; a file takes more than none")
        if memory < _LEAST_MEMORY:
            raise UsageError(
                f"reader memory is {memory:,} bytes; with its libraries a reader needs at least "
                f"{_LEAST_MEMORY:,}"
            )
        if self._options.rows < 1:
            raise UsageError(f"rows are {self._options.rows}; a document has at least 1")
        self._max_bytes = max_bytes
        self._keeps_stdin = keeps_stdin
        self._kept: bytes | None = None
        self._process = ReadingProcess(seconds=seconds, memory=memory)

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """End the process that reads, if there is one."""
        self._process.close()

    def read(self, path: Path, source: str) -> Iterator[Document]:
        """Yield the documents of a file, as `load` and `documents` do."""
        yield from self.documents(self.load(path, source))

    def load(self, path: Path, source: str) -> LoadedFile:
        """Read a file's bytes, and choose its reader.

        Args:
            path: of the file, or STDIN.
            source: its URI relative to the root it was found under, which also names its format
                by its end.

        Raises:
            NotTextError: it is too large, or no file.
            ReadError: it cannot be read.
        """
        raw = (
            self._standard_input() if path == STDIN else read_bytes(path, max_bytes=self._max_bytes)
        )
        return LoadedFile(
            RawFile(raw=raw, path=str(path), source=source),
            reader_for(source, raw),
            self._options,
        )

    def documents(self, loaded: LoadedFile) -> Iterator[Document]:
        """Yield the documents of a file; `metadata` tells the reader and its version.

        Raises:
            EmptyTextError: there is no text in it.
            NotTextError: it is no text and of no format that is read here.
            ReadError: it is damaged, or a limit was reached.
        """
        file, found = loaded.file, loaded.reader
        if found.reader.confined:
            documents = self._process.read(found.name, file, self._options)
        else:
            documents = calls.documents(found, file, self._options)
        for document in documents:
            yield replace(document, metadata={**document.metadata, "reader": found.label})

    def _standard_input(self) -> bytes:
        if self._kept is not None:
            return self._kept
        raw = sys.stdin.buffer.read(self._max_bytes + 1)
        if len(raw) > self._max_bytes:
            raise NotTextError(
                f"standard input has more than {self._max_bytes:,} bytes, the limit, since it is "
                "held in memory whole. Split it, or raise the limit with --max-file-size."
            )
        if self._keeps_stdin:
            self._kept = raw
        return raw
