"""Stretches of a text that are tokenised at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corral_chunkers.breaks import best_break, cluster_start
from corral_chunkers.contract import Tokenizer

__all__ = ["Block", "read_block"]


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of a text and where its tokens start.

    Args:
        text: the whole text.
        end: offset behind the stretch.
        starts: (n_tokens,) int64, offsets into the text, never decreasing.
    """

    text: str
    end: int
    starts: NDArray[np.int64]

    def index(self, offsets: Sequence[int]) -> NDArray[np.int64]:
        """Return the number of tokens that start in front of each offset; int64."""
        return np.searchsorted(self.starts, np.array(offsets, np.int64))

    def n_tokens(self, start: int, end: int) -> int:
        """Return the number of tokens that start between two offsets."""
        first, last = self.index((start, end))
        return int(last - first)

    def start_of(self, number: int) -> int:
        """Return where a token starts; behind the last one is the block's end."""
        return int(self.starts[number]) if number < len(self.starts) else self.end


def read_block(
    text: str, start: int, n_characters: int, tokenizer: Tokenizer, *, before: int = 0
) -> Block:
    """Tokenise a stretch, which ends where a reader would end it.

    Args:
        text: the whole text.
        start: offset of the stretch.
        n_characters: of the stretch, at most; at least half as many if the text has them.
        tokenizer: of the model.
        before: characters in front of the stretch whose tokens are wanted too.
    """
    end = min(start + n_characters, len(text))
    if end < len(text):
        middle = (start + end) // 2
        end = best_break(text, middle, end) or cluster_start(text, middle, end)
    first = start - before
    return Block(text, end, tokenizer.encode(text[first:end]).offsets[:, 0] + first)
