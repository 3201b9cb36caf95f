"""From a query and documents to the sequences that a reranker reads. Pure.

A model that brings a template (`tokenizer.chat_template.rerank`) reads it with the texts put in.
Others read the pair of their family, ended as the reference's tokenizer ends it: BERT
`[CLS] query [SEP] document [SEP]`, XLM-RoBERTa `<s> query </s></s> document </s>`.

Only the template's own control tokens are control tokens: one that stands in a query or a document
is text like any other.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from corral.engine.sequences import TextTokenizer
from corral.errors import GGUFError, InputTooLongError, UsageError

__all__ = [
    "DEFAULT_INSTRUCTION",
    "FamilyLayout",
    "Limit",
    "Pair",
    "PairLayout",
    "TemplateLayout",
]

Ids = NDArray[np.int32]

DEFAULT_INSTRUCTION: Final = (
    "Given a web search query, retrieve relevant passages that answer the query"
)
"""For a template with a place for an instruction. Source: Qwen3-Reranker's model card."""

_QUERY, _DOCUMENT, _INSTRUCTION = "query", "document", "instruction"
_PLACES: Final = re.compile(rf"\{{({_QUERY}|{_DOCUMENT}|{_INSTRUCTION})\}}")
_QWEN3_INSTRUCTION: Final = re.compile(r"(?<=<Instruct>: )[^\n{}]*(?=\n)")

_CHARACTERS_PER_TOKEN: Final = 16
"""Text that is read before the whole of a long document is: real text has 1 to 6 a token."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What the model reads for one document.

    Args:
        ids: (n,) int32, special tokens included.
        truncated: whether the end of the document was left out.
    """

    ids: Ids
    truncated: bool


@dataclass(frozen=True, slots=True)
class Limit:
    """The longest sequence.

    Args:
        max_tokens: special tokens included.
        source: where it comes from, for errors.
    """

    max_tokens: int
    source: str

    def room(self, n_fixed: int) -> int:
        """Count the tokens that are left for a document.

        Args:
            n_fixed: tokens of the query and of all that stands round the two.

        Raises:
            InputTooLongError: none is left.
        """
        if n_fixed >= self.max_tokens:
            raise InputTooLongError(
                f"the query takes {n_fixed} tokens with what the model wants round it; the model "
                f"reads {self.max_tokens} ({self.source}), so none is left for a document. "
                "Make the query shorter"
            )
        return self.max_tokens - n_fixed


class PairLayout(Protocol):
    """How a model reads a query and a document.

    Law: pairs of one query begin alike up to the document, and only documents are ever cut.
    """

    def build(self, query: str, documents: Sequence[str]) -> list[Pair]:
        """Lay documents out, each with the query.

        Raises:
            InputTooLongError: the query leaves no room.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyLayout:
    """The pair of BERT and its kin: head, query, end, separator, document, end.

    Args:
        tokenizer: the model's.
        limit: longest pair.
        separator: ids between the query's end and the document.
        second_offset: what is added to the ids of the document and its end: the embedding rows
            from there on hold the second segment's type (`corral model convert` writes them).
    """

    tokenizer: TextTokenizer
    limit: Limit
    separator: tuple[int, ...] = ()
    second_offset: int = 0

    def build(self, query: str, documents: Sequence[str]) -> list[Pair]:
        """Lay documents out, each with the query."""
        (asked,) = self.tokenizer.encode_batch([query])
        tail = _ids(self.tokenizer.tail)
        first = np.concatenate((_ids(self.tokenizer.head), asked, tail, _ids(self.separator)))
        room = self.limit.room(len(first) + len(tail))
        pairs = []
        for document in documents:
            body = self._body(document, room)
            second = np.concatenate((body[:room], tail)) + np.int32(self.second_offset)
            pairs.append(Pair(np.concatenate((first, second)), truncated=len(body) > room))
        return pairs

    def _body(self, document: str, room: int) -> Ids:
        """Encode a document, of a long one only what surely fills the room."""
        for text in _beginnings(document, room):
            (ids,) = self.tokenizer.encode_batch([text])
            if len(ids) > room:
                break
        return ids


class TemplateLayout:
    """A template with the texts put in, its control tokens parsed."""

    def __init__(
        self,
        template: str,
        *,
        tokenizer: TextTokenizer,
        control: Mapping[str, int],
        limit: Limit,
        instruction: str | None = None,
    ) -> None:
        """Take a template apart.

        Args:
            template: with {query} and {document}, maybe {instruction}.
            tokenizer: the model's.
            control: ids of the control tokens by their text.
            limit: longest sequence.
            instruction: for {instruction}, or in place of the one that Qwen3-Reranker's template
                holds; None takes the default, or leaves that one.

        Raises:
            GGUFError: the template lacks a place.
            UsageError: there is an instruction and no place for one.
        """
        self._tokenizer = tokenizer
        self._limit = limit
        self._instruction = DEFAULT_INSTRUCTION if instruction is None else instruction
        if instruction is not None:
            template = _with_place_for_instruction(template)
        segments = _segments(template, control)
        places = [place for segment in segments for place in _places(segment)]
        if places.count(_DOCUMENT) != 1 or _QUERY not in places:
            raise GGUFError(
                "the GGUF's rerank template (tokenizer.chat_template.rerank) has the places "
                f"{', '.join(places) or 'none'}; it needs query, and document once. "
                "Convert the model again"
            )
        number = next(i for i, segment in enumerate(segments) if _DOCUMENT in _places(segment))
        self._before, self._after = segments[:number], segments[number + 1 :]
        segment = segments[number]
        assert isinstance(segment, list)  # noqa: S101 - only text has places, for mypy
        place = 1 + 2 * _places(segment).index(_DOCUMENT)
        self._opening, self._closing = segment[:place], segment[place + 1 :]

    def build(self, query: str, documents: Sequence[str]) -> list[Pair]:
        """Lay documents out, each with the query."""
        before, after = (self._encode(part, query) for part in (self._before, self._after))
        opening, closing = (self._fill(text, query) for text in (self._opening, self._closing))
        n_empty = len(self._ids_of(opening + closing))
        # What is left for the segment of the document, in which its text may join the template's.
        room = n_empty + self._limit.room(len(before) + n_empty + len(after))
        pairs = []
        for document in documents:
            ids, truncated = self._segment(opening, document, closing, room)
            pairs.append(Pair(np.concatenate((before, ids, after)), truncated))
        return pairs

    def _segment(self, opening: str, document: str, closing: str, room: int) -> tuple[Ids, bool]:
        """Encode the segment of a document, whose end is left out where there is no room."""
        for beginning in _beginnings(document, room):
            ids = self._ids_of(opening + beginning + closing)
            if len(ids) > room:
                end = self._ids_of(closing)
                kept = self._ids_of(opening + beginning)[: room - len(end)]
                return np.concatenate((kept, end)), True
        return ids, False

    def _encode(self, segments: Sequence["_Segment"], query: str) -> Ids:
        """Encode segments without a document."""
        parts = [
            _ids([segment])
            if isinstance(segment, int)
            else self._ids_of(self._fill(segment, query))
            for segment in segments
        ]
        return np.concatenate((_ids([]), *parts))

    def _fill(self, text: Sequence[str], query: str) -> str:
        """Put query and instruction in; what looks like a place in them is text."""
        values = {_QUERY: query, _INSTRUCTION: self._instruction}
        return "".join(values[part] if i % 2 else part for i, part in enumerate(text))

    def _ids_of(self, text: str) -> Ids:
        (ids,) = self._tokenizer.encode_batch([text])
        return ids


_Segment: TypeAlias = int | list[str]
"""Id of a control token; or text, in which every second item is the name of a place."""


def _with_place_for_instruction(template: str) -> str:
    """Return the template with a place where it holds an instruction.

    Raises:
        UsageError: it holds none.
    """
    if f"{{{_INSTRUCTION}}}" in template:
        return template
    found, n_found = _QWEN3_INSTRUCTION.subn(f"{{{_INSTRUCTION}}}", template)
    if not n_found:
        raise UsageError(
            "instruction is given, and the model's rerank template has no place for one: it has "
            'neither {instruction} nor a line "<Instruct>: "'
        )
    return found


def _segments(template: str, control: Mapping[str, int]) -> list[_Segment]:
    """Cut a template at its control tokens, of which the longest goes first."""
    names = sorted(filter(None, control), key=len, reverse=True)
    pattern = f"({'|'.join(map(re.escape, names))})" if names else "(?!)"
    cut = [part for part in re.split(pattern, template) if part]
    return [control[part] if part in control else _PLACES.split(part) for part in cut]


def _places(segment: _Segment) -> list[str]:
    return [] if isinstance(segment, int) else segment[1::2]


def _beginnings(document: str, room: int) -> Iterator[str]:
    """Yield what to read of a document: of a long one first a beginning, then all of it.

    The beginning ends before a blank, where no tokenizer joins what stands on the two sides.
    """
    enough = _CHARACTERS_PER_TOKEN * room
    if len(document) > 2 * enough and (end := document.rfind(" ", 1, enough)) > 0:
        yield document[:end]
    yield document


def _ids(ids: Sequence[int]) -> Ids:
    return np.asarray(ids, dtype=np.int32)
