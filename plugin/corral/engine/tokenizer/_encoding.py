"""What an encoder gives, and the arithmetic of offsets."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from tokenizers import Tokenizer

__all__ = [
    "Encoder",
    "Encoding",
    "HuggingFaceEncoder",
    "code_point_spans",
    "without_gaps",
    "without_surrogates",
]

_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_CONTINUATION_MASK: Final = 0xC0
_CONTINUATION: Final = 0x80


class Encoding(NamedTuple):
    """Tokens of a text, without special tokens.

    Attributes:
        ids: (n_tokens,) int32.
        offsets: (n_tokens, 2) int64, start and end of each token in code points of the text;
            starts and ends never decrease, and if there is a token at all, what no span covers is
            white space. Tokens that share a character share its span.
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]


class Encoder(Protocol):
    """One way from text to tokens; safe to call from several threads."""

    def encode(self, text: str) -> Encoding:
        """Return ids and offsets of a text without lone surrogates."""
        ...

    def encode_ids(self, text: str) -> NDArray[np.int32]:
        """Return the ids alone, which costs less."""
        ...


class HuggingFaceEncoder:
    """A `tokenizers.Tokenizer` as an encoder.

    Texts are encoded one at a time: `encode_batch` would spread them over all cores, which belong
    to the model.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str) -> Encoding:
        """Return ids and offsets."""
        ids, offsets = self.encode_gappy(text)
        return Encoding(ids, without_gaps(text, offsets))

    def encode_gappy(self, text: str) -> Encoding:
        """Return ids and offsets; the spans may leave out what a normaliser deleted."""
        found = self._tokenizer.encode(text, add_special_tokens=False)
        flat = np.fromiter(chain.from_iterable(found.offsets), np.int64, 2 * len(found))
        offsets = np.maximum.accumulate(flat.reshape(-1, 2), axis=0)
        return Encoding(np.array(found.ids, np.int32), offsets)

    def encode_ids(self, text: str) -> NDArray[np.int32]:
        """Return the ids."""
        return np.array(self._tokenizer.encode(text, add_special_tokens=False).ids, np.int32)


def without_surrogates(text: str) -> str:
    """Replace lone surrogates, which have no UTF-8, by U+FFFD; offsets stay what they were."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text)
    return text


def without_gaps(text: str, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Widen spans over what a normaliser deleted or joined with the character before it.

    `tokenizers` gives "e" of "e" and an acute accent as the span of their token. A text cut there
    would lose the accent.
    """
    if not len(offsets):
        return offsets
    starts, ends = offsets.T
    starts[0] -= len(text[: starts[0]].lstrip())
    nexts = [*starts[1:].tolist(), len(text)]
    ends += [len(text[end:start].rstrip()) for end, start in zip(ends.tolist(), nexts, strict=True)]
    return offsets


def code_point_spans(
    raw: bytes, starts: Sequence[int] | NDArray[np.int64], ends: Sequence[int] | NDArray[np.int64]
) -> NDArray[np.int64]:
    """Turn spans of bytes into spans of code points, widened to whole characters.

    Args:
        raw: the text in UTF-8.
        starts: (n,) first byte of each span, never decreasing.
        ends: (n,) byte behind each span, never decreasing.

    Returns:
        (n, 2) int64.
    """
    octets = np.frombuffer(raw, np.uint8)
    # before[i]: code points that start in front of byte i.
    before = np.zeros(len(raw) + 1, np.int64)
    np.cumsum((octets & _CONTINUATION_MASK) != _CONTINUATION, out=before[1:])
    inside = np.zeros(len(raw) + 1, np.int64)
    inside[:-1] = (octets & _CONTINUATION_MASK) == _CONTINUATION
    firsts = np.asarray(starts, np.int64)
    return np.stack([before[firsts] - inside[firsts], before[np.asarray(ends, np.int64)]], axis=1)
