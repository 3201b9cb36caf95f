"""CorralRetriever: what it finds, what it refuses, what it closes."""

import gc
from contextlib import closing

import numpy as np
import pytest
import tiny_models
from langchain_core.documents import BaseDocumentCompressor
from langchain_tests.integration_tests import RetrieversIntegrationTests
from pydantic import ValidationError
from qdrant_client import AsyncQdrantClient
from qdrant_stand_in import QdrantStandIn
from retrieving import BERT, PREFIX, QUERY, TEXTS, source_is, texts_of, write

import corral
from corral import CorralRetriever, GGUFEmbeddings
from corral.errors import CollectionError, EngineError, ModelNotFoundError, UsageError
from corral.search import search
from corral_sinks import Schema, SinkError, SinkOptions, SinkUnavailableError, VectorParams
from corral_sinks.qdrant import QdrantSink, connect


@pytest.fixture(scope="module")
def embedded(tmp_path_factory):
    """An open client of an embedded collection, and its name."""
    place = write(
        tmp_path_factory.mktemp("docs"), path=str(tmp_path_factory.mktemp("embedded") / "db")
    )
    client = connect(path=place["path"])
    yield {"client": client, "collection": "docs"}
    client.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Address and name of a server's collection."""
    with QdrantStandIn(tmp_path_factory.mktemp("server")) as stand_in:
        yield write(tmp_path_factory.mktemp("docs"), url=stand_in.url)


@pytest.fixture
def place(tmp_path):
    """Folder and name of a collection that nobody holds."""
    folder = tmp_path / "docs"
    folder.mkdir()
    return write(folder, path=str(tmp_path / "db"))


@pytest.fixture(scope="module")
def model():
    with GGUFEmbeddings(BERT.path, query_prefix=PREFIX) as opened:
        yield opened


@pytest.fixture(scope="module")
def retriever(embedded, model):
    with CorralRetriever(**embedded, embeddings=model) as opened:
        yield opened


class Reversed(BaseDocumentCompressor):
    """Turns the order round, and keeps what it was given."""

    given: list = []  # noqa: RUF012 - pydantic copies it

    def compress_documents(self, documents, query, callbacks=None):
        del callbacks
        self.given.append((query, texts_of(documents)))
        return list(reversed(documents))


class Conformance(RetrieversIntegrationTests):
    """LangChain's own suite."""

    @property
    def retriever_constructor(self):
        return CorralRetriever

    @property
    def retriever_constructor_params(self):
        return self.place

    @property
    def retriever_query_example(self):
        return QUERY


class TestEmbedded(Conformance):
    @pytest.fixture(autouse=True)
    def _place(self, embedded):
        self.place = embedded


class TestServer(Conformance):
    @pytest.fixture(autouse=True)
    def _place(self, server):
        self.place = server


def test_it_is_found_where_the_docs_import_it_from():
    assert corral.CorralRetriever is CorralRetriever


@pytest.mark.parametrize("kind", ["embedded", "server"])
def test_chunks_come_nearest_first_by_the_query_with_its_prefix(kind, request, model):
    with CorralRetriever(**request.getfixturevalue(kind), k=5) as retriever:
        found = retriever.invoke(QUERY)
    texts = list(TEXTS.values())
    similarity = model.embed(texts) @ model.embed_checked([QUERY], prefix=PREFIX).vectors[0]
    best = np.argsort(-similarity)
    assert texts_of(found) == [texts[n] for n in best]
    np.testing.assert_allclose(
        [document.metadata["score"] for document in found], similarity[best], atol=1e-5
    )


def test_a_document_has_all_that_was_stored_and_says_where_it_is(retriever, embedded):
    (found,) = retriever.invoke(QUERY, k=1, filter=source_is("wool.txt"))
    (point,) = embedded["client"].retrieve("docs", [found.id])
    assert found.page_content == point.payload["page_content"] == TEXTS["wool.txt"]
    added = {
        "score": found.metadata["score"],
        "_id": found.id,
        "_collection_name": "docs",
    }
    assert found.metadata == point.payload["metadata"] | added
    assert found.metadata["source"] == "wool.txt"
    assert type(found.metadata["score"]) is float


def test_the_command_lines_search_finds_the_same(place):
    with CorralRetriever(**place, k=3) as retriever:
        ours = retriever.invoke(QUERY)
    theirs = search(QUERY, target=SinkOptions(**place), k=3)
    assert texts_of(ours) == [chunk.text for chunk in theirs]
    assert [document.metadata["score"] for document in ours] == [chunk.score for chunk in theirs]


class TestOptions:
    @pytest.mark.parametrize("as_json", [False, True])
    def test_a_filter_holds_for_every_query(self, embedded, model, as_json):
        chosen = source_is("rain.txt", "hill.txt")
        if as_json:
            chosen = chosen.model_dump(mode="json", exclude_none=True)
        retriever = CorralRetriever(**embedded, embeddings=model, filter=chosen)
        found = retriever.invoke(QUERY)
        assert sorted(texts_of(found)) == sorted([TEXTS["rain.txt"], TEXTS["hill.txt"]])

    def test_invoke_overrides_k_and_filter(self, embedded, model):
        retriever = CorralRetriever(
            **embedded, embeddings=model, k=2, filter=source_is("rain.txt", "hill.txt")
        )
        every = source_is(*TEXTS)
        assert len(retriever.invoke(QUERY)) == 2
        assert len(retriever.invoke(QUERY, k=1)) == 1
        assert len(retriever.invoke(QUERY, k=9, filter=every)) == len(TEXTS)
        assert len(retriever.batch([QUERY, "wool"], k=1)[1]) == 1

    def test_a_threshold_is_of_cosine_similarity(self, embedded, model):
        scores = [
            document.metadata["score"]
            for document in CorralRetriever(**embedded, embeddings=model, k=5).invoke(QUERY)
        ]
        middle = (scores[1] + scores[2]) / 2
        some = CorralRetriever(**embedded, embeddings=model, k=5, score_threshold=middle)
        assert [document.metadata["score"] for document in some.invoke(QUERY)] == scores[:2]

    def test_a_copy_with_other_numbers_outlives_its_original(self, embedded):
        retriever = CorralRetriever(**embedded)
        copy = retriever.model_copy(update={"k": 1})
        del retriever
        gc.collect()
        assert len(copy.invoke(QUERY)) == 1


class TestReranker:
    def test_it_orders_fetch_k_chunks_and_k_are_returned(self, embedded, model):
        nearest = texts_of(CorralRetriever(**embedded, embeddings=model, k=4).invoke(QUERY))
        reranker = Reversed()
        retriever = CorralRetriever(**embedded, embeddings=model, k=2, reranker=reranker, fetch_k=4)
        assert texts_of(retriever.invoke(QUERY)) == [nearest[3], nearest[2]]
        assert retriever.reranker.given == [(QUERY, nearest)]

    def test_without_fetch_k_twenty_are_asked_for(self, embedded, model):
        retriever = CorralRetriever(**embedded, embeddings=model, k=1, reranker=Reversed())
        (worst,) = retriever.invoke(QUERY)
        assert worst.page_content == retriever.reranker.given[0][1][-1]
        assert len(retriever.reranker.given[0][1]) == len(TEXTS)

    def test_an_invokes_k_must_leave_it_a_choice(self, embedded, model):
        retriever = CorralRetriever(
            **embedded, embeddings=model, k=2, reranker=Reversed(), fetch_k=3
        )
        with pytest.raises(UsageError, match="fetch_k is 3 and k is 4"):
            retriever.invoke(QUERY, k=4)


class TestFingerprint:
    def test_a_model_of_other_settings_is_refused_with_what_differs(self, embedded):
        with GGUFEmbeddings(BERT.path) as other, pytest.raises(CollectionError) as refused:
            CorralRetriever(**embedded, embeddings=other)
        assert "query_prefix: the collection has 'find: ', this run has ''" in str(refused.value)
        assert "model_sha256" not in str(refused.value)

    def test_another_model_is_refused_and_the_same_one_elsewhere_is_not(self, embedded, tmp_path):
        other = tiny_models.bert(seed=1).path
        with pytest.raises(CollectionError, match="model_sha256"):
            CorralRetriever(**embedded, model=str(other))
        moved = tmp_path / "moved.gguf"
        moved.write_bytes(BERT.path.read_bytes())
        with CorralRetriever(**embedded, model=str(moved)) as retriever:
            assert retriever.invoke(QUERY)

    def test_a_collection_that_corral_did_not_write_is_refused(self, model):
        with closing(connect(path=":memory:")) as client:
            sink = QdrantSink(SinkOptions(collection="other"), client=client)
            sink.create(Schema(vectors={"dense": VectorParams(size=model.dim)}))
            with pytest.raises(CollectionError, match="'other' holds no fingerprint"):
                CorralRetriever(client=client, collection="other", embeddings=model)

    def test_a_collection_that_is_not_there_is_an_error(self, embedded):
        with pytest.raises(CollectionError, match="no collection 'none' at the given client"):
            CorralRetriever(client=embedded["client"], collection="none")


class TestRefused:
    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({}, "one of them; got none"),
            ({"url": "http://localhost:1", "path": "db"}, "one of them; got url and path"),
            ({"path": "db", "k": 0}, "k is 0"),
            ({"path": "db", "fetch_k": 9}, "there is none"),
            ({"path": "db", "k": 5, "fetch_k": 4, "reranker": Reversed()}, "fetch_k is 4 and k is"),
        ],
    )
    def test_fields_that_do_not_go_together(self, fields, message):
        with pytest.raises(UsageError, match=message):
            CorralRetriever(collection="docs", **fields)

    def test_a_model_that_is_open_and_named(self, model):
        with pytest.raises(UsageError, match="give them or model, not both"):
            CorralRetriever(collection="docs", path="db", embeddings=model, model="minilm")

    @pytest.mark.parametrize(
        "field", [{"filters": None}, {"filter": {"source": "a.md"}}, {"embeddings": "minilm"}]
    )
    def test_a_field_of_another_name_or_kind(self, field):
        with pytest.raises(ValidationError, match=next(iter(field))):
            CorralRetriever(collection="docs", path="db", **field)

    async def test_an_async_client(self):
        client = AsyncQdrantClient(":memory:")
        with pytest.raises(ValidationError, match="instance of QdrantClient"):
            CorralRetriever(collection="docs", client=client)
        await client.close()

    @pytest.mark.parametrize("query_k", [0, -1])
    def test_an_invokes_k_that_is_not_positive(self, retriever, query_k):
        with pytest.raises(UsageError, match=f"k is {query_k}"):
            retriever.invoke(QUERY, k=query_k)


class TestClosing:
    def test_what_it_opened_is_closed_at_the_end_of_a_block(self, place):
        with CorralRetriever(**place) as retriever:
            with pytest.raises(SinkUnavailableError):
                connect(path=place["path"])
            assert retriever.invoke(QUERY)
        retriever.close()
        connect(path=place["path"]).close()
        with pytest.raises(EngineError, match="closed"):
            retriever.invoke(QUERY)

    def test_it_is_closed_when_it_goes(self, place):
        retriever = CorralRetriever(**place)
        assert retriever.invoke(QUERY)
        del retriever
        gc.collect()
        connect(path=place["path"]).close()

    def test_what_was_given_stays_open(self, embedded, model):
        with CorralRetriever(**embedded, embeddings=model) as retriever:
            assert retriever.invoke(QUERY)
        assert embedded["client"].count("docs").count == len(TEXTS)
        assert len(model.embed_query("still open")) == model.dim
        with pytest.raises(SinkError, match="is closed"):
            retriever.invoke(QUERY)

    def test_what_it_opened_is_closed_where_it_is_refused(self, place):
        with pytest.raises(ModelNotFoundError):
            CorralRetriever(**place, model="no-such-model.gguf")
        connect(path=place["path"]).close()
