"""Word documents: paragraphs, headings and tables in their order, then the footnotes."""

from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from corral.readers.archives import opened
from corral.readers.contract import RawFile, ReaderOptions
from corral.readers.layout import Layout
from corral.readers.libraries import library
from corral_chunkers import Document

if TYPE_CHECKING:
    from docx.document import Document as WordDocument
    from docx.table import Table
    from docx.text.paragraph import Paragraph

__all__ = ["DocxReader"]

_HEADING: Final = "Heading "
_NOTES: Final = (
    "http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes",
    "http://schemas.openxmlformats.org/officeDocument/2006/relationships/endnotes",
)
_WORDS: Final = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"


class DocxReader:
    """Reads a .docx with python-docx; a table's row is a line, its cells stand apart by " | "."""

    suffixes: Final = (".docx",)
    version: Final = 1
    confined: Final = True

    def read(self, file: RawFile, options: ReaderOptions) -> Iterator[Document]:  # noqa: ARG002
        """Yield the document."""
        opened(file)
        with library("python-docx", file.path):
            import docx
        word = docx.Document(BytesIO(file.raw))
        layout = Layout()
        _blocks(word, layout)
        for note in _notes(word):
            layout.paragraph(note)
        properties = word.core_properties
        yield layout.document(
            source=file.source,
            format="docx",
            title=properties.title or next((h.text for h in layout.headings), None),
            language=properties.language or None,
        )


def _blocks(holder: Any, layout: Layout) -> None:  # noqa: ANN401 - a document or a table's cell
    """Add what a document, or a cell, holds."""
    for block in holder.iter_inner_content():
        if hasattr(block, "rows"):
            _table(block, layout)
        else:
            _paragraph(block, layout)


def _paragraph(paragraph: "Paragraph", layout: Layout) -> None:
    style = paragraph.style.name if paragraph.style else None
    text = paragraph.text.strip()
    if not text:
        return
    if style == "Title":
        layout.heading(1, text)
    elif style and style.startswith(_HEADING) and style.removeprefix(_HEADING).isdigit():
        layout.heading(int(style.removeprefix(_HEADING)), text)
    elif style and style.startswith("List"):
        layout.marker("- ")
        layout.verbatim(text)
        layout.end_line()
    else:
        layout.paragraph(text)


def _table(table: "Table", layout: Layout) -> None:
    layout.end_paragraph()
    for row in table.rows:
        layout.end_line()
        seen: list[object] = []
        for cell in row.cells:  # a cell over several columns is told for each of them
            if any(cell._tc is one for one in seen):  # noqa: SLF001 - its only identity
                continue
            if seen:
                layout.flow(" | ")
            seen.append(cell._tc)  # noqa: SLF001 - its only identity
            inner = Layout()
            _blocks(cell, inner)
            layout.flow(inner.document(source="", format="docx").text)
    layout.end_paragraph()


def _notes(word: "WordDocument") -> Iterator[str]:
    """Yield the footnotes and endnotes, which python-docx does not know."""
    from docx.oxml import parse_xml

    for relation in word.part.rels.values():
        if relation.reltype not in _NOTES or relation.is_external:
            continue
        for note in parse_xml(relation.target_part.blob):
            text = "".join(part.text or "" for part in note.iter(f"{_WORDS}t"))
            if text.strip():
                yield text.strip()
