"""Windows of a number of tokens, cut where a reader would cut."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from corral_chunkers.blocks import Block, read_block
from corral_chunkers.breaks import best_break, cluster_start, skip_white_space, word_start
from corral_chunkers.contract import Chunk, Document
from corral_chunkers.limits import LimitedChunker
from corral_chunkers.places import Places

__all__ = ["TokensChunker"]

_BLOCK_CHARACTERS: Final = 16_384
_BLOCK_CHARACTERS_PER_TOKEN: Final = 32


@dataclass(frozen=True, slots=True)
class _Window:
    """Where a chunk starts, and the tokens around it."""

    text: str
    start: int
    block: Block
    first: int

    def end(self, n_tokens: int) -> int:
        """Return where to cut, so that about n_tokens or fewer are in front of the cut."""
        n_tokens = min(n_tokens, len(self.block.starts) - self.first)
        limit = max(self.block.start_of(self.first + n_tokens), self.start + 1)
        if limit >= len(self.text):
            return limit
        # At least two thirds full: a better place further ahead would waste more of the model's
        # pass, and make more chunks, than the place is worth.
        last_of_two_thirds = self.first + max(2 * n_tokens // 3 - 1, 0)
        low = max(self.block.start_of(last_of_two_thirds), self.start)
        return best_break(self.text, low, limit) or cluster_start(self.text, self.start, limit)


class TokensChunker(LimitedChunker):
    """Cuts a document into windows of at most `size` of the model's tokens.

    A window is cut at the end of a paragraph, sentence, line or word where one lies in its last
    third, never inside a grapheme cluster that fits, and stripped of white space. The document is
    tokenised in blocks of some 16 thousand characters, as the chunks are asked for; a block is
    also the most that a chunk can hold.

    Tokens are those of the text that stands in the chunk, not of the document: cut out of its
    neighbours, a text may tokenise otherwise. So each chunk is counted for itself, and made
    smaller until it fits.
    """

    algorithm: ClassVar[int] = 1

    def chunk(self, document: Document) -> Iterator[Chunk]:
        """Yield the document's chunks.

        Raises:
            ChunkerError: a single character has more tokens than the size allows.
        """
        text = document.text
        places = Places(document, self._limits.contexts(document))
        covered = start = skip_white_space(text, 0)
        block = Block(text, start, np.empty(0, np.int64))
        while covered < len(text):
            if not self._reaches(block, start, len(text)):
                block = self._encode(text, start)
            chunk = self._cut(places, _Window(text, start, block, _number(block, start)))
            if chunk.end <= covered:  # what is repeated left no room for anything new
                start = covered
                continue
            yield chunk
            covered = skip_white_space(text, chunk.end)
            start = self._repeat_from(text, block, chunk) if self._limits.overlap else covered

    def _reaches(self, block: Block, start: int, length: int) -> bool:
        n_tokens = len(block.starts) - _number(block, start)
        return block.end == length or n_tokens > self._limits.room

    def _encode(self, text: str, start: int) -> Block:
        limits = self._limits
        n_characters = max(_BLOCK_CHARACTERS, _BLOCK_CHARACTERS_PER_TOKEN * limits.size)
        return read_block(text, start, n_characters, limits.tokenizer)

    def _cut(self, places: Places, window: _Window) -> Chunk:
        room = max(self._limits.room - places.context(window.start).n_tokens, 1)
        n_tokens = min(room, len(window.block.starts) - window.first)
        step = 1
        while True:
            chunk = self._chunk(places, window.start, window.end(n_tokens))
            if chunk.n_tokens <= self._limits.size:
                return chunk
            n_tokens = min(n_tokens - step, n_tokens * self._limits.size // chunk.n_tokens)
            step *= 2  # a text that hardly shrinks in tokens is not to be counted for ever
            if n_tokens < 1:
                return self._halve(places, chunk)

    def _halve(self, places: Places, chunk: Chunk) -> Chunk:
        """Make a chunk fit that the tokens' offsets do not help to cut."""
        while chunk.n_tokens > self._limits.size:
            if chunk.end - chunk.start == 1:
                raise self._limits.too_long(chunk, places.document.source)
            text, start = places.document.text, chunk.start
            middle = (start + chunk.end) // 2
            end = best_break(text, (start + middle) // 2, middle)
            chunk = self._chunk(places, start, end or cluster_start(text, start, middle))
        return chunk

    def _chunk(self, places: Places, start: int, end: int) -> Chunk:
        return places.counted(start, end, self._limits.tokenizer)

    def _repeat_from(self, text: str, block: Block, chunk: Chunk) -> int:
        """Return where the last tokens of a chunk start that the next one repeats."""
        repeated = block.start_of(max(_number(block, chunk.end) - self._limits.overlap, 0))
        if repeated > chunk.start:
            repeated = word_start(text, repeated, chunk.end)
            if repeated < chunk.end:
                return repeated
        return skip_white_space(text, chunk.end)


def _number(block: Block, offset: int) -> int:
    """Return the number of tokens that start in front of an offset."""
    return int(block.index((offset,))[0])
