"""Chunks of a Markdown text: its parts, with tables, lists and blocks of code whole."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from markdown_it.token import Token

from corral_chunkers.contract import Document
from corral_chunkers.cutting import Boundary, Structure, Unit
from corral_chunkers.headings import line_offsets, markdown_outline, parse_markdown
from corral_chunkers.prose import Prose
from corral_chunkers.structured import StructuredChunker

__all__ = ["MarkdownChunker"]

_WHOLE: Final = 10.0
"""More than any other way to cut could cost: what fits is not cut."""

_ITEM: Final = 0.3
_LINE: Final = 0.5
_BEHIND_A_TABLES_HEAD: Final = 2.0

_VERBATIM: Final = frozenset({"code_block", "fence", "front_matter", "html_block", "table_open"})
"""Blocks whose lines are lines, and whose stops end no sentence."""

_UNITS: Final = _VERBATIM | {
    "blockquote_open", "bullet_list_open", "list_item_open", "ordered_list_open",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Block:
    """A block of a Markdown text.

    Args:
        type: of markdown-it's token.
        start: offset of its first line.
        end: offset behind its last line.
    """

    type: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Markdown:
    """Where a Markdown text may be cut.

    Args:
        prose: the text as if it had paragraphs and headings alone.
        blocks: the others, in order of `start`, outer ones first.
        lines: offset of each line, and of the end of the text.
    """

    prose: Prose
    blocks: Sequence[_Block]
    lines: Sequence[int]

    def boundaries(self, low: int, high: int) -> Sequence[Boundary]:
        """Return those of the prose outside of blocks, and the lines or items of blocks."""
        costs = dict(self.prose.boundaries(low, high))
        for block in self._overlapping(low, high):
            if block.type in _VERBATIM:
                for at in [at for at in costs if block.start < at < block.end]:
                    del costs[at]
                costs |= self._lines_of(block)
            elif block.type == "list_item_open":
                costs[block.start] = _ITEM
        return [Boundary(at, costs[at]) for at in sorted(costs) if low < at < high]

    def units(self, low: int, high: int) -> Sequence[Unit]:
        """Return the blocks."""
        return [Unit(block.start, block.end, _WHOLE) for block in self._overlapping(low, high)]

    def _overlapping(self, low: int, high: int) -> Iterator[_Block]:
        return (block for block in self.blocks if block.start < high and block.end > low)

    def _lines_of(self, block: _Block) -> dict[int, float]:
        first, last = bisect_left(self.lines, block.start), bisect_left(self.lines, block.end)
        inner = [at for at in self.lines[first + 1 : last] if not self._is_blank(at)]
        costs = dict.fromkeys(inner, _LINE)
        if block.type == "table_open":  # the titles of the columns, and the line below them
            costs |= dict.fromkeys(inner[:2], _BEHIND_A_TABLES_HEAD)
        return costs

    def _is_blank(self, line: int) -> bool:
        text = self.prose.text
        return not text[line : self.lines[bisect_left(self.lines, line + 1)]].strip()


class MarkdownChunker(StructuredChunker):
    """Cuts Markdown between its parts, its blocks and its sentences.

    A heading stands with what it heads. Blocks of code, tables, quotes, lists and their items stay
    whole where they fit; else code and tables are cut between lines, lists between items.
    """

    algorithm: ClassVar[int] = 2

    def read(self, document: Document) -> tuple[Document, Structure]:
        """Return the document with its headings, and its blocks."""
        tokens = parse_markdown(document.text)
        lines = line_offsets(document.text)
        if not document.headings:
            document = replace(document, headings=markdown_outline(document.text).headings)
        prose = Prose(document.text, document.headings)
        return document, _Markdown(prose, list(_blocks(tokens, lines)), lines)


def _blocks(tokens: Sequence[Token], lines: Sequence[int]) -> Iterator[_Block]:
    for token in tokens:
        if token.type in _UNITS and token.map:
            first, behind = token.map
            yield _Block(token.type, lines[first], lines[min(behind, len(lines) - 1)])
