"""PowerPoint slides: each a page, with its title as heading, its shapes in order, and its notes."""

from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any, Final

from corral.readers.archives import opened
from corral.readers.contract import RawFile, ReaderOptions
from corral.readers.layout import Layout
from corral.readers.libraries import library
from corral_chunkers import Document

__all__ = ["PptxReader"]


class PptxReader:
    """Reads a .pptx with python-pptx; shapes come in the order that a screen reader takes."""

    suffixes: Final = (".pptx",)
    version: Final = 1
    confined: Final = True

    def read(self, file: RawFile, options: ReaderOptions) -> Iterator[Document]:  # noqa: ARG002
        """Yield the slides as one document."""
        opened(file)
        with library("python-pptx", file.path):
            import pptx
        presentation = pptx.Presentation(BytesIO(file.raw))
        layout = Layout()
        for slide in presentation.slides:
            layout.page()
            _slide(slide, layout)
        properties = presentation.core_properties
        yield layout.document(
            source=file.source,
            format="pptx",
            title=properties.title or next((h.text for h in layout.headings), None),
            language=properties.language or None,
        )


def _slide(slide: Any, layout: Layout) -> None:  # noqa: ANN401 - python-pptx has no types
    title = slide.shapes.title
    if title is not None and title.text_frame.text.strip():
        layout.heading(1, title.text_frame.text)
    for shape in _flat(slide.shapes):
        if title is not None and shape.shape_id == title.shape_id:
            continue
        if shape.has_text_frame:
            layout.paragraph(shape.text_frame.text.replace("\v", "\n").strip())
        elif getattr(shape, "has_table", False):
            rows = [" | ".join(cell.text for cell in row.cells) for row in shape.table.rows]
            layout.paragraph("\n".join(rows))
    if slide.has_notes_slide and (notes := slide.notes_slide.notes_text_frame) is not None:
        layout.paragraph(notes.text.strip())


def _flat(shapes: Iterable[Any]) -> Iterator[Any]:
    """Yield shapes, those in groups one by one."""
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _flat(shape.shapes)
        else:
            yield shape
