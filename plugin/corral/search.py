"""Ask a collection a question, with the model that made it."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Final, cast

from corral.embeddings import GGUFEmbeddings
from corral.errors import CollectionError, UsageError
from corral.fingerprint import Fingerprint
from corral.ingest import VECTOR_NAME
from corral.plugins import load_sink
from corral.reranker import GGUFReranker
from corral_sinks import Hit, SearchableSink, SinkOptions

__all__ = ["Found", "embeddings_for", "search"]

_FETCH_TIMES: Final = 4
_FETCH_LEAST: Final = 20


@dataclass(frozen=True, slots=True)
class Found:
    """A chunk that a search found.

    Args:
        score: cosine similarity, or the probability that a reranker gave.
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


def search(
    query: str,
    *,
    target: SinkOptions,
    k: int = 5,
    model: str | None = None,
    rerank: str | None = None,
    fetch_k: int | None = None,
) -> list[Found]:
    """Find the chunks nearest to a query, best first.

    Args:
        query: the question; the model's query prefix is put before it.
        target: the collection.
        k: most chunks to return.
        model: where the collection's model is now; None takes the name it had at ingest.
        rerank: model that puts the nearest chunks into its own order; None leaves theirs.
        fetch_k: nearest chunks for it to choose from; None takes 4 k, and 20 at least.

    Raises:
        CollectionError: there is no such collection, or another model made it.
        ModelError: `rerank` is no reranker.
        SinkError: the store failed.
    """
    limit = _check(k, rerank=rerank, fetch_k=fetch_k)
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
        hits = sink.search(vector, vector_name=VECTOR_NAME, limit=limit)
    finally:
        sink.close()
    found = [_found(hit) for hit in hits]
    return found if rerank is None else _reranked(query, found, model=rerank)[:k]


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


def _check(k: int, *, rerank: str | None, fetch_k: int | None) -> int:
    """Check the numbers, and return how many chunks to ask the collection for."""
    if k < 1:
        raise UsageError(f"k is {k}; it must be at least 1")
    if rerank is None:
        if fetch_k is not None:
            raise UsageError("fetch_k is for a reranker to choose from, and rerank names none")
        return k
    if fetch_k is None:
        return max(_FETCH_TIMES * k, _FETCH_LEAST)
    if fetch_k < k:
        raise UsageError(f"fetch_k is {fetch_k} and k is {k}; a reranker chooses k of fetch_k")
    return fetch_k


def _reranked(query: str, found: list[Found], *, model: str) -> list[Found]:
    """Return the chunks by the scores of a reranker, best first."""
    with GGUFReranker(model) as reranker:
        scores = reranker.rerank(query, [chunk.text for chunk in found])
    rescored = [
        replace(chunk, score=float(score)) for chunk, score in zip(found, scores, strict=True)
    ]
    return sorted(rescored, key=lambda chunk: -chunk.score)


def _found(hit: Hit) -> Found:
    metadata = cast("dict[str, Any]", hit.payload["metadata"])
    return Found(
        score=hit.score,
        source=metadata["source"],
        start=metadata["start"],
        end=metadata["end"],
        text=str(hit.payload["page_content"]),
    )
