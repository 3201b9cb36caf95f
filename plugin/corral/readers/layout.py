"""Put a text together from blocks, keeping where headings and pages start."""

import re
from typing import Final

from corral_chunkers import Document, Heading

__all__ = ["Layout"]

_SPACE: Final = re.compile(r"[ \t\n\r\f\v]+")
_DEEPEST: Final = 6
_PARAGRAPH: Final = 2


class Layout:
    """A text that grows by blocks: paragraphs stand apart by an empty line, lines by a line end."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._pieces: list[str] = []
        self._length = 0
        self._line_ends = 0
        self._space = False
        self._marked = False
        self._open: tuple[int, int] | None = None
        self.headings: list[Heading] = []
        self.pages: list[int] = []

    def end_line(self, n: int = 1) -> None:
        """Let what comes start on a line of its own (1), or behind an empty line (2)."""
        if not self._marked:
            self._line_ends = max(self._line_ends, n)

    def end_paragraph(self) -> None:
        """Let what comes start a paragraph."""
        self.end_line(_PARAGRAPH)

    def flow(self, text: str) -> None:
        """Add text of a paragraph, in which any white space is one space."""
        text = _SPACE.sub(" ", text)
        if text.startswith(" "):
            self._space = True
        if words := text.strip(" "):
            self._write(words)
            self._space = text.endswith(" ")

    def verbatim(self, text: str) -> None:
        """Add text whose white space is meant."""
        if text:
            self._write(text)

    def marker(self, text: str) -> None:
        """Add what stands before a list's item, on one line with what comes."""
        self._marked = False
        self.end_line()
        self._write(text)
        self._marked = True

    def paragraph(self, text: str) -> None:
        """Add a paragraph, lines and all."""
        self.end_paragraph()
        self.verbatim(text.strip("\n"))
        self.end_paragraph()

    def heading(self, level: int, text: str) -> None:
        """Add a heading."""
        self.open_heading(level)
        self.flow(text)
        self.close_heading()

    def open_heading(self, level: int) -> None:
        """Let what comes be a heading, until it is closed."""
        self.close_heading()
        self.end_paragraph()
        self._open = (level, len(self._pieces))

    def close_heading(self) -> None:
        """End the heading that is open, if one is."""
        if self._open is None:
            return
        level, first = self._open
        self._open = None
        pieces = self._pieces[first:]
        gap = len(pieces[0]) if pieces and pieces[0].isspace() else 0
        text = "".join(pieces)[gap:]
        if text:
            start = self._length - len(text)
            self.headings.append(Heading(start, min(level, _DEEPEST), text))
        self.end_paragraph()

    def page(self) -> None:
        """Let a page start with what comes; pages without text have one, too."""
        self.end_paragraph()
        self.pages.append(-1)

    def _write(self, text: str) -> None:
        if self._pieces:
            last = self._pieces[-1]
            n = self._line_ends - (len(last) - len(last.rstrip("\n")))
            gap = " " if self._space and not self._line_ends else "\n" * n
            if gap and not self._marked:
                self._add(gap)
        self._line_ends, self._space, self._marked = 0, False, False
        self._settle_pages()
        self._add(text)

    def _add(self, text: str) -> None:
        self._pieces.append(text)
        self._length += len(text)

    def _settle_pages(self) -> None:
        at = len(self.pages)
        while at and self.pages[at - 1] < 0:
            at -= 1
            self.pages[at] = self._length

    def document(self, *, source: str, format: str, **fields: object) -> Document:  # noqa: A002
        """Give what was put together."""
        self.close_heading()
        self._settle_pages()
        return Document(
            text="".join(self._pieces),
            source=source,
            format=format,
            headings=tuple(self.headings),
            pages=tuple(self.pages),
            **fields,  # type: ignore[arg-type]
        )
