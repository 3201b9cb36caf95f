"""CorralRetriever among LangChain's own parts: chains, callbacks, async, threads, indexing."""

import asyncio
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest
import tiny_models
from langchain_classic.retrievers import ContextualCompressionRetriever, EnsembleRetriever
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.indexing import InMemoryRecordManager, aindex, index
from langchain_core.language_models.fake_chat_models import ParrotFakeChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnablePassthrough
from langchain_qdrant import QdrantVectorStore
from qdrant_client import models
from retrieving import BERT, QUERY, TEXTS, texts_of, write
from tiny_models import Shape

from corral import CorralRetriever, GGUFEmbeddings
from corral_sinks import Record, SinkError, SinkOptions
from corral_sinks.qdrant import QdrantSink, connect

QUERIES = [f"{QUERY} {n}" for n in range(16)]
LONGEST_BLOCK = 0.05
"""Seconds that an event loop may stand still by our doing."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("db") / "db"
    write(tmp_path_factory.mktemp("docs"), path=str(folder))
    with closing(connect(path=folder)) as client:
        yield {"client": client, "collection": "docs"}


@pytest.fixture(scope="module")
def retriever(place):
    with CorralRetriever(**place, k=3) as opened:
        yield opened


@pytest.fixture(scope="module")
def serial(retriever):
    """What the queries find, asked one after the other."""
    return [retriever.invoke(query) for query in QUERIES]


class ByLength(BaseDocumentCompressor):
    """Puts the longest document first, and keeps the callbacks that it is given."""

    callbacks: list = []  # noqa: RUF012 - pydantic copies it

    def compress_documents(self, documents, query, callbacks=None):
        del query
        self.callbacks.append(callbacks)
        return sorted(documents, key=lambda document: -len(document.page_content))


class Fixed(BaseRetriever):
    """Gives the same document for every query."""

    def _get_relevant_documents(self, query, *, run_manager):
        del query, run_manager
        return [Document("fixed")]


class TestInsideOthers:
    def test_a_compression_retriever(self, retriever):
        outer = ContextualCompressionRetriever(base_retriever=retriever, base_compressor=ByLength())
        found = outer.invoke(QUERY)
        assert sorted(texts_of(found)) == sorted(texts_of(retriever.invoke(QUERY)))
        assert found[0].page_content == max(texts_of(found), key=len)

    async def test_a_compression_retriever_awaited(self, retriever):
        outer = ContextualCompressionRetriever(base_retriever=retriever, base_compressor=ByLength())
        assert await outer.ainvoke(QUERY) == outer.invoke(QUERY)

    @pytest.mark.parametrize("id_key", [None, "_id"])
    def test_an_ensemble_retriever_fuses_by_text_or_id(self, retriever, id_key):
        outer = EnsembleRetriever(
            retrievers=[retriever, retriever.model_copy(update={"k": 5})], id_key=id_key
        )
        found = outer.invoke(QUERY)
        assert texts_of(found)[:3] == texts_of(retriever.invoke(QUERY))
        assert sorted(texts_of(found)) == sorted(TEXTS.values())

    async def test_an_ensemble_retriever_with_a_stranger_awaited(self, retriever):
        outer = EnsembleRetriever(retrievers=[retriever, Fixed()])
        assert {"fixed", *texts_of(retriever.invoke(QUERY))} == set(
            texts_of(await outer.ainvoke(QUERY))
        )

    def test_a_chain_puts_the_chunks_before_the_chat_model(self, retriever):
        prompt = ChatPromptTemplate.from_template("{context}\n\nQuestion: {question}")
        chain = (
            {
                "context": retriever | (lambda found: "\n".join(texts_of(found))),
                "question": RunnablePassthrough(),
            }
            | prompt
            | ParrotFakeChatModel()
            | StrOutputParser()
        )
        said = "\n".join(texts_of(retriever.invoke(QUERY))) + f"\n\nQuestion: {QUERY}"
        assert chain.invoke(QUERY) == said
        assert asyncio.run(chain.ainvoke(QUERY)) == said


class Recorder(BaseCallbackHandler):
    """Keeps what a handler is told of retrievers."""

    def __init__(self):
        self.events = []

    def on_retriever_start(self, serialized, query, **more):
        del serialized
        self.events.append(("start", query, more))

    def on_retriever_end(self, documents, **more):
        self.events.append(("end", documents, more))

    def on_retriever_error(self, error, **more):
        self.events.append(("error", error, more))


class AsyncRecorder(AsyncCallbackHandler):
    """The same, awaited."""

    def __init__(self):
        self.events = []

    async def on_retriever_start(self, serialized, query, **more):
        del serialized
        self.events.append(("start", query, more))

    async def on_retriever_end(self, documents, **more):
        self.events.append(("end", documents, more))

    async def on_retriever_error(self, error, **more):
        self.events.append(("error", error, more))


class TestCallbacks:
    def test_a_handler_hears_start_and_end_with_tags_metadata_and_name(self, place):
        recorder = Recorder()
        tagged = CorralRetriever(**place, tags=["own"], metadata={"mine": 1})
        found = tagged.invoke(
            QUERY,
            {
                "callbacks": [recorder],
                "tags": ["given"],
                "metadata": {"theirs": 2},
                "run_name": "look-up",
            },
        )
        (started, query, start), (ended, documents, end) = recorder.events
        assert (started, query, ended, documents) == ("start", QUERY, "end", found)
        assert set(start["tags"]) == {"own", "given"}
        assert start["metadata"].items() >= {"mine": 1, "theirs": 2}.items()
        assert start["name"] == "look-up"
        assert start["run_id"] == end["run_id"]

    async def test_an_async_handler_hears_the_same(self, retriever):
        recorder = AsyncRecorder()
        found = await retriever.ainvoke(QUERY, {"callbacks": [recorder], "tags": ["given"]})
        (started, query, start), (ended, documents, _) = recorder.events
        assert (started, query, ended, documents) == ("start", QUERY, "end", found)
        assert start["tags"] == ["given"]
        assert start["name"] == "CorralRetriever"

    def test_a_failure_reaches_the_handler_and_the_caller(self, place):
        recorder = Recorder()
        closed = CorralRetriever(**place)
        closed.close()
        with pytest.raises(Exception, match="closed") as raised:
            closed.invoke(QUERY, {"callbacks": [recorder]})
        assert [(name, what) for name, what, _ in recorder.events] == [
            ("start", QUERY),
            ("error", raised.value),
        ]

    async def test_a_failure_reaches_an_async_handler(self, retriever):
        recorder = AsyncRecorder()
        with pytest.raises(SinkError):
            await retriever.ainvoke(QUERY, {"callbacks": [recorder]}, filter="no filter")
        assert [name for name, _, _ in recorder.events] == ["start", "error"]

    async def test_a_reranker_is_a_child_of_the_retrievers_run(self, place):
        recorder = Recorder()
        reranked = CorralRetriever(**place, reranker=ByLength())
        reranked.invoke(QUERY, {"callbacks": [recorder]})
        await reranked.ainvoke(QUERY, {"callbacks": [recorder]})
        runs = [more["run_id"] for name, _, more in recorder.events if name == "start"]
        assert len(runs) == 2
        assert [given.parent_run_id for given in reranked.reranker.callbacks] == runs


def comparable(found):
    """What must be the same however a query was asked: the chunks and their order."""
    return [document.id for document in found]


def scores_of(several):
    return np.array([[document.metadata["score"] for document in found] for found in several])


class TestTogether:
    def check(self, several, serial):
        assert list(map(comparable, several)) == list(map(comparable, serial))
        np.testing.assert_allclose(scores_of(several), scores_of(serial), atol=1e-5)

    def test_the_queries_are_not_all_alike(self, serial):
        assert len(np.unique(scores_of(serial)[:, 0])) > 1

    def test_eight_threads_get_the_serial_result(self, retriever, serial):
        with ThreadPoolExecutor(8) as threads:
            self.check(list(threads.map(retriever.invoke, QUERIES)), serial)

    def test_a_batch_gets_the_serial_result(self, retriever, serial):
        self.check(retriever.batch(QUERIES), serial)

    async def test_an_awaited_batch_gets_the_serial_result(self, retriever, serial):
        self.check(await retriever.abatch(QUERIES), serial)

    async def test_many_awaited_at_once_get_the_serial_result(self, retriever, serial):
        self.check(await asyncio.gather(*map(retriever.ainvoke, QUERIES)), serial)

    async def test_reranked_and_awaited_they_do_too(self, place):
        reranked = CorralRetriever(**place, reranker=ByLength(), k=2)
        serial = [reranked.invoke(query) for query in QUERIES]
        self.check(await reranked.abatch(QUERIES), serial)


class TestEventLoop:
    @pytest.mark.parametrize("step", ["embed_query_row", "query_points", "compress_documents"])
    async def test_it_runs_while_a_step_works(self, place, step, monkeypatch):
        retriever = CorralRetriever(**place, reranker=ByLength())
        loop, begun, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
        owner = {
            "embed_query_row": retriever._opened._embedder._embeddings,
            "query_points": place["client"],
            "compress_documents": ByLength,
        }[step]
        work = getattr(owner, step)

        def work_when_told(*arguments, **options):
            loop.call_soon_threadsafe(begun.set)
            assert go_on.wait(30), "the event loop was blocked"
            return work(*arguments, **options)

        monkeypatch.setattr(owner, step, work_when_told)
        asking = asyncio.create_task(retriever.ainvoke(QUERY))
        await asyncio.wait_for(begun.wait(), 30)
        go_on.set()
        assert await asking

    async def test_ten_thousand_embedded_points_hold_it_no_longer_than_allowed(self, tmp_path):
        wide = tiny_models.bert(shape=Shape(n_embd=384))
        place = write(new_folder(tmp_path, "docs"), model=wide, path=str(tmp_path / "db"))
        add_points(place, 10_000, size=384)
        with CorralRetriever(**place, k=20) as retriever:
            assert len(await retriever.ainvoke(QUERY)) == 20
            # Other processes hold the loop up as well, but not each time.
            for _ in range(100):
                if await longest_block(retriever.abatch(QUERIES)) < LONGEST_BLOCK:
                    return
        pytest.fail("it was held up each time")


def new_folder(parent, name):
    """Make a folder."""
    folder = parent / name
    folder.mkdir()
    return folder


def add_points(place, n_points, *, size):
    """Store random chunks of 800 characters beside those that are there."""
    vectors = np.random.default_rng(0).normal(size=(n_points, size)).astype(np.float32)
    with closing(QdrantSink(SinkOptions(**place))) as sink:
        sink.upsert(
            [
                Record(
                    id=str(uuid.UUID(int=n)),
                    vectors={"dense": vector},
                    payload={
                        "page_content": "wool " * 160,
                        "metadata": {"source": f"{n % 100}.md", "start": n, "end": n + 800},
                    },
                )
                for n, vector in enumerate(vectors)
            ]
        )


async def longest_block(work):
    """Await it, and return the longest time in seconds that the event loop stood still."""
    longest, task = 0.0, asyncio.ensure_future(work)
    while not task.done():
        before = time.perf_counter()
        await asyncio.sleep(0.001)
        longest = max(longest, time.perf_counter() - before - 0.001)
    await task
    return longest


class TestIndexing:
    """langchain_core's index() over QdrantVectorStore and an embedded collection."""

    @pytest.fixture
    def store(self, tmp_path):
        with closing(connect(path=tmp_path / "db")) as client, GGUFEmbeddings(BERT.path) as model:
            vectors = models.VectorParams(size=model.dim, distance=models.Distance.COSINE)
            client.create_collection("notes", vectors_config={"dense": vectors})
            yield QdrantVectorStore(
                client=client, collection_name="notes", embedding=model, vector_name="dense"
            )

    @pytest.fixture
    def records(self):
        manager = InMemoryRecordManager("notes")
        manager.create_schema()
        return manager

    OPTIONS = {  # noqa: RUF012 - read alone
        "cleanup": "full",
        "source_id_key": "source",
        "key_encoder": lambda document: str(
            uuid.uuid5(uuid.NAMESPACE_URL, document.metadata["source"] + document.page_content)
        ),
    }

    def documents(self, *skipped):
        return [
            Document(text, metadata={"source": name})
            for name, text in TEXTS.items()
            if name not in skipped
        ]

    def test_a_second_run_adds_nothing(self, store, records):
        first = index(self.documents(), records, store, **self.OPTIONS)
        second = index(self.documents(), records, store, **self.OPTIONS)
        assert first == {"num_added": 5, "num_updated": 0, "num_skipped": 0, "num_deleted": 0}
        assert second == {"num_added": 0, "num_updated": 0, "num_skipped": 5, "num_deleted": 0}
        assert store.client.count("notes").count == 5

    async def test_awaited_it_adds_nothing_either(self, store, records):
        first = await aindex(self.documents(), records, store, **self.OPTIONS)
        second = await aindex(self.documents(), records, store, **self.OPTIONS)
        assert (first["num_added"], second["num_added"]) == (5, 0)
        assert store.client.count("notes").count == 5

    def test_what_is_changed_is_replaced_and_what_is_gone_is_deleted(self, store, records):
        index(self.documents(), records, store, **self.OPTIONS)
        changed = [
            *self.documents("wool.txt", "dogs.txt"),
            Document("Wool is shorn in May.", metadata={"source": "wool.txt"}),
        ]
        done = index(changed, records, store, **self.OPTIONS)
        assert done == {"num_added": 1, "num_updated": 0, "num_skipped": 3, "num_deleted": 2}
        held = texts_of(store.similarity_search(QUERY, k=9))
        assert sorted(held) == sorted(texts_of(changed))
