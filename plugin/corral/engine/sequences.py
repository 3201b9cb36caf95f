"""From texts to the token sequences that the model reads, cut to its limit where they must be."""

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from corral.errors import InputTooLongError, UsageError

__all__ = ["OverLength", "Piece", "SequenceBuilder", "TextSequences", "TextTokenizer"]

_SHOWN_CHARACTERS: Final = 60
_OVERLAP: Final = 8
"""A window repeats an eighth of the one before."""


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


class TextTokenizer(Protocol):
    """What is needed of a tokenizer."""

    @property
    def head(self) -> Sequence[int]:
        """Special tokens before every text."""
        ...

    @property
    def tail(self) -> Sequence[int]:
        """Special tokens behind every text."""
        ...

    @property
    def eos_id(self) -> int | None:
        """End of a text."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceBuilder:
    """Tokenises texts as the model is to read them.

    Args:
        tokenizer: the model's.
        prefix: text that stands before each text; never cut, and neither are special tokens. It
            is not put before a text that begins with it.
        max_tokens: longest sequence.
        limit_source: where max_tokens comes from, for errors.
        over_length: what becomes of a longer text.
    """

    tokenizer: TextTokenizer
    prefix: str
    max_tokens: int
    limit_source: str
    over_length: OverLength

    def build(
        self, texts: Sequence[str], *, numbers: Sequence[int] | None = None
    ) -> list[TextSequences]:
        """Tokenise texts.

        Args:
            texts: the texts.
            numbers: what errors call them; None counts from 0.

        Raises:
            InputTooLongError: a text is too long and the policy is "error".
            UsageError: `texts` is no sequence of strings, or the prefix leaves no room for text.
        """
        _require_texts(texts)
        whole = [self._prefixed(text) for text in texts]
        numbers = range(len(texts)) if numbers is None else numbers
        return [
            self._one(number, text, ids)
            for number, text, ids in zip(numbers, whole, self._encode(whole), strict=True)
        ]

    def count(self, text: str) -> int:
        """Count the tokens of the whole text, prefix and special tokens included."""
        (ids,) = self._encode([self._prefixed(text)])
        return self._n_special + len(ids)

    def check_prefix(self) -> None:
        """See that the prefix leaves room for text.

        Raises:
            UsageError: it leaves none.
        """
        (ids,) = self.tokenizer.encode_batch([self.prefix])
        self._room(len(ids))

    def _room(self, n_prefix: int) -> int:
        room = self.max_tokens - self._n_special - n_prefix
        if room < 1 and self.max_tokens <= self._n_special:
            raise UsageError(
                f"the model adds {self._n_special} tokens to each text: of {self.max_tokens} "
                f"({self.limit_source}) none is left for text. Raise that limit"
            )
        if room < 1:
            shown = self.prefix[:_SHOWN_CHARACTERS]
            raise UsageError(
                f"the prefix {shown!r} has {n_prefix} tokens and the model adds "
                f"{self._n_special}: of {self.max_tokens} ({self.limit_source}) none is left "
                f"for text. Take a prefix of at most {self.max_tokens - self._n_special - 1} tokens"
            )
        return room

    def _prefixed(self, text: str) -> str:
        return text if text.startswith(self.prefix) else self.prefix + text

    def _encode(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Tokenise; where the model reads nothing round a text, an empty one is an EOS."""
        encoded = self.tokenizer.encode_batch(texts)
        if self._n_special:
            return encoded
        nothing = np.asarray([self.tokenizer.eos_id or 0], dtype=np.int32)
        return [ids if len(ids) else nothing for ids in encoded]

    @property
    def _n_special(self) -> int:
        return len(self.tokenizer.head) + len(self.tokenizer.tail)

    def _one(self, number: int, text: str, ids: NDArray[np.int32]) -> TextSequences:
        n_tokens = self._n_special + len(ids)
        if n_tokens <= self.max_tokens:
            return TextSequences((self._wrap(ids, len(ids)),), n_tokens, truncated=False)
        if self.over_length is OverLength.ERROR:
            raise InputTooLongError(
                f"text {number} has {n_tokens} tokens; the model takes {self.max_tokens} "
                f'({self.limit_source}). Make it shorter, or use over_length "truncate" or "window"'
            )
        n_prefix = self._prefix_tokens(text)
        room = self._room(n_prefix)
        truncated = self.over_length is OverLength.TRUNCATE
        body = ids[n_prefix:]
        pieces = tuple(
            self._wrap(np.concatenate((ids[:n_prefix], part)), len(part))
            for part in ([body[:room]] if truncated else _windows(body, room))
        )
        return TextSequences(pieces, n_tokens, truncated)

    def _wrap(self, ids: NDArray[np.int32], weight: int) -> Piece:
        head, tail = (
            np.asarray(special, dtype=np.int32)
            for special in (self.tokenizer.head, self.tokenizer.tail)
        )
        return Piece(np.concatenate((head, ids, tail)), weight)

    def _prefix_tokens(self, text: str) -> int:
        """Count the leading tokens that begin inside the prefix."""
        if not self.prefix:
            return 0
        _, offsets = self.tokenizer.encode(text)
        return int(np.searchsorted(offsets[:, 0], len(self.prefix)))


def _require_texts(texts: Sequence[str]) -> None:
    """Refuse one string, which is a sequence of strings too, and what is no string."""
    if isinstance(texts, str) or not isinstance(texts, Sized):
        kind = type(texts).__name__
        raise UsageError(f"texts is a list of strings; got {kind} in place of the list")
    for text in texts:
        if not isinstance(text, str):
            raise UsageError(f"texts is a list of strings; got {type(text).__name__} in it")


def _windows(ids: NDArray[np.int32], room: int) -> list[NDArray[np.int32]]:
    step = room - room // _OVERLAP
    return [ids[start : start + room] for start in range(0, len(ids) - room + step, step)]
