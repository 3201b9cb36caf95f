"""PDF: the text of its pages, in the order in which it was written into them."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Final

from corral.errors import EmptyTextError, ReadError
from corral.readers.contract import RawFile, ReaderOptions
from corral.readers.layout import Layout
from corral.readers.libraries import library
from corral_chunkers import Document, Heading

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfTextPage

__all__ = ["PdfReader"]

# PDFium takes a hyphen at the end of a line for the sign that a word goes on, and writes this.
_BROKEN: Final = "\ufffe"
_BROKEN_WORD: Final = re.compile(rf"(\w+){_BROKEN}(\w+)")
_LIGATURES: Final = str.maketrans(
    {0xFB00 + i: text for i, text in enumerate(["ff", "fi", "fl", "ffi", "ffl", "st", "st"])}
)
_LINE_END: Final = "\r\n"
_COUNT: Final = re.compile(r"\A\d{1,6}\b|\b\d{1,6}\Z")
_PAGE_NUMBER: Final = re.compile(r"\W*<-?\d+>\W*")
_WIDE_GAP: Final = 1.25
"""Times the usual distance of lines, which paragraphs stand apart by."""

_RUNNING_PAGES: Final = 3
"""Pages that a line must stand at the edge of to be no text of theirs."""


class PdfReader:
    """Reads a PDF with PDFium: one document, whose pages and headings (the outline) are told.

    Words that were broken at a line's end are joined; page numbers, and what stands at the top or
    bottom of several pages alike, are left out.
    """

    suffixes: Final = (".pdf",)
    version: Final = 1
    confined: Final = True

    def read(self, file: RawFile, options: ReaderOptions) -> Iterator[Document]:  # noqa: ARG002
        """Yield the document.

        Raises:
            EmptyTextError: there is no text on its pages, as of a scanned one.
            ReadError: it is damaged, or needs a password.
        """
        with library("pypdfium2", file.path):
            from pypdfium2 import PdfDocument, PdfiumError
        try:
            pdf = PdfDocument(file.raw)
        except PdfiumError as error:
            raise ReadError(f"{file.path} cannot be read as a PDF: {error}.") from error
        with closing(pdf):
            pages = _without_running([_lines(pdf, number) for number in range(len(pdf))])
            layout = Layout()
            for page in _whole_words(pages):
                layout.page()
                for line, starts_paragraph in page:
                    layout.end_line(2 if starts_paragraph else 1)
                    layout.flow(line)
            document = layout.document(
                source=file.source,
                format="pdf",
                title=pdf.get_metadata_dict().get("Title", "").strip() or None,
                language=_language(pdf),
            )
            if not document.text:
                raise EmptyTextError(
                    f"{file.path} has {len(pdf):,} pages and no text: it is scanned, or drawn. "
                    "Recognise its characters first, for example with ocrmypdf."
                )
            yield replace(document, headings=tuple(_headings(pdf, document)))


_Line = tuple[str, bool]
"""A line's text, and whether it starts a paragraph."""


def _lines(pdf: "PdfDocument", number: int) -> list[_Line]:
    """Read a page's lines; a page that cannot be opened is damage."""
    with closing(pdf[number]) as page, closing(page.get_textpage()) as text_page:
        text = text_page.get_text_range()
        lines = text.split(_LINE_END)
        tops = _tops(text_page, lines) if text_page.count_chars() == len(text) else []
    gaps = [above - below for above, below in pairwise(tops)]
    usual = median([gap for gap in gaps if gap > 0] or [0])
    starts = [True, *(not 0 <= gap <= _WIDE_GAP * usual for gap in gaps)]
    starts += [False] * (len(lines) - len(starts))
    cleaned = (line.translate(_LIGATURES).replace("\0", "") for line in lines)
    return [pair for pair in zip(cleaned, starts, strict=True) if pair[0].strip()]


def _tops(page: "PdfTextPage", lines: Sequence[str]) -> list[float]:
    """Where each line stands on its page, in points from the bottom."""
    tops: list[float] = []
    start = 0
    for line in lines:
        at = start + len(line) - len(line.lstrip())
        tops.append(page.get_charbox(at)[1] if line.strip() else tops[-1] if tops else 0.0)
        start += len(line) + len(_LINE_END)
    return tops


def _without_running(pages: Sequence[Sequence[_Line]]) -> list[Sequence[_Line]]:
    """Leave out page numbers, and headers and footers behind the first page that has them."""
    kinds = [{at: _kinds(page[at], n) for at in _edges(page)} for n, page in enumerate(pages)]
    counted = Counter(kind for page in kinds for kind in set().union(*page.values()))
    running = {kind for kind, n_pages in counted.items() if n_pages >= _RUNNING_PAGES}
    seen = {kind for kind in running if _PAGE_NUMBER.fullmatch(kind)}
    kept: list[Sequence[_Line]] = []
    for page, edges in zip(pages, kinds, strict=True):
        repeats = {at for at, said in edges.items() if said & running & seen}
        seen.update(*edges.values())
        kept.append([line for at, line in enumerate(page) if at not in repeats])
    return kept


def _edges(page: Sequence[_Line]) -> set[int]:
    """Numbers of the lines at a page's edges."""
    return {at for at in (0, 1, len(page) - 2, len(page) - 1) if 0 <= at < len(page)}


def _kinds(line: _Line, number: int) -> set[str]:
    """What a line says, as it is and with a number at its end told from where the pages start."""
    text = line[0].strip()
    return {text, _COUNT.sub(lambda found: f"<{int(found[0]) - number}>", text)}


def _whole_words(pages: Sequence[Sequence[_Line]]) -> list[Sequence[_Line]]:
    """Join words that were broken at a line's end; keep hyphens that they have elsewhere, too."""
    known = Counter(
        word for page in pages for line, _ in page for word in re.findall(r"[\w-]+", line)
    )

    def joined(found: re.Match[str]) -> str:
        first, second = found.groups()
        whole, hyphenated = first + second, f"{first}-{second}"
        breaks_word = first[-1].isalpha() and second[0].islower()
        if known[whole] == known[hyphenated]:
            return whole if breaks_word else hyphenated
        return whole if known[whole] > known[hyphenated] else hyphenated

    return [
        [(_BROKEN_WORD.sub(joined, line).replace(_BROKEN, "-"), starts) for line, starts in page]
        for page in pages
    ]


def _headings(pdf: "PdfDocument", document: Document) -> Iterator[Heading]:
    """Find the outline's titles on the pages it says they are on; one that is not found is left."""
    at = 0
    for title, level, number in _outline(pdf):
        start = document.pages[number]
        end = document.pages[number + 1] if number + 1 < len(document.pages) else None
        pattern = r"\s+".join(map(re.escape, title.split()))
        found = re.compile(pattern).search(document.text, max(at, start), end or len(document.text))
        if found:
            at = found.end()
            yield Heading(found.start(), level, " ".join(title.split()))


def _outline(pdf: "PdfDocument") -> Iterable[tuple[str, int, int]]:
    """Title, level and page number of the outline's entries."""
    for entry in pdf.get_toc():
        destination = entry.get_dest()
        number = destination.get_index() if destination else None
        if entry.get_title().strip() and number is not None and 0 <= number < len(pdf):
            yield entry.get_title(), min(entry.level + 1, 6), number


def _language(pdf: "PdfDocument") -> str | None:
    """Return the language that the catalogue names."""
    from pypdfium2 import raw

    n_bytes = raw.FPDFCatalog_GetLanguage(pdf, None, 0)
    buffer = (raw.FPDF_WCHAR * (n_bytes // 2))()
    raw.FPDFCatalog_GetLanguage(pdf, buffer, n_bytes)
    return bytes(buffer).decode("utf-16-le", "replace").rstrip("\0") or None
