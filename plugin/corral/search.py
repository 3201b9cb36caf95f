"""Ask a collection a question, with the model that made it."""

from dataclasses import asdict, dataclass
from typing import Any, cast

from corral.embeddings import GGUFEmbeddings
from corral.errors import CollectionError, UsageError
from corral.fingerprint import Fingerprint
from corral.ingest import VECTOR_NAME
from corral.plugins import load_sink
from corral_sinks import Hit, SearchableSink, SinkOptions

__all__ = ["Found", "embeddings_for", "search"]


@dataclass(frozen=True, slots=True)
class Found:
    """A chunk that a search found.

    Args:
        score: cosine similarity.
        source: URI of the document, relative to the root it was found under.
        start: offset of the chunk's first code point in the document.
        end: offset behind its last code point.
        text: the chunk.
    """

    score: float
    source: str
    start: int
    end: int
    text: str

    def as_dict(self) -> dict[str, Any]:
        """Give the fields by name."""
        return asdict(self)


def search(query: str, *, target: SinkOptions, k: int = 5, model: str | None = None) -> list[Found]:
    """Find the chunks nearest to a query, best first.

    Args:
        query: the question; the model's query prefix is put before it.
        target: the collection.
        k: most chunks to return.
        model: where the collection's model is now; None takes the name it had at ingest.

    Raises:
        CollectionError: there is no such collection, or another model made it.
        SinkError: the store failed.
    """
    if k < 1:
        raise UsageError(f"k is {k}; it must be at least 1")
    sink = cast("SearchableSink", load_sink("qdrant")(target))
    try:
        schema = sink.schema()
        if schema is None:
            raise CollectionError(
                f"there is no collection {target.collection!r} at {target.url or target.path}; "
                "`ingest` makes one"
            )
        held = Fingerprint.from_metadata(schema.metadata, collection=target.collection)
        with embeddings_for(held, collection=target.collection, model=model) as embeddings:
            vector = embeddings.embed_query_row(query)
        return [_found(hit) for hit in sink.search(vector, vector_name=VECTOR_NAME, limit=k)]
    finally:
        sink.close()


def embeddings_for(
    fingerprint: Fingerprint, *, collection: str, model: str | None = None
) -> GGUFEmbeddings:
    """Open the model that made a collection, with the settings it had.

    Raises:
        CollectionError: the model that is found is another one.
    """
    fields = fingerprint.fields
    embeddings = GGUFEmbeddings(
        model or fingerprint.model,
        dim=fields["dim"],
        force_dim=True,
        pooling_type=fields["pooling_type"],
        attention="causal" if fields["causal"] else "non-causal",
        over_length=fields["over_length"],
        normalize=fields["normalize"],
        query_prefix=fields["query_prefix"],
        document_prefix=fields["document_prefix"],
    )
    settings = Fingerprint(model=embeddings.model, fields=embeddings.settings)
    held = Fingerprint(
        model=fingerprint.model, fields={name: fields.get(name) for name in settings.fields}
    )
    try:
        held.require_equal(settings, collection=collection)
    except CollectionError:
        embeddings.close()
        raise
    return embeddings


def _found(hit: Hit) -> Found:
    metadata = cast("dict[str, Any]", hit.payload["metadata"])
    return Found(
        score=hit.score,
        source=metadata["source"],
        start=metadata["start"],
        end=metadata["end"],
        text=str(hit.payload["page_content"]),
    )
