"""Ask a collection a question, with the model that made it."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from corral.collection import Collection, n_candidates
from corral.ranking import RankingOptions
from corral.reranker import GGUFReranker
from corral_sinks import Hit, SinkOptions
from corral_sinks.qdrant import Filter

__all__ = ["Found", "search"]


@dataclass(frozen=True, slots=True)
class Found:
    """A chunk that a search found.

    Args:
        score: cosine similarity, or what the fusion of several vectors' finds gave, or the
            probability that a reranker gave.
        source: URI of the document, relative to the root it was found under; empty where another
            program stored the chunk, and names none.
        start: offset of the chunk's first code point in the document; None likewise.
        end: offset behind its last code point; None likewise.
        text: the chunk.
    """

    score: float
    source: str
    start: int | None
    end: int | None
    text: str

    def as_dict(self) -> dict[str, Any]:
        """Give the fields by name."""
        return asdict(self)


def search(  # noqa: PLR0913 - the public surface: all options, by keyword
    query: str,
    *,
    target: SinkOptions,
    k: int = 5,
    model: str | None = None,
    heads: str | None = None,
    long_model: str | None = None,
    rerank: str | None = None,
    fetch_k: int | None = None,
    ranking: RankingOptions | None = None,
    filters: Filter | Sequence[str] = (),
) -> list[Found]:
    """Find the chunks nearest to a query, best first.

    Args:
        query: the question; the model's query prefix is put before it.
        target: the collection.
        k: most chunks to return.
        model: where the collection's model is now; None takes the name it had at ingest.
        heads: where its heads file is now, likewise.
        long_model: where its model for long documents is now, likewise.
        rerank: model that puts the nearest chunks into its own order; None leaves theirs.
        fetch_k: nearest chunks for it to choose from; None takes 4 k, and 20 at least.
        ranking: how the collection's vectors are used; None takes all, fused by their places.

        filters: what chunks must meet: Qdrant's filter, or conditions such as "author=Anna" or
            "page>=3".

    Raises:
        CollectionError: there is no such collection, or another model made it.
        ModelError: `rerank` is no reranker.
        SinkError: the store failed.
    """
    limit = n_candidates(k, fetch_k=fetch_k, reranks=rerank is not None)
    with closing(Collection(target, model=model, heads=heads, long_model=long_model)) as collection:
        condition = filters if isinstance(filters, Filter) else collection.parse_filter(filters)
        hits = collection.nearest(
            query,
            limit=limit,
            query_filter=condition,
            ranking=ranking or RankingOptions(),
        )
    found = [_found(hit) for hit in hits]
    return found if rerank is None else _reranked(query, found, model=rerank)[:k]


def _reranked(query: str, found: list[Found], *, model: str) -> list[Found]:
    """Return the chunks by the scores of a reranker, best first."""
    with GGUFReranker(model) as reranker:
        scores = reranker.rerank(query, [chunk.text for chunk in found])
    rescored = [
        replace(chunk, score=float(score)) for chunk, score in zip(found, scores, strict=True)
    ]
    return sorted(rescored, key=lambda chunk: -chunk.score)


def _found(hit: Hit) -> Found:
    metadata = cast("dict[str, Any]", hit.payload.get("metadata") or {})
    return Found(
        score=hit.score,
        source=str(metadata.get("source", "")),
        start=metadata.get("start"),
        end=metadata.get("end"),
        text=str(hit.payload.get("page_content", "")),
    )
