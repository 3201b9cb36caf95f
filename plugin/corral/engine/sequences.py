"""From texts to the token sequences that the model reads, cut to its limit where they must be."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from corral.errors import InputTooLongError, UsageError

__all__ = ["Encoder", "OverLength", "Piece", "TextSequences", "build"]

_OVERLAP: Final = 8
"""Windows repeat an eighth of the window before."""


class OverLength(StrEnum):
    """What becomes of a text that is longer than the model takes."""

    ERROR = "error"
    TRUNCATE = "truncate"
    WINDOW = "window"

    @classmethod
    def parse(cls, value: str) -> "OverLength":
        """Read a name.

        Raises:
            UsageError: it is none.
        """
        try:
            return cls(value)
        except ValueError:
            raise UsageError(
                f"over_length {value!r} is unknown; it is one of {', '.join(cls)}"
            ) from None


class Encoder(Protocol):
    """What is needed of a tokenizer."""

    @property
    def head(self) -> Sequence[int]:
        """Special tokens before every text."""
        ...

    @property
    def tail(self) -> Sequence[int]:
        """Special tokens behind every text."""
        ...

    def encode(self, text: str) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Ids (n,) and offsets (n, 2), without special tokens."""
        ...

    def encode_batch(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Ids (n,) of each text, without special tokens."""
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """A sequence that the model reads.

    Args:
        ids: (n,) int32, prefix and special tokens included.
        weight: tokens of the text itself in it, for the mean over windows.
    """

    ids: NDArray[np.int32]
    weight: int


@dataclass(frozen=True, slots=True)
class TextSequences:
    """What the model reads for one text.

    Args:
        pieces: one, or with OverLength.WINDOW several.
        n_tokens: of the whole text, prefix and special tokens included.
        truncated: whether tokens of the text were left out.
    """

    pieces: tuple[Piece, ...]
    n_tokens: int
    truncated: bool


def build(
    encoder: Encoder,
    texts: Sequence[str],
    *,
    prefix: str,
    max_tokens: int,
    over_length: OverLength,
    limit_source: str,
) -> list[TextSequences]:
    """Tokenise texts as the model is to read them.

    The special tokens and the prefix are never what is cut.

    Args:
        encoder: the model's tokenizer.
        texts: the texts.
        prefix: text that stands before each.
        max_tokens: longest sequence.
        over_length: what becomes of a longer one.
        limit_source: where max_tokens comes from, for the error.

    Raises:
        InputTooLongError: a text is too long and the policy is "error".
        UsageError: the prefix leaves no room for text.
    """
    head = np.asarray(encoder.head, dtype=np.int32)
    tail = np.asarray(encoder.tail, dtype=np.int32)
    built = []
    for number, ids in enumerate(encoder.encode_batch([prefix + text for text in texts])):
        n_tokens = len(head) + len(ids) + len(tail)
        if n_tokens <= max_tokens:
            pieces = (Piece(np.concatenate((head, ids, tail)), len(ids)),)
            built.append(TextSequences(pieces, n_tokens, truncated=False))
            continue
        if over_length is OverLength.ERROR:
            raise InputTooLongError(
                f"text {number} has {n_tokens} tokens; the model takes {max_tokens} "
                f'({limit_source}). Make it shorter, or use over_length "truncate" or "window"'
            )
        n_prefix = _prefix_tokens(encoder, prefix, prefix + texts[number])
        room = max_tokens - len(head) - n_prefix - len(tail)
        if room < 1:
            raise UsageError(
                f"the prefix {prefix!r} has {n_prefix} tokens and the model adds "
                f"{len(head) + len(tail)}: of {max_tokens} ({limit_source}) none is left for text"
            )
        lead = np.concatenate((head, ids[:n_prefix]))
        truncate = over_length is OverLength.TRUNCATE
        bodies = [ids[n_prefix : n_prefix + room]] if truncate else _windows(ids[n_prefix:], room)
        pieces = tuple(Piece(np.concatenate((lead, body, tail)), len(body)) for body in bodies)
        built.append(TextSequences(pieces, n_tokens, truncated=truncate))
    return built


def _prefix_tokens(encoder: Encoder, prefix: str, text: str) -> int:
    """Count the leading tokens that hold a character of the prefix."""
    if not prefix:
        return 0
    _, offsets = encoder.encode(text)
    return int(np.searchsorted(offsets[:, 0], len(prefix)))


def _windows(ids: NDArray[np.int32], room: int) -> list[NDArray[np.int32]]:
    step = max(1, room - room // _OVERLAP)
    starts = range(0, max(1, len(ids) - room + step), step)
    return [ids[start : start + room] for start in starts]
