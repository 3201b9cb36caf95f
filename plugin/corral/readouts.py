"""One pass, several vectors: the dense one, a multivector, and lexical weights of each chunk.

Source: BGE-M3 (arXiv 2402.03216) and its reference, FlagEmbedding's m3.py; ColBERT (arXiv
2004.12832) for the multivector.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from corral.embedders import ChunkVectors, DenseEmbedder, VectorSpecs
from corral.embeddings import GGUFEmbeddings
from corral.engine.readouts import Heads, Linear, hold_under, lexical_weights
from corral.engine.vectors import defect, normalize
from corral.errors import UsageError
from corral.prepare import Pending
from corral.ranking import MULTI
from corral.sparse import SPARSE
from corral_sinks import SparseParams, SparseVector, Vector, VectorParams

__all__ = ["LEXICAL", "ReadoutsEmbedder"]

log = logging.getLogger(__name__)

LEXICAL: Final = "lexical"
"""What the fingerprint's field `sparse` says where it holds weights of tokens."""

_MOST_VALUES: Final = 1_048_576
"""Of all rows of a multivector together: a Qdrant server refuses a point with more."""

_UNTRAINED: Final = "untrained token rows"


class ReadoutsEmbedder(DenseEmbedder):
    """The dense vector of a chunk, and what else its token rows give.

    Args:
        embeddings: the model, opened with `token_rows`; it stays open.
        heads: projections that were trained beside the model; None for none.
        heads_sha256: of their file.
        multi: whether there is a multivector: of the heads' rows, or without them of the model's
            own, which nobody trained for it.
        lexical: whether there is a sparse vector of the tokens' weights.
        short_dim: as for DenseEmbedder.

    Raises:
        UsageError: the heads lack what is asked for; or as DenseEmbedder.
    """

    def __init__(
        self,
        embeddings: GGUFEmbeddings,
        *,
        heads: Heads | None = None,
        heads_sha256: str | None = None,
        multi: bool = False,
        lexical: bool = False,
        short_dim: int | None = None,
    ) -> None:
        """Check the options."""
        super().__init__(embeddings, short_dim=short_dim)
        self._multi_head = heads.multi if heads else None
        self._sparse_head = heads.sparse if heads else None
        if lexical and self._sparse_head is None:
            raise UsageError(
                "weights of tokens need a trained sparse_linear, and the heads have none; "
                "BM25 needs no heads: --sparse bm25"
            )
        if multi and heads and self._multi_head is None:
            raise UsageError("the heads hold no projection of the token rows (colbert_linear)")
        self._multi, self._lexical, self._heads_sha256 = multi, lexical, heads_sha256
        self._warns = multi and heads is None

    @property
    def specs(self) -> VectorSpecs:
        """The dense ones, a multivector without a graph, and a sparse vector."""
        dense = dict(super().specs.dense)
        if self._multi:
            dense[MULTI] = VectorParams(size=self._multi_dim, multivector=True, indexed=False)
        return VectorSpecs(dense=dense, sparse={SPARSE: SparseParams()} if self._lexical else {})

    @property
    def settings(self) -> Mapping[str, Any]:
        """The model's, and what is read out."""
        kind = self._heads_sha256 or _UNTRAINED
        return {
            **super().settings,
            **({MULTI: kind} if self._multi else {}),
            **({SPARSE: LEXICAL, "heads_sha256": kind} if self._lexical else {}),
        }

    def embed(self, batch: Sequence[Pending]) -> Sequence[ChunkVectors]:
        """Run each chunk through the model once."""
        self._warn()
        builder = self._embeddings.sequences(self._embeddings.document_prefix)
        built = builder.build([pending.embedded_text for pending in batch])
        sequences = [text.pieces[0].ids for text in built]
        result = self._embeddings.rows_of(sequences)
        found = []
        for number, (text, ids) in enumerate(zip(built, sequences, strict=True)):
            wrong = result.defects.get(number)
            vectors = {} if wrong else self._read_out(ids, result.rows[number])
            wrong = wrong or next(filter(None, map(_defect, vectors.values())), None)
            found.append(
                ChunkVectors(
                    vectors={} if wrong else vectors,
                    n_tokens=text.n_tokens,
                    truncated=text.truncated or len(text.pieces) > 1,
                    defect=wrong,
                )
            )
        return found

    def embed_query(self, query: str) -> Mapping[str, Vector]:
        """Run a query with its prefix through the model once."""
        builder = self._embeddings.sequences(self._embeddings.query_prefix)
        (text,) = builder.build([query])
        ids = text.pieces[0].ids
        return self._read_out(ids, self._embeddings.rows_of([ids]).rows[0])

    def _warn(self) -> None:
        """Say once, where vectors are stored, that nobody trained them for what they are for."""
        if self._warns:
            self._warns = False
            log.warning(
                "the multivectors are the token rows of %s, which nobody trained for MaxSim; with "
                "--heads they are projected as its authors do",
                self._embeddings.model,
            )

    def _read_out(self, ids: NDArray[np.int32], rows: NDArray[np.float32]) -> dict[str, Vector]:
        vectors = dict(self._named(self._embeddings.pool(rows)))
        if self._multi:
            vectors[MULTI] = hold_under(self._multivector(rows), _MOST_VALUES)
        if self._lexical and (weights := self._weights(ids, rows)):
            vectors[SPARSE] = SparseVector(
                indices=np.fromiter(weights, np.uint32), values=np.fromiter(weights.values(), "f4")
            )
        return vectors

    def _multivector(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Give the rows of unit length, without those that the reference leaves out.

        BGE-M3's reference drops the leading special token and keeps the final one.
        """
        tokenizer = self._embeddings.tokenizer
        n_head, n_tail = len(tokenizer.head), len(tokenizer.tail)
        if self._multi_head is not None:
            rows = self._multi_head(rows[n_head:])
        elif len(rows) > n_head + n_tail:
            rows = rows[n_head : len(rows) - n_tail]
        return normalize(rows)

    def _weights(self, ids: NDArray[np.int32], rows: NDArray[np.float32]) -> dict[int, float]:
        tokenizer = self._embeddings.tokenizer
        odd = (tokenizer.pad_id, tokenizer.unk_id)
        special = {*tokenizer.head, *tokenizer.tail, *(i for i in odd if i is not None)}
        head = self._sparse_head
        assert head is not None  # noqa: S101 - `lexical` has one, for mypy
        return lexical_weights(ids, head(rows)[:, 0], special=special)

    @property
    def _multi_dim(self) -> int:
        head: Linear | None = self._multi_head
        return self._embeddings.width if head is None else len(head.weight)


def _defect(vector: Vector) -> str | None:
    return defect(vector.values if isinstance(vector, SparseVector) else vector)
