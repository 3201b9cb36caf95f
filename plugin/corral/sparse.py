"""A sparse vector of each chunk's words, beside the dense one of its meaning."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from corral.embedders import ChunkVectors, VectorSpecs
from corral.prepare import Pending
from corral_sinks import SparseParams, Vector
from corral_sinks.qdrant import Bm25

__all__ = ["SPARSE", "Bm25Embedder"]

SPARSE: Final = "sparse"
"""Name of the sparse vector, and of its fields in a fingerprint."""

_KIND: Final = "bm25"


class Bm25Embedder:
    """One sparse vector of a chunk's words, for BM25.

    A chunk in which no word counts, such as a row of dashes, has none.

    Args:
        model: weighs the words.
    """

    whole_document = False

    def __init__(self, model: Bm25) -> None:
        """Keep the model."""
        self._model = model

    @staticmethod
    def options_of(fields: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the model's options as a fingerprint's fields tell them, or None without one."""
        if fields.get(SPARSE) != _KIND:
            return None
        prefix = f"{SPARSE}."
        return {
            name.removeprefix(prefix): value
            for name, value in fields.items()
            if name.startswith(prefix)
        }

    @property
    def specs(self) -> VectorSpecs:
        """One sparse vector, whose IDF the store keeps."""
        return VectorSpecs(sparse={SPARSE: SparseParams(idf=True)})

    @property
    def settings(self) -> Mapping[str, Any]:
        """The model's."""
        own = {f"{SPARSE}.{name}": value for name, value in self._model.settings.items()}
        return {SPARSE: _KIND, **own}

    def embed(self, batch: Sequence[Pending]) -> Sequence[ChunkVectors]:
        """Weigh the words of the chunks."""
        found = [self._model.embed_document(pending.chunk.text) for pending in batch]
        return [ChunkVectors(vectors={} if one is None else {SPARSE: one}) for one in found]

    def embed_query(self, query: str) -> Mapping[str, Vector]:
        """Take the words of a query."""
        found = self._model.embed_query(query)
        return {} if found is None else {SPARSE: found}
