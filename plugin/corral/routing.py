"""Documents over a model's limit go whole to a second one, into a vector of its own."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from corral.embedders import ChunkVectors, Embedder, VectorSpecs
from corral.embeddings import GGUFEmbeddings
from corral.engine.pooling import PoolingType
from corral.errors import PoolingError
from corral.prepare import Pending
from corral.recent import Recent
from corral_chunkers import Chunk, Chunker, Document
from corral_sinks import Vector, VectorParams

__all__ = ["LONG", "LONG_PREFIX", "RoutedEmbedder", "Router", "RoutingChunker"]

LONG: Final = "long"
"""Name of the vector of long documents."""

LONG_PREFIX: Final = f"{LONG}."
"""Of the second model's fields in a fingerprint."""


class Router:
    """Says which model a document goes to: by its tokens in the first one's.

    Args:
        near: the first model; what is over its limit, prefix and special tokens included, goes to
            the second.
        far: the second one; it pools LAST, and so reads a document in several decodes.

    Attributes:
        n_long: documents that were cut for it so far.

    Raises:
        PoolingError: it pools otherwise.
    """

    def __init__(self, near: GGUFEmbeddings, far: GGUFEmbeddings) -> None:
        """Keep the models."""
        if far.pooling_type is not PoolingType.LAST:
            raise PoolingError(
                f"the model for long documents, {far.model}, pools by "
                f"{far.pooling_type.name.lower()}; it must pool by last, so that it reads a "
                "document in several decodes"
            )
        self.near, self.far = near, far
        self.n_long = 0
        self._is_long = Recent(self._measure)

    def is_long(self, document: Document) -> bool:
        """Tell whether a document goes to the second model."""
        return self._is_long.of(document)

    def _measure(self, document: Document) -> bool:
        builder = self.near.sequences(self.near.document_prefix)
        return builder.count(document.text.strip()) > self.near.max_tokens

    @property
    def reason(self) -> str:
        """Say which documents go to the second model, and why."""
        return (
            f"of more than the {self.near.max_tokens} tokens that {self.near.model} takes "
            f"({self.near.limit_source}) went whole to {self.far.model}, into the vector {LONG}"
        )

    def model_of(self, document: Document) -> str:
        """Name the model that a document goes to."""
        return (self.far if self.is_long(document) else self.near).model


class RoutingChunker:
    """Leaves long documents to a chunker that counts in the second model's tokens.

    Args:
        near: cuts the others.
        far: cuts the long ones, into as few as the second model takes: nearly always one.
        router: tells them apart.
    """

    def __init__(self, near: Chunker, far: Chunker, router: Router) -> None:
        """Keep them."""
        self._near, self._far, self._router = near, far, router

    @property
    def settings(self) -> Mapping[str, str | int]:
        """What decides the cuts."""
        far = {f"{LONG_PREFIX}{name}": value for name, value in self._far.settings.items()}
        return {**self._near.settings, **far}

    def chunk(self, document: Document) -> Iterator[Chunk]:
        """Yield the document's chunks."""
        long = self._router.is_long(document)
        self._router.n_long += long
        yield from (self._far if long else self._near).chunk(document)


class RoutedEmbedder:
    """The vectors of another embedder, or for a chunk of a long document the second model's alone.

    Args:
        near: computes the others'.
        router: tells them apart, and has the second model.
    """

    def __init__(self, near: Embedder, router: Router) -> None:
        """Keep them."""
        self._near, self._router = near, router

    @property
    def whole_document(self) -> bool:
        """Whether the others' vectors depend on their documents."""
        return self._near.whole_document

    @property
    def specs(self) -> VectorSpecs:
        """The others', and one of the second model."""
        near = self._near.specs
        long = VectorParams(size=self._router.far.dim)
        return VectorSpecs(dense={**near.dense, LONG: long}, sparse=near.sparse)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The others', and the second model's."""
        far = self._router.far.settings
        return {
            **self._near.settings,
            **{f"{LONG_PREFIX}{name}": value for name, value in far.items()},
        }

    def embed(self, batch: Sequence[Pending]) -> Sequence[ChunkVectors]:
        """Embed each chunk by the model that its document goes to."""
        goes_far = [self._router.is_long(pending.document) for pending in batch]
        long = iter(self._embed_long([p for p, far in zip(batch, goes_far, strict=True) if far]))
        others = [p for p, far in zip(batch, goes_far, strict=True) if not far]
        near = iter(self._near.embed(others) if others else ())
        return [next(long if far else near) for far in goes_far]

    def embed_query(self, query: str) -> Mapping[str, Vector]:
        """Embed a query by both."""
        return {
            **self._near.embed_query(query),
            LONG: self._router.far.embed_query_row(query),
        }

    def _embed_long(self, batch: Sequence[Pending]) -> Sequence[ChunkVectors]:
        if not batch:
            return []
        embedded = self._router.far.embed_checked([pending.embedded_text for pending in batch])
        return [
            ChunkVectors(
                vectors={} if number in embedded.defects else {LONG: vector},
                n_tokens=info.n_tokens,
                truncated=info.truncated,
                defect=embedded.defects.get(number),
            )
            for number, (vector, info) in enumerate(
                zip(embedded.vectors, embedded.infos, strict=True)
            )
        ]
