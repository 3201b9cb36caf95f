"""Filters as they are typed, payload indexes, and tenants who never see each other's chunks."""

import json
from contextlib import closing

import pytest
from langchain_qdrant import QdrantVectorStore
from qdrant_client import models
from qdrant_stand_in import QdrantStandIn
from retrieving import BERT, QUERY, TEXTS, source_is, write
from sink_contract import record, vector

from corral import CorralRetriever, GGUFEmbeddings
from corral.audit import audit
from corral.cli import ingest_main, main
from corral.collection import Collection
from corral.errors import CollectionError, UsageError
from corral.identity import ChunkIds
from corral.ingest import IngestOptions, ingest
from corral.overview import delete_sources
from corral.search import search
from corral_sinks import Record, Schema, SinkError, SinkOptions, VectorParams
from corral_sinks.jsonl import JsonlSink
from corral_sinks.qdrant import MemoryQdrant, QdrantSink, _params, connect

FIELDS = [
    {"author": "Anna", "page": 1, "score": 0.5, "draft": True, "day": "2026-01-02T00:00:00Z"},
    {"author": "Ben", "page": 2, "score": 1.5, "draft": False, "day": "2026-02-03T00:00:00Z"},
    {"author": "Anna", "page": 3, "score": 2.5, "draft": False, "tags": ["wool", "dog"]},
    {"source": "other.md", "id": "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "nested": {"deep": 7}},
]
SCHEMA = Schema(
    vectors={"dense": VectorParams(size=8)},
    indexes={
        "metadata.source": "keyword",
        "metadata.day": "datetime",
        "metadata.score": "float",
        "metadata.id": "uuid",
        "metadata.spot": "geo",
        "page_content": "text",
    },
)


def filled(sink, schema=SCHEMA):
    sink.create(schema)
    sink.upsert(
        [
            record(
                n,
                payload={
                    "page_content": f"text number{n}",
                    "metadata": {"source": "a.md"} | fields,
                },
            )
            for n, fields in enumerate(FIELDS)
        ]
    )
    return sink


@pytest.fixture
def sink(tmp_path):
    with closing(QdrantSink(SinkOptions(collection="docs", path=str(tmp_path / "db")))) as sink:
        yield filled(sink)


def found(sink, *conditions):
    hits = sink.search(
        vector(0), vector_name="dense", limit=9, query_filter=sink.parse_filter(conditions)
    )
    numbers = {record(n).id: n for n in range(len(FIELDS))}
    return sorted(numbers[hit.id] for hit in hits)


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], [0, 1, 2, 3]),
        (["author=Anna"], [0, 2]),
        (["author = Anna", "page=3"], [2]),
        (["author!=Anna"], [1, 3]),
        (["page>=2"], [1, 2]),
        (["page<2"], [0]),
        (["page>2"], [2]),
        (["page<=2"], [0, 1]),
        (["score=1.5"], [1]),
        (["score>1"], [1, 2]),
        (["draft=true"], [0]),
        (["draft!=TRUE"], [1, 2, 3]),
        (["day=2026-01-02"], [0]),
        (["day>2026-01-15T12:00:00Z"], [1]),
        (["tags=dog"], [2]),
        (["source=other.md"], [3]),
        (["metadata.source=other.md"], [3]),
        (["id=6BA7B810-9DAD-11D1-80B4-00C04FD430C8"], [3]),
        (["nested.deep=7"], [3]),
        (["page_content=NUMBER2 text"], [2]),
        ([source_is("other.md").model_dump_json(exclude_none=True)], [3]),
        ([source_is("a.md").model_dump_json(exclude_none=True), "page<3"], [0, 1]),
    ],
    ids=str,
)
def test_conditions_mean_what_they_say(sink, conditions, expected):
    assert found(sink, *conditions) == expected


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("author", "FIELD=VALUE"),
        ("=Anna", "FIELD=VALUE"),
        ("writer=Anna", r"has a field metadata.writer; its metadata has .*author.*page"),
        ("page=three", "of the kind integer, and 'three' is none: a whole number such as 3"),
        ("page=1.5", "of the kind integer"),
        ("score=high", "kind float"),
        ("draft=yes", "true or false"),
        ("day=yesterday", "a date such as 2026-11-29"),
        ("id=12", "a UUID such as"),
        ("author>Anna", "kind keyword, which has no order"),
        ("spot=1", "kind geo, which is not written as FIELD=VALUE"),
        ("nested=1", "holds a dict, which is not written"),
        ("{'must': 1}", "is no JSON: "),
        ('{"shall": []}', "is no filter of Qdrant's: shall: Extra inputs are not permitted"),
    ],
)
def test_what_cannot_be_met_is_refused(sink, condition, words):
    with pytest.raises(SinkError, match=words):
        found(sink, condition)


def test_an_empty_collection_has_no_fields(tmp_path):
    with closing(QdrantSink(SinkOptions(collection="docs", path=str(tmp_path / "db")))) as sink:
        sink.create(Schema(vectors={"dense": VectorParams(size=8)}))
        with pytest.raises(SinkError, match="its metadata has no fields"):
            sink.parse_filter(["a=b"])


def test_indexes_are_made_of_their_types_and_added_later(sink):
    assert sink.schema().indexes == SCHEMA.indexes
    sink.index("metadata.page", "integer")
    sink.index("metadata.page", "integer")
    assert sink.schema().indexes["metadata.page"] == "integer"
    with pytest.raises(SinkError, match=r"index of type integer on metadata\.page, not float"):
        sink.index("metadata.page", "float")
    with pytest.raises(SinkError, match="no index of type 'number'; types are bool"):
        sink.index("metadata.x", "number")


def test_jsonl_takes_note_of_indexes_and_refuses_tenants(tmp_path):
    target = SinkOptions(collection="docs", path=str(tmp_path))
    with closing(JsonlSink(target)) as sink:
        filled(sink)
        sink.index("metadata.page", "integer")
        sink.index("metadata.page", "integer")
        assert sink.count() == len(FIELDS)
    with closing(JsonlSink(target)) as sink:
        assert sink.schema().indexes == {**SCHEMA.indexes, "metadata.page": "integer"}
    with pytest.raises(SinkError, match="does not tell tenants apart"):
        JsonlSink(SinkOptions(collection="docs", path=str(tmp_path), tenant="a"))


# Tenants


@pytest.fixture(params=["memory", "embedded", "server"])
def open_tenant(request, tmp_path):
    """Return what opens a tenant's sink on one store, each kind of store."""
    if request.param == "memory":
        with closing(MemoryQdrant()) as client:
            yield lambda tenant: QdrantSink(
                SinkOptions(collection="docs", tenant=tenant), client=client
            )
    elif request.param == "embedded":
        with closing(connect(path=str(tmp_path / "db"))) as client:
            yield lambda tenant: QdrantSink(
                SinkOptions(collection="docs", tenant=tenant), client=client
            )
    else:
        with QdrantStandIn(tmp_path / "db") as server:
            yield lambda tenant: QdrantSink(
                SinkOptions(collection="docs", url=server.url, tenant=tenant)
            )


def owned(number, tenant):
    metadata = {"source": "a.md", "tenant": tenant, "page": number}
    return record(number, tenant, payload={"page_content": tenant, "metadata": metadata})


def test_a_tenant_sees_its_own_records_alone(open_tenant):
    with closing(open_tenant("anna")) as anna, closing(open_tenant("ben")) as ben:
        anna.create(Schema(vectors={"dense": VectorParams(size=8)}, tenants=True))
        anna.upsert([owned(1, "anna"), owned(2, "anna"), owned(3, "ben")])
        assert (anna.count(), ben.count()) == (2, 1)
        assert set(anna.stored("a.md")) == {owned(1, "anna").id, owned(2, "anna").id}
        assert list(ben.sources()) == ["a.md"]
        for condition in (None, ben.parse_filter(["page>0"]), models.Filter(should=[])):
            hits = ben.search(vector(1), vector_name="dense", limit=9, query_filter=condition)
            assert [hit.payload["page_content"] for hit in hits] == ["ben"]
        others = models.FieldCondition(key="metadata.tenant", match=models.MatchValue(value="anna"))
        for sneaky in (models.Filter(should=[others]), models.Filter(must=[others])):
            hits = ben.search(vector(1), vector_name="dense", limit=9, query_filter=sneaky)
            assert hits == []
    with closing(open_tenant(None)) as everyone:
        assert everyone.count() == 3


def test_each_tenant_has_a_graph_of_its_own(tmp_path):
    with closing(QdrantSink(SinkOptions(collection="docs", path=str(tmp_path / "db")))) as sink:
        sink.create(Schema(vectors={"dense": VectorParams(size=8)}, tenants=True))
        assert sink.schema().tenants
        info = sink.client.get_collection("docs")
        assert (info.config.hnsw_config.m, info.config.hnsw_config.payload_m) == (0, 16)
        assert info.payload_schema["metadata.tenant"].params.is_tenant


def test_a_server_is_asked_for_a_graph_a_tenant_and_an_index_that_keeps_a_tenant_together(tmp_path):
    schema = Schema(
        vectors={
            "dense": VectorParams(size=8),
            "full": VectorParams(size=8, indexed=False),
            "multi": VectorParams(size=8, multivector=True, indexed=False),
        },
        tenants=True,
    )
    with (
        QdrantStandIn(tmp_path) as server,
        closing(QdrantSink(SinkOptions(collection="docs", url=server.url))) as sink,
    ):
        sink.create(schema)
        (made,) = server.seen("PUT", "/docs")
        (indexed,) = server.seen("PUT", "/docs/index")
    assert made.asked["hnsw_config"] == {"m": 0, "payload_m": 16}
    graphs = {name: given.get("hnsw_config") for name, given in made.asked["vectors"].items()}
    none = {"m": 0, "payload_m": 0}  # a server would give them the collection's
    assert graphs == {"dense": None, "full": none, "multi": none}
    assert indexed.asked == {
        "field_name": "metadata.tenant",
        "field_schema": {"type": "keyword", "is_tenant": True},
    }


def test_the_embedded_engine_builds_a_tenants_graph(tmp_path, monkeypatch):
    fewer = _params.HNSW.model_copy(update={"full_scan_threshold": 1000})  # kB a tenant
    monkeypatch.setattr(_params, "HNSW", fewer)
    vectors = {"dense": VectorParams(size=2048), "full": VectorParams(size=2048, indexed=False)}
    with closing(QdrantSink(SinkOptions(collection="docs", path=str(tmp_path)))) as sink:
        sink.create(Schema(vectors=vectors, tenants=True))
        kinds = [dict.fromkeys(vectors, vector(number, 2048)) for number in range(1400)]
        sink.upsert(
            [
                Record(id=one.id, vectors=kinds[number], payload=one.payload)
                for number in range(1400)
                for one in [owned(number, "anna" if number % 2 else "ben")]
            ]
        )
        sink.optimize()
        options = SinkOptions(collection="docs", tenant="anna")
        with closing(QdrantSink(options, client=sink.client)) as anna:
            hits = anna.search(kinds[701]["dense"], vector_name="dense", limit=3)
    assert hits[0].id == owned(701, "anna").id
    assert {hit.payload["metadata"]["tenant"] for hit in hits} == {"anna"}
    sizes = {
        name: sum(file.stat().st_size for file in tmp_path.rglob(f"vector_index-{name}/links*"))
        for name in vectors
    }
    assert sizes["dense"] > 5 * sizes["full"] > 0  # a graph, and none
    (config,) = tmp_path.rglob("vector_index-dense/hnsw_config.json")
    made = json.loads(config.read_text())
    assert (made["m"], made["payload_m"]) == (0, 16)


def test_equal_sources_of_two_tenants_have_ids_of_their_own():
    ids = {ChunkIds("a.txt", tenant=tenant).next("hash") for tenant in (None, "a", "b")}
    assert len(ids) == 3
    assert ChunkIds("xa", tenant="b").next("h") != ChunkIds("a", tenant="bx").next("h")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A collection of two tenants, of which one has another text under the same name."""
    folder = tmp_path_factory.mktemp("tenants")
    path = str(folder / "db")
    for tenant in ("anna", "ben"):
        (folder / tenant).mkdir()
        write(folder / tenant, path=path, tenant=tenant)
    (folder / "ben" / "gate.txt").write_text("Ben opened the gate.")
    (folder / "ben" / "wool.txt").unlink()
    target = SinkOptions(collection="docs", path=path, tenant="ben")
    options = IngestOptions(
        paths=[folder / "ben"],
        target=target,
        model=str(BERT.path),
        model_options={"query_prefix": "find: "},
        chunk_size=40,
        isolate=False,
        prune=True,
    )
    report = ingest(options, progress=lambda *_, **__: None)
    assert (report.embedded, report.deleted, report.points) == (1, 2, 4)
    return {"path": path, "collection": "docs"}


def test_a_tenants_run_replaces_and_prunes_its_own_alone(place):
    texts = {
        tenant: {c.text for c in search(QUERY, target=SinkOptions(**place, tenant=tenant), k=9)}
        for tenant in ("anna", "ben")
    }
    assert texts["anna"] == set(TEXTS.values())
    assert "Ben opened the gate." in texts["ben"]
    assert len(texts["ben"]) == 4


def test_without_a_tenant_nothing_is_found_and_nothing_written(place, tmp_path):
    with pytest.raises(CollectionError, match="belong to tenants; say whose"):
        search(QUERY, target=SinkOptions(**place))
    with pytest.raises(CollectionError, match="belong to tenants"):
        CorralRetriever(**place)
    with pytest.raises(CollectionError, match="belong to tenants"):
        write(tmp_path, path=place["path"])
    with CorralRetriever(**place, tenant="anna", k=9, filter=source_is("gate.txt")) as retriever:
        (only,) = retriever.invoke(QUERY)
    assert only.page_content == TEXTS["gate.txt"]
    assert only.metadata["tenant"] == "anna"


def test_a_copy_of_a_retriever_is_of_the_same_tenant(place):
    with CorralRetriever(**place, tenant="anna", k=9) as retriever:
        assert len(retriever.model_copy(update={"k": 2}).invoke(QUERY)) == 2
        for update in ({"tenant": "ben"}, {"tenant": None}, {"k": 1, "collection": "other"}):
            with pytest.raises(UsageError, match="cannot change in a copy.*Make another"):
                retriever.model_copy(update=update)


def test_no_command_but_those_that_move_whole_collections_goes_without_a_tenant(place, tmp_path):
    target = SinkOptions(**place)
    for refused in (
        lambda: audit(target, paths=[tmp_path], progress=lambda *_, **__: None),
        lambda: delete_sources(target, ("gate.txt",)),
        lambda: Collection(target),
    ):
        with pytest.raises(CollectionError, match="belong to tenants; say whose"):
            refused()


def test_langchains_own_store_takes_the_tenant_as_a_filter(place):
    of_ben = models.Filter(
        must=[models.FieldCondition(key="metadata.tenant", match=models.MatchValue(value="ben"))]
    )
    with (
        closing(connect(path=place["path"])) as client,
        GGUFEmbeddings(BERT.path, query_prefix="find: ") as embeddings,
    ):
        store = QdrantVectorStore(
            client=client, collection_name="docs", embedding=embeddings, vector_name="dense"
        )
        found = store.similarity_search(QUERY, k=9, filter=of_ben)
    assert {document.metadata["tenant"] for document in found} == {"ben"}
    assert len(found) == 4


def test_a_tenant_of_a_collection_without_tenants_is_refused(tmp_path):
    write(tmp_path, path=str(tmp_path / "db"))
    plain = {"path": str(tmp_path / "db"), "collection": "docs"}
    with pytest.raises(CollectionError, match="belong to no tenants"):
        CorralRetriever(**plain, tenant="anna")


def test_the_command_line_filters_indexes_and_names_tenants(place, capsys, tmp_path):
    target = ["--path", place["path"], "--collection", "docs"]

    def call(command, *words):
        with pytest.raises(SystemExit) as end:
            command(words)
        return end.value.code, *capsys.readouterr()

    conditions = ["--filter", "source=gate.txt", "--filter", "start=0", "--json"]
    code, out, err = call(main, "search", QUERY, *target, "--tenant", "ben", *conditions)
    assert code == 0, err
    assert json.loads(out)["text"] == "Ben opened the gate."
    code, _, err = call(main, "search", QUERY, *target)
    assert (code, "--tenant NAME" in err) == (2, True)
    code, _, err = call(main, "search", QUERY, *target, "--tenant", "")
    assert (code, "--tenant is empty" in err) == (2, True)
    (tmp_path / "a.txt").write_text("Anna closed the gate.")
    model = ["--model", str(BERT.path), "--path", str(tmp_path / "db"), "--collection", "c"]
    code, _, err = call(ingest_main, str(tmp_path), *model, "--index", "page:number")
    assert (code, "FIELD:TYPE with a type of bool" in err) == (2, True)
    for index in ("n_tokens:integer", "chunk_index:integer"):
        code, _, err = call(ingest_main, str(tmp_path / "a.txt"), *model, "--index", index)
        assert code == 0, err
    with connect(path=str(tmp_path / "db")) as client:
        indexed = client.get_collection("c").payload_schema
    assert set(indexed) > {"metadata.source", "metadata.n_tokens", "metadata.chunk_index"}
