"""What is computed for each chunk: named vectors, of one kind or several."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from corral.embeddings import GGUFEmbeddings
from corral.errors import UsageError
from corral.prepare import Pending
from corral.ranking import FULL
from corral_sinks import SparseParams, Vector, VectorParams

__all__ = ["DENSE", "ChunkVectors", "Combined", "DenseEmbedder", "Embedder", "VectorSpecs"]

DENSE: Final = "dense"
"""Name of the model's vector: it always has one, so that adding others changes no schema."""

_SHORT: Final = "short_dim"
_SPARSE_BYTES: Final = 400
"""Of a sparse vector, roughly: 50 different words at eight bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorSpecs:
    """The named vectors that an embedder gives.

    Args:
        dense: dense vectors and multivectors by name.
        sparse: sparse vectors by name.
    """

    dense: Mapping[str, VectorParams] = field(default_factory=dict)
    sparse: Mapping[str, SparseParams] = field(default_factory=dict)

    @property
    def n_bytes(self) -> int:
        """Bytes that a chunk's vectors take, about: of a multivector one row is counted."""
        return 4 * sum(params.size for params in self.dense.values()) + _SPARSE_BYTES * len(
            self.sparse
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkVectors:
    """What an embedder gave for one chunk.

    Args:
        vectors: by name; one that does not apply to the chunk is left out.
        n_tokens: that the model read for them.
        truncated: whether it read less than all of the chunk.
        defect: why the vectors cannot be used, or None.
        metadata: what to keep of it in the payload, beside the chunk's own.
    """

    vectors: Mapping[str, Vector] = field(default_factory=dict)
    n_tokens: int = 0
    truncated: bool = False
    defect: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


class Embedder(Protocol):
    """Computes named vectors of chunks and of queries.

    Law: `embed` gives one result for each chunk, in order, and may be called from several threads
    at once; every name in a result, or in a query's vectors, is one of `specs`; whatever decides
    the vectors is in `settings`.
    """

    @property
    def whole_document(self) -> bool:
        """Whether a chunk's vectors depend on more of its document than the chunk."""
        ...

    @property
    def specs(self) -> VectorSpecs:
        """The vectors that it gives."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """What decides the vectors, by name: part of a collection's fingerprint, JSON values."""
        ...

    def embed(self, batch: Sequence[Pending]) -> Sequence[ChunkVectors]:
        """Compute the vectors of chunks; each brings its document along.

        Raises:
            EngineError: the model failed as a whole.
        """
        ...

    def embed_query(self, query: str) -> Mapping[str, Vector]:
        """Compute the vectors of a query, by the names of those that they are compared with.

        Raises:
            EngineError: the model failed.
        """
        ...


class DenseEmbedder:
    """One dense vector of a chunk's text, by the model; or a short and a full one.

    Args:
        embeddings: the model; it stays open.
        short_dim: leading dimensions of a vector of its own, which finds chunks quickly for the
            full one to order; the model was trained for it (Matryoshka). None makes no such.

    Raises:
        UsageError: the model was not trained for that many, or gives no more than those.
    """

    whole_document = False

    def __init__(self, embeddings: GGUFEmbeddings, *, short_dim: int | None = None) -> None:
        """Check the options."""
        if short_dim is not None:
            embeddings.require_trained(short_dim)
            if short_dim >= embeddings.dim:
                raise UsageError(
                    f"the vectors that find chunks have {short_dim} dimensions and those that "
                    f"order them {embeddings.dim}; they must have more"
                )
        self._embeddings = embeddings
        self._short_dim = short_dim

    @property
    def specs(self) -> VectorSpecs:
        """One vector of the model's dimensions; with a short one that, and the full one."""
        full = self._embeddings.dim
        if self._short_dim is None:
            return VectorSpecs(dense={DENSE: VectorParams(size=full)})
        return VectorSpecs(
            dense={
                DENSE: VectorParams(size=self._short_dim),
                FULL: VectorParams(size=full, indexed=False),
            }
        )

    @property
    def settings(self) -> Mapping[str, Any]:
        """The model's."""
        short = {} if self._short_dim is None else {_SHORT: self._short_dim}
        return {**self._embeddings.settings, **short}

    def embed(self, batch: Sequence[Pending]) -> Sequence[ChunkVectors]:
        """Embed the chunks' texts, each with the document prefix."""
        embedded = self._embeddings.embed_checked([pending.embedded_text for pending in batch])
        return [
            ChunkVectors(
                vectors={} if number in embedded.defects else self._named(vector),
                n_tokens=info.n_tokens,
                truncated=info.truncated,
                defect=embedded.defects.get(number),
            )
            for number, (vector, info) in enumerate(
                zip(embedded.vectors, embedded.infos, strict=True)
            )
        ]

    def embed_query(self, query: str) -> Mapping[str, Vector]:
        """Embed a query with the query prefix."""
        return self._named(self._embeddings.embed_query_row(query))

    def _named(self, vector: NDArray[np.float32]) -> Mapping[str, Vector]:
        if self._short_dim is None:
            return {DENSE: vector}
        return {DENSE: self._embeddings.shortened(vector, self._short_dim), FULL: vector}

    @staticmethod
    def short_dim_of(fields: Mapping[str, Any]) -> int | None:
        """Return what a fingerprint's fields say of a short vector."""
        short_dim: int | None = fields.get(_SHORT)
        return short_dim


class Combined:
    """The vectors of several embedders together; their names and settings must differ.

    Args:
        embedders: at least one.
    """

    def __init__(self, *embedders: Embedder) -> None:
        """Keep them."""
        self._embedders = embedders

    @property
    def whole_document(self) -> bool:
        """Whether one of theirs does."""
        return any(embedder.whole_document for embedder in self._embedders)

    @property
    def specs(self) -> VectorSpecs:
        """All of theirs."""
        specs = [embedder.specs for embedder in self._embedders]
        return VectorSpecs(
            dense=_merged([spec.dense for spec in specs]),
            sparse=_merged([spec.sparse for spec in specs]),
        )

    @property
    def settings(self) -> Mapping[str, Any]:
        """All of theirs."""
        return _merged([embedder.settings for embedder in self._embedders])

    def embed(self, batch: Sequence[Pending]) -> Sequence[ChunkVectors]:
        """Let each compute its own; what one of them could not, the chunk has not at all."""
        results = [embedder.embed(batch) for embedder in self._embedders]
        return [_joined(parts) for parts in zip(*results, strict=True)]

    def embed_query(self, query: str) -> Mapping[str, Vector]:
        """Let each compute its own."""
        return _merged([embedder.embed_query(query) for embedder in self._embedders])


def _joined(parts: Sequence[ChunkVectors]) -> ChunkVectors:
    return ChunkVectors(
        vectors=_merged([part.vectors for part in parts]),
        n_tokens=sum(part.n_tokens for part in parts),
        truncated=any(part.truncated for part in parts),
        defect=next((part.defect for part in parts if part.defect), None),
        metadata=_merged([part.metadata for part in parts]),
    )


def _merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for part in parts for name, value in part.items()}
