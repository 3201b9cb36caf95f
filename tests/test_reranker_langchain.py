"""GGUFReranker as LangChain's users meet it."""

import asyncio
import threading

import numpy as np
import pytest
import tiny_models
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.retrievers import BaseRetriever
from reranking import documents_of, reranker

import corral
from corral import GGUFReranker

QUERY = "which fish is in the harbour"
MODEL = tiny_models.qwen3(pooling="rank")
TEXTS = documents_of(5, 12, 3, 40, 8, 20)
DOCUMENTS = [
    Document(text, id=f"id-{i}", metadata={"source": f"{i}.md", "place": {"page": i}})
    for i, text in enumerate(TEXTS)
]


@pytest.fixture(scope="module")
def opened():
    with reranker(MODEL.path) as model:
        yield model


class Fixed(BaseRetriever):
    """Gives the same documents for every query."""

    documents: list[Document]

    def _get_relevant_documents(self, query, *, run_manager):
        del query, run_manager
        return self.documents


def test_it_is_found_where_the_docs_import_it_from():
    assert corral.GGUFReranker is GGUFReranker
    assert issubclass(GGUFReranker, BaseDocumentCompressor)


def test_documents_come_back_best_first_with_their_scores(opened):
    scores = opened.rerank(QUERY, TEXTS)
    found = opened.compress_documents(DOCUMENTS, QUERY)
    order = np.argsort(-scores, kind="stable")
    assert [document.page_content for document in found] == [TEXTS[i] for i in order]
    np.testing.assert_allclose(
        [document.metadata["relevance_score"] for document in found], scores[order], atol=1e-4
    )
    assert all(type(document.metadata["relevance_score"]) is float for document in found)


def test_metadata_and_ids_are_kept_and_nothing_of_the_callers_is_changed(opened):
    before = [document.model_copy(deep=True) for document in DOCUMENTS]
    found = opened.compress_documents(DOCUMENTS, QUERY)
    assert before == DOCUMENTS
    for document in found:
        number = int(document.id.removeprefix("id-"))
        metadata = dict(document.metadata)
        assert 0 < metadata.pop("relevance_score") < 1
        assert metadata == DOCUMENTS[number].metadata
        assert document is not DOCUMENTS[number]


def test_equal_texts_stay_apart_and_in_their_order(opened):
    twins = [Document("the fish", metadata={"n": n}) for n in range(5)]
    found = opened.compress_documents(twins, QUERY)
    assert len({document.metadata["relevance_score"] for document in found}) == 1
    assert [document.metadata["n"] for document in found] == list(range(5))


@pytest.mark.parametrize("top_n", [1, 3, 100])
def test_top_n_keeps_the_best(opened, top_n):
    best = opened.compress_documents(DOCUMENTS, QUERY)
    with reranker(MODEL.path, top_n=top_n) as few:
        found = few.compress_documents(DOCUMENTS, QUERY)
    assert [document.id for document in found] == [document.id for document in best[:top_n]]


@pytest.mark.parametrize("score", ["probability", "raw"])
def test_min_score_leaves_out_what_scores_less_in_the_scale_of_score(score):
    with reranker(MODEL.path, score=score) as every:
        scores = sorted(every.rerank(QUERY, TEXTS))
        middle = float(scores[2] + scores[3]) / 2
    with reranker(MODEL.path, score=score, min_score=middle) as some:
        found = some.compress_documents(DOCUMENTS, QUERY)
    assert len(found) == 3
    assert all(document.metadata["relevance_score"] >= middle for document in found)


def test_no_documents_give_none(opened):
    assert opened.compress_documents([], QUERY) == []


def test_a_cut_document_is_marked_and_an_old_mark_goes(opened):
    old = {"relevance_truncated": True, "relevance_score": 7.0}
    documents = [Document("fish", metadata=dict(old)), Document("fish " * 2_000)]
    found = opened.compress_documents(documents, QUERY)
    marks = {len(document.page_content): document.metadata for document in found}
    assert "relevance_truncated" not in marks[4]
    assert marks[4]["relevance_score"] < 1
    assert marks[10_000]["relevance_truncated"] is True


async def test_the_async_twin_gives_the_same(opened):
    found = await opened.acompress_documents(DOCUMENTS, QUERY)
    assert found == opened.compress_documents(DOCUMENTS, QUERY)


async def test_the_event_loop_runs_while_the_model_does(opened, monkeypatch):
    engine = opened._parts.opened.engine
    run, go_on = engine.run, threading.Event()
    loop, begun = asyncio.get_running_loop(), asyncio.Event()

    def run_when_told(sequences):
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(30), "the event loop was blocked"
        return run(sequences)

    monkeypatch.setattr(engine, "run", run_when_told)
    scoring = asyncio.create_task(opened.acompress_documents(DOCUMENTS, QUERY))
    await asyncio.wait_for(begun.wait(), 30)
    go_on.set()
    assert len(await scoring) == len(DOCUMENTS)


async def test_many_awaited_at_once_give_the_serial_result(opened):
    queries = [f"{QUERY} {n}" for n in range(8)]
    together = await asyncio.gather(
        *(opened.acompress_documents(DOCUMENTS, query) for query in queries)
    )
    for query, found in zip(queries, together, strict=True):
        serial = opened.compress_documents(DOCUMENTS, query)
        assert [document.id for document in found] == [document.id for document in serial]


def test_it_works_inside_a_compression_retriever(opened):
    retriever = ContextualCompressionRetriever(
        base_retriever=Fixed(documents=DOCUMENTS), base_compressor=opened
    )
    found = retriever.invoke(QUERY)
    assert found == opened.compress_documents(DOCUMENTS, QUERY)


async def test_it_works_inside_a_compression_retriever_awaited(opened):
    retriever = ContextualCompressionRetriever(
        base_retriever=Fixed(documents=DOCUMENTS), base_compressor=opened
    )
    assert await retriever.ainvoke(QUERY) == opened.compress_documents(DOCUMENTS, QUERY)
