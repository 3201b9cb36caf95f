"""Late chunking: a document goes through the model whole, and its chunks are pooled from its rows.

A chunk's vector then knows of the document around it; on a causal model of what stands before it.

Source: Late Chunking (arXiv 2409.04701).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.embedders import ChunkVectors, DenseEmbedder
from corral.embeddings import GGUFEmbeddings
from corral.engine.pooling import PoolingType
from corral.engine.sequences import SequenceBuilder
from corral.engine.vectors import defect
from corral.errors import PoolingError
from corral.prepare import Pending
from corral.recent import Recent
from corral_chunkers import Chunk, Document

__all__ = ["LateEmbedder", "window_start"]

Ids = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class _Tokens:
    """A document as the model reads it.

    Args:
        prefix: ids of the document prefix.
        ids: (n,) int32, of the text without white space around it.
        starts: (n,) int64, of each token in the document's text, never decreasing.
        ends: (n,) int64, likewise.
    """

    prefix: Ids
    ids: Ids
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def span(self, chunk: Chunk) -> tuple[int, int]:
        """Return the first token of a chunk, and the one behind its last."""
        first = int(np.searchsorted(self.ends, chunk.start, side="right"))
        return first, int(np.searchsorted(self.starts, chunk.end, side="left"))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a chunk's rows are.

    Args:
        sequence: number of the sequence that holds them.
        first: row.
        stop: row behind the last.
        truncated: whether the sequence holds less than the chunk.
    """

    sequence: int
    first: int
    stop: int
    truncated: bool = False


class LateEmbedder(DenseEmbedder):
    """The dense vector of a chunk, pooled from its own rows of a pass over the whole document.

    A document over the model's limit goes through in windows that overlap by half; a chunk is taken
    from the one in whose middle it stands most nearly. The first chunk of a document has the rows
    of prefix and leading special tokens too, the last one those of the final ones, so that the one
    chunk of a short document gets the vector that the model gives without late chunking.

    Args:
        embeddings: the model, opened with `token_rows`; it stays open.
        short_dim: as for DenseEmbedder.

    Raises:
        PoolingError: a chunk has no row to pool.
        UsageError: as DenseEmbedder.
    """

    whole_document = True

    def __init__(self, embeddings: GGUFEmbeddings, *, short_dim: int | None = None) -> None:
        """Check the options."""
        super().__init__(embeddings, short_dim=short_dim)
        if embeddings.pooling_type not in (PoolingType.MEAN, PoolingType.LAST):
            raise PoolingError(
                f"late chunking pools a chunk's own token rows; {embeddings.model} has the "
                f"pooling {embeddings.pooling_type.name.lower()}, which reads one token of a text. "
                "Take a model with mean or last"
            )
        self._tokens = Recent(self._tokenize)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The model's, and that chunks are pooled late."""
        return {**super().settings, "late": True}

    def embed(self, batch: Sequence[Pending]) -> Sequence[ChunkVectors]:
        """Embed chunks, each within its document."""
        sequences: list[Ids] = []
        numbers: dict[tuple[int, int], int] = {}
        places = [self._place(pending, sequences, numbers) for pending in batch]
        result = self._embeddings.rows_of(sequences)
        return [
            self._vector(place, result.rows[place.sequence], result.defects.get(place.sequence))
            for place in places
        ]

    def _vector(self, place: _Place, rows: NDArray[np.float32], found: str | None) -> ChunkVectors:
        own = rows[place.first : place.stop]
        vector = self._embeddings.pool(own)
        found = found or defect(vector)
        return ChunkVectors(
            vectors={} if found else self._named(vector),
            n_tokens=len(own),
            truncated=place.truncated,
            defect=found,
        )

    def _place(
        self, pending: Pending, sequences: list[Ids], numbers: dict[tuple[int, int], int]
    ) -> _Place:
        """Find a chunk's rows; append the sequence that has them where it is a new one."""
        tokens = self._tokens.of(pending.document)
        first, stop = tokens.span(pending.chunk)
        if stop <= first:  # characters that the model does not see: what stands round every text
            (alone,) = self._builder.build([pending.chunk.text])
            sequences.append(alone.pieces[0].ids)
            return _Place(len(sequences) - 1, 0, len(sequences[-1]))
        room = self._builder.max_tokens - self._n_special - len(tokens.prefix)
        start = window_start(first, stop, len(tokens.ids), room)
        key = (id(pending.document), start)
        if key not in numbers:
            numbers[key] = len(sequences)
            sequences.append(self._window(tokens, start, room))
        number = numbers[key]
        before = len(self._embeddings.tokenizer.head) + len(tokens.prefix)
        last = min(stop, start + room)
        return _Place(
            number,
            first=0 if first == 0 else before + first - start,
            stop=len(sequences[number]) if last == len(tokens.ids) else before + last - start,
            truncated=last < stop,
        )

    def _window(self, tokens: _Tokens, start: int, room: int) -> Ids:
        tokenizer = self._embeddings.tokenizer
        head, tail = (np.asarray(ids, np.int32) for ids in (tokenizer.head, tokenizer.tail))
        return np.concatenate((head, tokens.prefix, tokens.ids[start : start + room], tail))

    def _tokenize(self, document: Document) -> _Tokens:
        text = document.text
        prefix, body = self._embeddings.document_prefix, text.strip()
        whole = body if body.startswith(prefix) else prefix + body
        ids, offsets = self._embeddings.tokenizer.encode(whole)
        n_prefix = int(np.searchsorted(offsets[:, 0], len(prefix))) if prefix else 0
        shift = (len(text) - len(text.lstrip())) - (len(whole) - len(body))
        own = offsets[n_prefix:] + shift
        return _Tokens(ids[:n_prefix], ids[n_prefix:], own[:, 0], own[:, 1])

    @property
    def _builder(self) -> SequenceBuilder:
        return self._embeddings.sequences(self._embeddings.document_prefix)

    @property
    def _n_special(self) -> int:
        tokenizer = self._embeddings.tokenizer
        return len(tokenizer.head) + len(tokenizer.tail)


def window_start(first: int, stop: int, n_tokens: int, room: int) -> int:
    """Return where the window of a chunk starts: on a grid of half windows where one holds it.

    Chunks side by side so share windows, whichever others of the document want a vector.

    Args:
        first: token of the chunk.
        stop: token behind it.
        n_tokens: of the document.
        room: tokens of a window.
    """
    last_start = max(n_tokens - room, 0)
    centred = min(max((first + stop) // 2 - room // 2, 0), last_start)
    step = max(room // 2, 1)
    on_grid = min((centred + step // 2) // step * step, last_start)
    for start in (on_grid, centred):
        if start <= first and stop <= start + room:
            return start
    return first
