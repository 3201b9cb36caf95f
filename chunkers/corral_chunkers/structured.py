"""What the chunkers have in common that cut by a text's structure."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

import numpy as np

from corral_chunkers.blocks import Block, read_block
from corral_chunkers.breaks import best_break, cluster_start, skip_white_space, word_start
from corral_chunkers.contract import Chunk, Document
from corral_chunkers.cutting import Structure, best_cuts, places_to_cut
from corral_chunkers.limits import LimitedChunker, Limits
from corral_chunkers.places import Places

__all__ = ["StructuredChunker"]

_ALGORITHM: Final = 2
"""Changes whenever all of these chunkers cut elsewhere by the same settings."""

_BLOCK_CHARACTERS: Final = 32_768
_BLOCK_CHARACTERS_PER_TOKEN: Final = 64
_ENDS: Final = 2
"""Places to cut at that a stretch has at least: its start and its end."""

_LOOK_AHEAD: Final = 4
"""Chunks at the end of a block that are cut anew with the next one: their cuts may yet change."""


class StructuredChunker(LimitedChunker):
    """Cuts a document where its structure says, at the least cost (`corral_chunkers.cutting`).

    A document is tokenised in blocks of some 32 thousand characters, as the chunks are asked for.
    Tokens are those of the text that stands in the chunk, not of the document: cut out of its
    neighbours, a text may tokenise otherwise. So each chunk is counted for itself, and cut again
    where it does not fit.
    """

    @property
    def settings(self) -> Mapping[str, str | int]:
        """What decides the cuts."""
        return {**super().settings, "algorithm": f"{_ALGORITHM}.{self.algorithm}"}

    @abstractmethod
    def read(self, document: Document) -> tuple[Document, Structure]:
        """Return the document, with headings where it had none, and where it may be cut."""

    def chunk(self, document: Document) -> Iterator[Chunk]:
        """Yield the document's chunks.

        Raises:
            ChunkerError: a single character has more tokens than the size allows.
        """
        document, structure = self.read(document)
        yield from _Cutter(self._limits, document, structure).chunks()


class _Cutter:
    """Cuts one document."""

    def __init__(self, limits: Limits, document: Document, structure: Structure) -> None:
        self._limits = limits
        self._text = document.text
        self._source = document.source
        self._structure = structure
        self._places = Places(document, limits.contexts(document))
        self._previous: Chunk | None = None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks, block by block."""
        text, limits = self._text, self._limits
        start = skip_white_space(text, 0)
        while start < len(text):
            block = self._encode(start)
            cuts = self._cuts(block, start, block.end, limits.room)
            if block.end < len(text):
                cuts = cuts[: max(_ENDS, len(cuts) - _LOOK_AHEAD)]
            for low, high in pairwise(cuts):
                yield from self._fitted(block, low, high, limits.room)
            start = skip_white_space(text, cuts[-1])

    def _encode(self, start: int) -> Block:
        limits = self._limits
        n_characters = max(_BLOCK_CHARACTERS, _BLOCK_CHARACTERS_PER_TOKEN * limits.size)
        repeats = limits.overlap and self._previous
        before = start - repeats.start if repeats else 0
        return read_block(self._text, start, n_characters, limits.tokenizer, before=before)

    def _cuts(self, block: Block, start: int, end: int, room: int) -> list[int]:
        """Return the offsets to cut a stretch at, its start and its end among them."""
        places = places_to_cut(block, self._structure, start, end, room)
        rooms = np.array([self._room(place.at, room) for place in places], np.int64)
        costs = np.array([place.cost for place in places])
        at = [place.at for place in places]
        return [at[number] for number in best_cuts(block.index(at), costs, rooms)]

    def _room(self, start: int, room: int) -> int:
        """Return the tokens that a chunk has for what begins at an offset."""
        repeated = self._limits.overlap if self._previous else 0
        return max(room - self._places.context(start).n_tokens - repeated, 1)

    def _fitted(self, block: Block, low: int, high: int, room: int) -> Iterator[Chunk]:
        """Yield a stretch as a chunk, or as several where it does not fit."""
        if not self._text[low:high].strip():
            return
        chunk = self._places.counted(low, high, self._limits.tokenizer)
        if chunk.n_tokens <= self._limits.size:
            self._previous = self._repeating(block, chunk)
            yield self._previous
            return
        room = min(room - 1, room * self._limits.size // chunk.n_tokens)
        cuts = self._cuts(block, low, high, room) if room > 0 else []
        if len(cuts) < _ENDS + 1:
            cuts = [low, self._middle(chunk), high]
        for start, end in pairwise(cuts):
            yield from self._fitted(block, start, end, room)

    def _middle(self, chunk: Chunk) -> int:
        """Return where to cut a chunk in two that no place to cut helps to fit."""
        if chunk.end - chunk.start == 1:
            raise self._limits.too_long(chunk, self._source)
        middle = (chunk.start + chunk.end) // 2
        found = best_break(self._text, (chunk.start + middle) // 2, middle)
        return found or cluster_start(self._text, chunk.start, middle)

    def _repeating(self, block: Block, chunk: Chunk) -> Chunk:
        """Let a chunk begin with the last words of the one before, of the same part, if it may."""
        overlap = self._limits.overlap
        if not overlap or self._previous is None:
            return chunk
        first = max(int(block.index((chunk.start,))[0]) - overlap, 0)
        least = max(self._previous.start + 1, self._places.part_start(chunk.start))
        start = word_start(self._text, max(int(block.starts[first]), least), chunk.start)
        longer = self._places.counted(start, chunk.end, self._limits.tokenizer)
        return longer if longer.n_tokens <= self._limits.size else chunk
