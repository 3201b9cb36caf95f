"""CorralRetriever: what `ingest` stored, found again by the model that made it, for LangChain."""

import os
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Self, cast

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables.config import run_in_executor
from pydantic import ConfigDict, PrivateAttr

from corral.closing import Closing
from corral.collection import Collection, n_candidates
from corral.embeddings import GGUFEmbeddings
from corral.errors import UsageError
from corral.ranking import RankingOptions
from corral_sinks import Hit, SinkOptions
from corral_sinks.qdrant import EmbeddedQdrant, Filter, QdrantClient

__all__ = ["CorralRetriever"]

_OPENS: Final = frozenset({
    "client", "collection", "embeddings", "heads", "long_model", "model", "path", "tenant", "url",
})  # fmt: skip
"""Fields that say what is opened with the object."""


class CorralRetriever(BaseRetriever, Closing):
    """The chunks of an ingested collection that are nearest to a query, best first.

    A collection with a sparse vector, too, is searched by both, and their finds are fused.

    A document's metadata is all that was stored of the chunk, and `score` (its cosine similarity to
    the query, or the fusion's score), `_id` and `_collection_name`, as langchain-qdrant names them;
    its `id` is the point's. A reranker adds its own, such as `relevance_score`.

    Collection and model are opened with the object, and the fingerprint is checked then. Usable
    from many threads at once. Use it as a context manager, or call `close`; else what it opened is
    closed when it goes. What was given open stays open.

    Args:
        collection: name of the collection.
        client: an open Qdrant; or
        url: address of a server; or
        path: folder of an embedded collection, held by this object alone until it is closed.
        embeddings: the collection's model; None opens it with the settings that the collection
            was made with.
        tenant: whose chunks alone are found; required where the chunks belong to tenants.
        model: where that model is now, as for GGUFEmbeddings; None takes the name it had at ingest.
        heads: where the collection's heads file is now, likewise.
        long_model: where its model for long documents is now, likewise.
        k: most documents to return; `invoke(query, k=...)` overrides it.
        filter: that chunks must meet; `invoke(query, filter=...)` overrides it.
        score_threshold: least cosine similarity, or score of the fusion, before any reranking;
            None takes all.
        ranking: how the collection's vectors are used.
        reranker: puts the nearest chunks into its own order.
        fetch_k: nearest chunks for it to choose k of; None takes 4 k, and 20 at least.

    Raises:
        UsageError: fields that cannot go together, or a number out of range.
        CollectionError: there is no such collection, it is not corral's, another model or other
            settings made it (the fields that differ are listed), or the tenant is missing.
        ModelError: the model is not there, or cannot be used.
        SinkError: the store failed.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid", frozen=True)

    collection: str
    client: QdrantClient | EmbeddedQdrant | None = None
    url: str | None = None
    path: str | os.PathLike[str] | None = None
    embeddings: GGUFEmbeddings | None = None
    tenant: str | None = None
    model: str | None = None
    heads: str | None = None
    long_model: str | None = None
    k: int = 4
    filter: Filter | None = None
    score_threshold: float | None = None
    ranking: RankingOptions = RankingOptions()
    reranker: BaseDocumentCompressor | None = None
    fetch_k: int | None = None
    _opened: Collection = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:  # noqa: ANN401, ARG002 - pydantic's signature
        """Check the fields, and open collection and model."""
        self._n_candidates(self.k)
        given = [name for name in ("client", "url", "path") if getattr(self, name) is not None]
        if len(given) != 1:
            raise UsageError(
                "a retriever reads from a client, a url or a path, one of them; got "
                f"{' and '.join(given) or 'none'}"
            )
        if self.embeddings is not None and self.model is not None:
            raise UsageError("embeddings are the model, opened; give them or model, not both")
        self._opened = Collection(
            SinkOptions(
                collection=self.collection,
                url=self.url,
                path=None if self.path is None else os.fspath(self.path),
                tenant=self.tenant,
            ),
            # An EmbeddedQdrant stands in for one.
            client=cast("QdrantClient | None", self.client),
            embeddings=self.embeddings,
            model=self.model,
            heads=self.heads,
            long_model=self.long_model,
        )

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Give the same retriever with other fields, over what this one opened.

        Raises:
            UsageError: a field says what is opened, as the tenant does: make another retriever.
        """
        if fixed := sorted(_OPENS.intersection(update or ())):
            raise UsageError(
                f"{' and '.join(fixed)} of a retriever cannot change in a copy, which reads what "
                "this one has opened. Make another CorralRetriever"
            )
        return super().model_copy(update=update, deep=deep)

    def close(self) -> None:
        """Let go of what was opened here; twice is harmless."""
        self._opened.close()

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        k: int | None = None,
        filter: Filter | None = None,  # noqa: A002 - LangChain's name
    ) -> list[Document]:
        """Find documents; `k` and `filter` override the fields."""
        k = self.k if k is None else k
        found = self._nearest(query, k, filter)
        if self.reranker is None:
            return found
        callbacks = run_manager.get_child()
        return list(self.reranker.compress_documents(found, query, callbacks=callbacks))[:k]

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        k: int | None = None,
        filter: Filter | None = None,  # noqa: A002 - LangChain's name
    ) -> list[Document]:
        """Find documents; `k` and `filter` override the fields."""
        k = self.k if k is None else k
        found = await run_in_executor(None, partial(self._nearest, query, k, filter))
        if self.reranker is None:
            return found
        callbacks = run_manager.get_child()
        return list(await self.reranker.acompress_documents(found, query, callbacks=callbacks))[:k]

    def _nearest(self, query: str, k: int, query_filter: Filter | None) -> list[Document]:
        hits = self._opened.nearest(
            query,
            limit=self._n_candidates(k),
            query_filter=self.filter if query_filter is None else query_filter,
            score_threshold=self.score_threshold,
            ranking=self.ranking,
        )
        return [self._document(hit) for hit in hits]

    def _n_candidates(self, k: int) -> int:
        return n_candidates(k, fetch_k=self.fetch_k, reranks=self.reranker is not None)

    def _document(self, hit: Hit) -> Document:
        metadata = dict(cast("dict[str, Any]", hit.payload.get("metadata") or {}))
        metadata |= {"score": hit.score, "_id": hit.id, "_collection_name": self.collection}
        text = str(hit.payload.get("page_content", ""))
        return Document(page_content=text, metadata=metadata, id=hit.id)
