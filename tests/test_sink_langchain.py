"""langchain-qdrant's QdrantVectorStore over what corral wrote, in every kind of client."""

import uuid
from contextlib import closing

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_qdrant import QdrantVectorStore
from langchain_qdrant.qdrant import QdrantVectorStoreError
from qdrant_client import models
from qdrant_stand_in import QdrantStandIn

from corral_sinks import Record, Schema, SinkOptions, VectorParams
from corral_sinks.qdrant import QdrantSink, connect

EMBEDDING = DeterministicFakeEmbedding(size=8)
TEXTS = ["wool is shorn in June", "lambs come in March", "hay is made in July", "dogs guard"]


def id_of(number):
    return str(uuid.uuid5(uuid.NAMESPACE_URL, str(number)))


def write(sink):
    sink.create(
        Schema(vectors={"dense": VectorParams(size=8)}, indexes={"metadata.source": "keyword"})
    )
    sink.upsert(
        [
            Record(
                id=id_of(number),
                vectors={"dense": np.array(EMBEDDING.embed_query(text), dtype=np.float32)},
                payload={
                    "page_content": text,
                    "metadata": {"source": f"{number % 2}.md", "start": number},
                },
            )
            for number, text in enumerate(TEXTS)
        ]
    )


@pytest.fixture(params=["memory", "embedded", "server"])
def client(request, tmp_path):
    if request.param == "server":
        with QdrantStandIn(tmp_path) as server, closing(connect(url=server.url)) as client:
            write(QdrantSink(SinkOptions(collection="docs"), client=client))
            yield client
    else:
        path = ":memory:" if request.param == "memory" else tmp_path
        with closing(connect(path=path)) as client:
            write(QdrantSink(SinkOptions(collection="docs"), client=client))
            yield client


@pytest.fixture
def store(client):
    return QdrantVectorStore(
        client=client, collection_name="docs", embedding=EMBEDDING, vector_name="dense"
    )


def source(value):
    return models.Filter(
        must=[models.FieldCondition(key="metadata.source", match=models.MatchValue(value=value))]
    )


def test_it_finds_the_text_with_its_metadata_and_score(store):
    ((document, score),) = store.similarity_search_with_score(TEXTS[2], k=1)
    assert document.page_content == TEXTS[2]
    assert document.metadata == {
        "source": "0.md",
        "start": 2,
        "_id": id_of(2),
        "_collection_name": "docs",
    }
    assert score == pytest.approx(1.0, abs=1e-5)


def test_it_filters(store):
    found = store.similarity_search(TEXTS[2], k=4, filter=source("1.md"))
    assert {document.page_content for document in found} == {TEXTS[1], TEXTS[3]}


def test_it_retrieves(store):
    retriever = store.as_retriever(search_kwargs={"k": 2, "filter": source("0.md")})
    assert [document.page_content for document in retriever.invoke(TEXTS[0])] == [
        TEXTS[0],
        TEXTS[2],
    ]


def test_it_diversifies(store):
    found = store.max_marginal_relevance_search(TEXTS[1], k=3, fetch_k=4)
    assert found[0].page_content == TEXTS[1]
    assert len({document.page_content for document in found}) == 3


def test_it_keeps_to_a_score_threshold(store):
    found = store.similarity_search(TEXTS[1], k=4, score_threshold=0.999)
    assert [document.page_content for document in found] == [TEXTS[1]]


def test_it_adds_gets_and_deletes(store):
    (added,) = store.add_documents([Document("new text", metadata={"source": "n.md"})])
    assert store.similarity_search("new text", k=1)[0].page_content == "new text"
    assert store.get_by_ids([id_of(1)])[0].page_content == TEXTS[1]
    assert store.delete([added])
    assert "new text" not in [found.page_content for found in store.similarity_search("new text")]


def test_it_refuses_an_embedding_of_another_size(client):
    with pytest.raises(QdrantVectorStoreError, match="8 dimensions"):
        QdrantVectorStore(
            client=client,
            collection_name="docs",
            embedding=DeterministicFakeEmbedding(size=9),
            vector_name="dense",
        )


def test_it_refuses_a_vector_name_that_is_not_there(client):
    with pytest.raises(QdrantVectorStoreError, match="dense vector named"):
        QdrantVectorStore(client=client, collection_name="docs", embedding=EMBEDDING)
