"""Jupyter notebooks: the cells as one Markdown text, code in fences, without what they printed."""

from collections.abc import Iterator
from typing import Any, Final

from corral.errors import NotTextError
from corral.readers.contract import RawFile, ReaderOptions
from corral.readers.libraries import library
from corral.readers.markdown import markdown_document
from corral.reading import decode
from corral_chunkers import Document

__all__ = ["NotebookReader"]

_VERSION: Final = 4


class NotebookReader:
    """Reads an .ipynb of any version with nbformat."""

    suffixes: Final = (".ipynb",)
    version: Final = 1
    confined: Final = True

    def read(self, file: RawFile, options: ReaderOptions) -> Iterator[Document]:  # noqa: ARG002
        """Yield the notebook.

        Raises:
            NotTextError: it is no notebook.
        """
        with library("nbformat", file.path):
            import nbformat
        text = decode(file.path, file.raw, long_lines=True).text
        try:
            notebook = nbformat.reads(text, as_version=_VERSION)  # type: ignore[no-untyped-call]
            cells, metadata = notebook.cells, notebook.metadata
        except (nbformat.reader.NotJSONError, nbformat.ValidationError, AttributeError) as error:
            raise NotTextError(f"{file.path} is no notebook: {error}") from error
        language = metadata.get("kernelspec", {}).get("language") or metadata.get(
            "language_info", {}
        ).get("name", "")
        blocks = [block for cell in cells if (block := _block(cell, language))]
        yield markdown_document("\n\n".join(blocks), file.source)


def _block(cell: Any, language: str) -> str:  # noqa: ANN401 - nbformat's nodes are open
    text = str(cell.source).strip("\n")
    if not text.strip() or cell.cell_type != "code":
        return text
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"
