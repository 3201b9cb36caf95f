"""Chunks of source code: functions and classes whole, each under what encloses it."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Final, cast

import numpy as np
from numpy.typing import NDArray

from corral_chunkers.contract import ChunkerError, Document, Heading
from corral_chunkers.cutting import Boundary, Structure, Unit
from corral_chunkers.structured import StructuredChunker

if TYPE_CHECKING:
    from tree_sitter import Node, Parser
    from tree_sitter_language_pack import SupportedLanguage

__all__ = ["LANGUAGES", "CodeChunker"]

LANGUAGES: Final = frozenset({
    "bash", "c", "cpp", "csharp", "css", "dart", "elixir", "erlang", "go", "haskell", "java",
    "javascript", "julia", "kotlin", "lua", "ocaml", "perl", "php", "python", "r", "ruby", "rust",
    "scala", "sql", "swift", "toml", "tsx", "typescript", "xml", "yaml", "zig",
})  # fmt: skip
"""Formats of documents that are cut as code unless another chunker is asked for."""

_WHOLE: Final = 10.0
"""More than any other way to cut could cost: what fits is not cut."""

_NEST: Final = 0.25
"""What a cut costs for each construct that it goes through."""

_NO_BLANK_LINE: Final = 0.15
_LONGEST_SIGNATURE: Final = 200
_DEEPEST: Final = 64
"""Constructs in each other that are looked into; deeper ones are data, or an attack."""

_ATTACHMENT: Final = 8
"""A cut between a definition and the comment before it, as so many constructs."""

_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+\Z")
_NAMED_BY: Final = ("name", "declarator", "type")
_ATTACHED: Final = ("comment", "line_comment", "block_comment", "attribute_item", "decorator")


@dataclass(frozen=True, slots=True)
class _Code:
    """Where source code may be cut.

    Args:
        starts: of the lines, without the first and blank ones.
        costs: of a cut in front of each.
        definitions: functions, classes and the like, in order of `start`, outer ones first.
    """

    starts: Sequence[int]
    costs: Sequence[float]
    definitions: Sequence[Unit]

    def boundaries(self, low: int, high: int) -> Sequence[Boundary]:
        """Return the lines."""
        first, last = bisect_left(self.starts, low + 1), bisect_left(self.starts, high)
        pairs = zip(self.starts[first:last], self.costs[first:last], strict=True)
        return [Boundary(*pair) for pair in pairs]

    def units(self, low: int, high: int) -> Sequence[Unit]:
        """Return the definitions."""
        return [unit for unit in self.definitions if unit.start < high and unit.end > low]


class CodeChunker(StructuredChunker):
    """Cuts source code between lines, at as few constructs as may be.

    Functions, classes and whatever else has a name and a body stay whole where they fit, with the
    comments and decorators before them. Their first lines are the headings of what is in them.
    """

    algorithm: ClassVar[int] = 1

    def read(self, document: Document) -> tuple[Document, Structure]:
        """Return the document with its definitions as headings, and its lines.

        Raises:
            ChunkerError: the document's format is no language that is known, or tree-sitter is not
                installed.
        """
        parser = _parser(document.format)
        reading = _Reading(document.text, parser)
        structure = reading.structure()
        return replace(document, headings=tuple(reading.headings)), structure


def _parser(language: str) -> "Parser":
    try:
        from tree_sitter_language_pack import get_parser  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ChunkerError(
            "source code is cut with tree-sitter, which is not installed. Install it by\n"
            "  pip install 'corral[code]'\n"
            "or take the chunker recursive"
        ) from error
    try:
        return get_parser(cast("SupportedLanguage", language))
    except LookupError as error:
        raise ChunkerError(
            f"there is no grammar for the language {language!r}; take the chunker recursive"
        ) from error


class _Reading:
    """One pass over a tree of syntax."""

    def __init__(self, text: str, parser: "Parser") -> None:
        self._text = text
        self._lines = [*(found.start() for found in _LINE.finditer(text)), len(text)]
        self._nesting: NDArray[np.int64] = np.zeros(len(self._lines) + 1, np.int64)
        self._definitions: list[Unit] = []
        self.headings: list[Heading] = []
        self._walk(parser.parse(text.encode("utf-8", "replace")).root_node, 0, 1)

    def structure(self) -> _Code:
        """Return the lines with their costs, and the definitions."""
        depths = np.cumsum(self._nesting)
        starts: list[int] = []
        costs: list[float] = []
        is_behind_blank = True
        for number, (start, end) in enumerate(pairwise(self._lines)):
            is_blank = not self._text[start:end].strip()
            if not is_blank and start > 0:
                starts.append(start)
                costs.append(_NEST * float(depths[number]) + _NO_BLANK_LINE * (not is_behind_blank))
            is_behind_blank = is_blank
        return _Code(starts, costs, self._definitions)

    def _walk(self, node: "Node", depth: int, level: int) -> None:
        """Note the lines that the parts of a construct go over, and which of them are whole."""
        attached: tuple[int, int] | None = None  # first and last line of the comments before
        for part in node.named_children:
            first, last = part.start_point[0], _last_line(part)
            if attached is not None and attached[1] + 1 < first:
                attached = None
            if attached is not None:
                self._nest(first - 1, first, _ATTACHMENT)
            begin = first if attached is None else attached[0]
            if part.type in _ATTACHED:
                attached = (begin, last)
                continue
            attached = None
            self._nest(first, last, 1)
            inner = level
            if (signature := _signature(part)) is not None and last > first:
                self._define(begin, last, signature, level)
                inner = level + 1
            if depth < _DEEPEST and last > first:
                self._walk(part, depth + 1, inner)

    def _nest(self, first: int, last: int, by: int) -> None:
        """Let a cut between the first and the last of some lines go through so many constructs."""
        self._nesting[first + 1] += by
        self._nesting[last + 1] -= by

    def _define(self, first: int, last: int, signature: str, level: int) -> None:
        start, end = self._lines[first], self._lines[last + 1]
        self._definitions.append(Unit(start, end, _WHOLE))
        self.headings.append(Heading(start, level, signature, end))


def _last_line(node: "Node") -> int:
    """Return the last line that holds something of a node."""
    line, column = node.end_point
    return line - 1 if column == 0 and line > node.start_point[0] else line


def _signature(node: "Node") -> str | None:
    """Return what stands before the body of what has a name and a body, in one line."""
    body = node.child_by_field_name("body")
    if body is None or not any(node.child_by_field_name(field) for field in _NAMED_BY):
        return None
    head = (node.text or b"")[: body.start_byte - node.start_byte].decode("utf-8", "replace")
    return " ".join(head.split()).rstrip(" {:=")[:_LONGEST_SIGNATURE]
