"""A collection that `ingest` wrote, opened with the model that made it, and asked."""

import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from corral.embedders import Embedder
from corral.embeddings import GGUFEmbeddings
from corral.errors import CollectionError, ModelError, UsageError
from corral.fingerprint import Fingerprint
from corral.models import resolve
from corral.ranking import RankingOptions, ranking_of
from corral.recipe import Recipe, long_fingerprint, require_same_heads
from corral.routing import LONG, Router
from corral_sinks import Hit, Schema, SinkOptions
from corral_sinks.qdrant import Filter, QdrantClient, QdrantSink, search_params

__all__ = [
    "Collection",
    "Models",
    "embeddings_for",
    "fingerprint_in",
    "model_options_of",
    "n_candidates",
    "open_models",
    "schema_in",
]

_FILE_FIELD: Final = "model_sha256"
_FETCH_TIMES: Final = 4
_FETCH_LEAST: Final = 20
_MOST_HITS: Final = 100_000
_ALL_VECTORS: Final = RankingOptions()


class Collection:
    """A collection that `ingest` wrote, with the model that made it.

    Any number of threads may ask it. Close it; else it is closed when it goes.

    Args:
        target: the collection, and where it is; url and path are None with a client. Its tenant is
            required where the chunks belong to tenants, and nothing of others is ever found.
        client: use this one, and leave it open at the end; None connects to url or path.
        embeddings: the collection's model, left open at the end; None opens it by the fingerprint.
        model: where that model is now; None takes the name it had at ingest.
        heads: where the collection's heads file is now, likewise.
        long_model: where its model for long documents is now, likewise.

    Raises:
        CollectionError: there is no such collection, it is not corral's, another model or other
            settings made it (the fields that differ are listed), or a tenant is missing.
        ModelError: the model is not there, or cannot be used.
        SinkError: the store failed.
    """

    def __init__(
        self,
        target: SinkOptions,
        *,
        client: QdrantClient | None = None,
        embeddings: GGUFEmbeddings | None = None,
        model: str | None = None,
        heads: str | None = None,
        long_model: str | None = None,
    ) -> None:
        """Open it."""
        with ExitStack() as opened:
            self._sink = QdrantSink(target, client=client)
            opened.callback(self._sink.close)
            held = fingerprint_in(self._sink, target)
            held.require_tenant(target.tenant, collection=target.collection)
            self._embedder = open_models(
                held,
                opened,
                collection=target.collection,
                embeddings=embeddings,
                model=model,
                heads=heads,
                long_model=long_model,
            ).for_queries()
            self._close = weakref.finalize(self, opened.pop_all().close)

    def nearest(
        self,
        query: str,
        *,
        limit: int,
        query_filter: Filter | None = None,
        score_threshold: float | None = None,
        ranking: RankingOptions = _ALL_VECTORS,
    ) -> Sequence[Hit]:
        """Return the chunks nearest to a query, best first.

        Their scores are cosine similarities, or those of the fusion where the collection has
        several vectors to find chunks by.

        Args:
            query: the question; the model's query prefix is put before it.
            limit: most chunks to return.
            query_filter: that they must meet; None takes all.
            score_threshold: least score; None takes all.
            ranking: how the vectors are used.

        Raises:
            UsageError: an option of the ranking is out of range.
            EngineError: the model failed, or is closed.
            SinkError: the store failed.
        """
        specs = self._embedder.specs
        asked = ranking_of(
            self._embedder.embed_query(query), [*specs.dense, *specs.sparse], ranking, limit=limit
        )
        if asked is None:
            return []
        return self._sink.rank(
            asked,
            limit=limit,
            query_filter=query_filter,
            score_threshold=score_threshold,
            search_params=search_params(
                exact=ranking.exact,
                rescore=ranking.rescore,
                oversampling=ranking.oversampling,
            ),
        )

    def parse_filter(self, texts: Sequence[str]) -> Filter | None:
        """Read conditions such as "author=Anna", which must all be met, as QdrantSink does."""
        return self._sink.parse_filter(texts)

    def close(self) -> None:
        """Let go of what was opened here; twice is harmless."""
        self._close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """The models that made a collection, open.

    Args:
        held: the collection's fingerprint.
        collection: its name, for errors.
        recipe: which vectors it has.
        embeddings: the model.
        router: with the second one, where there is one.
    """

    held: Fingerprint
    collection: str
    recipe: Recipe
    embeddings: GGUFEmbeddings
    router: Router | None

    def for_queries(self) -> Embedder:
        """Make what computes the vectors of queries.

        Raises:
            CollectionError: the heads are not those that made the collection.
        """
        return self._checked(self.recipe.for_queries(self.embeddings, self.router))

    def for_chunks(self) -> Embedder:
        """Make what computes the vectors of chunks; as `for_queries`."""
        return self._checked(self.recipe.embedder(self.embeddings, self.router))

    def _checked(self, embedder: Embedder) -> Embedder:
        require_same_heads(self.held, embedder, collection=self.collection)
        return embedder


def open_models(
    held: Fingerprint,
    opened: ExitStack,
    *,
    collection: str,
    embeddings: GGUFEmbeddings | None = None,
    model: str | None = None,
    heads: str | None = None,
    long_model: str | None = None,
    for_chunks: bool = False,
) -> Models:
    """Open the models that made a collection.

    Args:
        held: the collection's fingerprint.
        opened: closes what is opened here.
        collection: its name, for errors.
        embeddings: its model, left open; None opens it.
        model: as for Collection.
        heads: as for Collection.
        long_model: as for Collection.
        for_chunks: whether they are to compute the vectors of chunks, too, and not of queries
            alone, which no document surrounds.

    Raises:
        CollectionError: a model is not the one that made the collection.
        ModelError: a model is not there, or cannot be used.
    """
    recipe = Recipe.of(held, heads=heads, long_model=long_model)
    if embeddings is None:
        token_rows = recipe.token_rows if for_chunks else recipe.reads_out
        embeddings = embeddings_for(held, collection=collection, model=model, token_rows=token_rows)
        opened.callback(embeddings.close)
    else:
        _require_maker(held, embeddings, collection=collection)
    router = None
    if recipe.long_model is not None:
        far = _far_for(held, recipe.long_model, collection=collection)
        opened.callback(far.close)
        router = Router(embeddings, far)
    return Models(
        held=held, collection=collection, recipe=recipe, embeddings=embeddings, router=router
    )


def embeddings_for(
    fingerprint: Fingerprint,
    *,
    collection: str,
    model: str | None = None,
    token_rows: bool = False,
) -> GGUFEmbeddings:
    """Open the model that made a collection, with the settings it had.

    Args:
        fingerprint: the collection's.
        collection: its name, for errors.
        model: where the model is now; None takes the name it had.
        token_rows: as for GGUFEmbeddings.

    Raises:
        CollectionError: the model that is found is another one.
    """
    name = model or fingerprint.model
    _require_file(fingerprint, name, collection=collection)
    embeddings = GGUFEmbeddings(name, token_rows=token_rows, **model_options_of(fingerprint))
    try:
        _require_maker(fingerprint, embeddings, collection=collection)
    except CollectionError:
        embeddings.close()
        raise
    return embeddings


def model_options_of(fingerprint: Fingerprint) -> dict[str, Any]:
    """Give the options of GGUFEmbeddings that a collection was made with."""
    fields = fingerprint.fields
    return {
        "dim": fields["dim"],
        "force_dim": True,
        "pooling_type": fields["pooling_type"],
        "attention": "causal" if fields["causal"] else "non-causal",
        "over_length": fields["over_length"],
        "normalize": fields["normalize"],
        "query_prefix": fields["query_prefix"],
        "document_prefix": fields["document_prefix"],
    }


def n_candidates(k: int, *, fetch_k: int | None, reranks: bool) -> int:
    """Return how many chunks to ask a collection for, of which k are wanted.

    Args:
        k: most chunks that are wanted.
        fetch_k: nearest chunks for a reranker to choose from; None takes 4 k, and 20 at least.
        reranks: whether there is a reranker.

    Raises:
        UsageError: a number is out of range, or fetch_k has no reranker.
    """
    if k < 1:
        raise UsageError(f"k is {k}; it must be at least 1")
    if max(k, fetch_k or 0) > _MOST_HITS:
        raise UsageError(
            f"{max(k, fetch_k or 0):,} chunks are asked for; a search gives at most {_MOST_HITS:,}"
        )
    if not reranks:
        if fetch_k is not None:
            raise UsageError("fetch_k is for a reranker to choose from, and there is none")
        return k
    if fetch_k is None:
        return max(_FETCH_TIMES * k, _FETCH_LEAST)
    if fetch_k < k:
        raise UsageError(f"fetch_k is {fetch_k} and k is {k}; a reranker chooses k of fetch_k")
    return fetch_k


def fingerprint_in(sink: QdrantSink, target: SinkOptions) -> Fingerprint:
    """Read the fingerprint of a collection.

    Raises:
        CollectionError: there is no such collection, or it is not corral's.
    """
    return Fingerprint.from_metadata(schema_in(sink, target).metadata, collection=target.collection)


def schema_in(sink: QdrantSink, target: SinkOptions) -> Schema:
    """Ask what a collection is made of.

    Raises:
        CollectionError: there is no such collection.
    """
    schema = sink.schema()
    if schema is None:
        place = target.url or target.path or "the given client"
        raise CollectionError(
            f"there is no collection {target.collection!r} at {place}; `ingest` makes one"
        )
    return schema


def _far_for(held: Fingerprint, model: str, *, collection: str) -> GGUFEmbeddings:
    """Open a collection's model for long documents.

    Raises:
        ModelError: it is not there.
        CollectionError: the model that is found is another one.
    """
    try:
        return embeddings_for(long_fingerprint(held, model), collection=collection)
    except ModelError as error:
        reason = str(error).rstrip(".")
        raise ModelError(
            f"the long documents of collection {collection!r} (vector {LONG}) were embedded by "
            f"{model}, which cannot be opened: {reason}. Say where it is now: long_model=, on the "
            "command line --long-model MODEL"
        ) from error


def _require_file(held: Fingerprint, model: str, *, collection: str) -> None:
    """Refuse another model's file before it is opened with settings that may not be for it."""
    wanted, found = (
        Fingerprint(model=model, fields={_FILE_FIELD: sha256})
        for sha256 in (held.fields[_FILE_FIELD], resolve(model).sha256)
    )
    wanted.require_equal(found, collection=collection)


def _require_maker(held: Fingerprint, embeddings: GGUFEmbeddings, *, collection: str) -> None:
    """Refuse a model, or settings of one, that did not make the collection."""
    settings = Fingerprint(model=embeddings.model, fields=embeddings.settings)
    comparable = {name: held.fields.get(name) for name in settings.fields}
    Fingerprint(model=held.model, fields=comparable).require_equal(settings, collection=collection)
