"""Where a text may be cut."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import regex

__all__ = [
    "best_break",
    "cluster_start",
    "finer_breaks",
    "line_starts",
    "paragraph_ends",
    "sentence_ends",
    "skip_white_space",
    "word_start",
]

# White space is what str.isspace() and re's \s say; the \s of `regex` knows fewer.
_NOT_SPACE: Final = re.compile(r"\S")
_CLUSTER: Final = regex.compile(r"\X")
_WORD: Final = regex.compile(r"\b", regex.WORD)

_NEWLINE: Final = r"(?>\r\n|[\n\r\x0b\x85\u2028])"
_BLANK: Final = r"[^\S\n\r\x0b\x0c\x85\u2028\u2029]"
_CLOSERS: Final = r"[\"'”’»›)\]}*_`]"  # noqa: RUF001 - meant
_WIDE_CLOSERS: Final = r"[”’」』）】〉》〗]"  # noqa: RUF001 - meant
_STOPS: Final = ".!?…؟۔։።॥।‼⁇⁈⁉"  # noqa: RUF001 - meant
_WIDE_STOPS: Final = "。！？｡．"  # noqa: RUF001 - meant

_PARAGRAPH: Final = re.compile(rf"(?:{_NEWLINE}{_BLANK}*+{_NEWLINE}|[\x0c\u2029])\s*+")
_SENTENCE: Final = re.compile(
    rf"(?<![{_STOPS}])[{_STOPS}]++{_CLOSERS}*+\s++"
    rf"|(?<![{_WIDE_STOPS}])[{_WIDE_STOPS}]++{_WIDE_CLOSERS}*+\s*+"
)
_LINE: Final = re.compile(rf"{_NEWLINE}\s*+")
_CLAUSE: Final = re.compile(r"[,;:،؛]\s++|[，、；：]\s*+")  # noqa: RUF001 - meant
_SPACE: Final = re.compile(r"[\s\u200b]++")

# In text of hard-wrapped lines, which most of our .txt and .rst is, a line ends anywhere in a
# sentence, so that the end of a sentence is the better place. Text without sentences (code, YAML,
# lists) has lines. Where there is no white space either, the words of Unicode's annex 29 keep
# identifiers whole in minified JSON and katakana words whole in Japanese.
_RANKS: Final = (_PARAGRAPH, _SENTENCE, _LINE, _SPACE, _WORD)

_FINER: Final = ((_LINE, 0.9), (_CLAUSE, 1.1), (_SPACE, 1.3), (_WORD, 1.6), (_CLUSTER, 2.0))
"""Ways to cut what has no better place, with their costs, the coarsest first."""

# A list's number, or an initial, is not a sentence: "1. Open the gate", "J. Smith".
_NUMBERED: Final = re.compile(r"(?:^|[\s(])(?:\d{1,3}|[A-Z])\.\s+\Z")
_LONGEST_NUMBER: Final = 8
_CHARACTER_COST: Final = 3.0

# Characters that decide: a word's end is seen from two behind it ("can't"), and a cluster of
# more than 64 characters is no writing that a reader would miss.
_WORD_CONTEXT: Final = 3
_CLUSTER_CONTEXT: Final = 64


def skip_white_space(text: str, start: int) -> int:
    """Return the first offset from start on that holds no white space, or the text's length."""
    found = _NOT_SPACE.search(text, start)
    return found.start() if found else len(text)


def best_break(text: str, low: int, high: int) -> int | None:
    """Find the best place to cut behind low and no later than high.

    The end of a paragraph is better than that of a sentence, then of a line, then of a word; of
    equally good places the last is taken.

    Args:
        text: the whole text.
        low: offset that must stand in front of the cut.
        high: last offset to cut at.

    Returns:
        The offset of what comes behind the cut, or None where there is no such place.
    """
    for rank in _RANKS:
        # The end of a search counts as the end of a word, which it need not be.
        reach = high + _WORD_CONTEXT if rank is _WORD else high
        ends: list[int] = [found.end() for found in rank.finditer(text, low, reach)]
        for end in reversed(ends):
            if low < end <= high and _may_break(text, end, is_sentence=rank is _SENTENCE):
                return end
    return None


def _may_break(text: str, end: int, *, is_sentence: bool) -> bool:
    if not _starts_cluster(text, end):
        return False
    if not is_sentence:
        return True
    is_number = _NUMBERED.search(text, max(0, end - _LONGEST_NUMBER), end)
    return not is_number and not text[end : end + 1].islower()


def cluster_start(text: str, low: int, high: int) -> int:
    """Return the last offset in (low, high] that is inside no grapheme cluster.

    Args:
        text: the whole text.
        low: an offset in front of high.
        high: the last offset to take.

    Returns:
        The offset, or high where one cluster reaches from low or from far behind to high.

    Source: Unicode Standard Annex 29.
    """
    if _starts_cluster(text, high):
        return high
    behind = max(low, high - _CLUSTER_CONTEXT)
    starts = [found.start() for found in _CLUSTER.finditer(text, behind, high)]
    return starts[-1] if starts[-1] > behind else high


def paragraph_ends(text: str, low: int, high: int) -> Iterator[int]:
    """Yield the offsets behind paragraphs, between low and high."""
    return _between(_PARAGRAPH, text, low, high)


def sentence_ends(text: str, low: int, high: int) -> Iterator[int]:
    """Yield the offsets behind sentences and the white space after them, between low and high."""
    return (
        end
        for end in _between(_SENTENCE, text, low, high)
        if _may_break(text, end, is_sentence=True)
    )


def line_starts(text: str, low: int, high: int) -> Iterator[int]:
    """Yield the offsets behind line ends and the white space after them, between low and high."""
    return _between(_LINE, text, low, high)


def finer_breaks(text: str, low: int, high: int, rank: int) -> tuple[Sequence[int], float] | None:
    """Find places to cut what has no end of a sentence.

    Args:
        text: the whole text.
        low: offset that must stand in front of the places.
        high: offset that they must stand in front of.
        rank: 0 for lines; then clauses, words between white space, words, grapheme clusters and
            characters.

    Returns:
        The offsets, and what a cut at one of them costs; None where the rank is the last one.
    """
    if rank > len(_FINER):
        return None
    if rank == len(_FINER):
        return range(low + 1, high), _CHARACTER_COST
    pattern, cost = _FINER[rank]
    return list(_between(pattern, text, low, high)), cost


def _between(
    pattern: "re.Pattern[str] | regex.Pattern[str]", text: str, low: int, high: int
) -> Iterator[int]:
    for found in pattern.finditer(text, low, min(high + _WORD_CONTEXT, len(text))):
        end = found.end()
        if low < end < high and not text[end].isspace() and _starts_cluster(text, end):
            yield end


def word_start(text: str, start: int, end: int) -> int:
    """Return the first offset in [start, end) at which a word starts, or end."""
    if start > 0 and not text[start - 1].isspace():
        found = _WORD.search(text, start, end)
        start = found.start() if found else end
    return min(skip_white_space(text, start), end)


def _starts_cluster(text: str, at: int) -> bool:
    if at >= len(text):
        return True
    if text[at].isascii() and text[at - 1].isascii() and text[at - 1 : at + 1] != "\r\n":
        return True
    behind = max(0, at - _CLUSTER_CONTEXT)
    return any(found.end() == at for found in _CLUSTER.finditer(text, behind, at + 1))
