"""The embedded engine: its folder, its owner, its crash safety, and what it refuses."""

import json
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import portalocker
import pytest
import qdrant_edge
from qdrant_client import QdrantClient, models
from sink_contract import SCHEMA, SIZE, record, vector

from corral_sinks import Record, Schema, SinkError, SinkOptions, SinkUnavailableError, VectorParams
from corral_sinks.qdrant import EmbeddedQdrant, QdrantSink, connect
from corral_sinks.qdrant._params import _looked_up

TESTS = Path(__file__).parent
DENSE = {"dense": models.VectorParams(size=SIZE, distance=models.Distance.COSINE)}


def point(number, **payload):
    return models.PointStruct(id=number, vector={"dense": vector(number).tolist()}, payload=payload)


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


@pytest.fixture
def client(tmp_path):
    with EmbeddedQdrant(tmp_path / "db") as client:
        client.create_collection("docs", DENSE)
        yield client


def child(code, *arguments):
    return subprocess.Popen(
        [sys.executable, *(["-c", code] if code else []), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=TESTS,
    )


# Owner


def test_a_second_client_in_this_process_is_told_so(client, tmp_path):
    with pytest.raises(SinkUnavailableError, match="another client in this process"):
        EmbeddedQdrant(tmp_path / "db")
    assert client.collection_exists("docs")


def test_a_second_process_is_told_which_one_holds_the_folder(tmp_path):
    holder = child(
        "import sys; from corral_sinks.qdrant import connect\n"
        "client = connect(path=sys.argv[1]); print('held', flush=True); sys.stdin.read()",
        tmp_path,
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(SinkUnavailableError, match=f"held by process {holder.pid} on .*Wait"):
            connect(path=tmp_path)
    finally:
        holder.kill()
        holder.communicate()


def test_the_lock_of_a_killed_process_blocks_no_one(tmp_path):
    holder = child(
        "import sys, time; from corral_sinks.qdrant import connect\n"
        "client = connect(path=sys.argv[1]); print('held', flush=True); time.sleep(60)",
        tmp_path,
    )
    assert holder.stdout.readline() == "held\n"
    holder.kill()
    holder.communicate()
    with EmbeddedQdrant(tmp_path) as client:
        assert client.get_collections().collections == []


def test_a_lock_that_names_no_one_is_still_a_lock(client, tmp_path):
    (tmp_path / "db" / ".corral.lock").write_text("garbage")
    with pytest.raises(SinkUnavailableError, match="held by another process"):
        EmbeddedQdrant(tmp_path / "db")
    assert client.collection_exists("docs")


def test_a_lock_that_cannot_be_opened_or_taken_is_an_error(tmp_path, monkeypatch):
    (tmp_path / ".corral.lock").mkdir()
    with pytest.raises(SinkError, match="cannot lock the embedded Qdrant in"):
        EmbeddedQdrant(tmp_path)
    (tmp_path / ".corral.lock").rmdir()

    def refuse(*_):
        raise portalocker.LockException("No locks available")

    monkeypatch.setattr(portalocker, "lock", refuse)
    with pytest.raises(SinkError, match=r"No locks available\. Is it on a network disk"):
        EmbeddedQdrant(tmp_path)


def test_closing_lets_go_and_a_closed_client_says_so(client, tmp_path):
    client.close()
    client.close()
    with pytest.raises(SinkError, match="closed"):
        client.get_collections()
    with pytest.raises(SinkError, match="closed"):
        client.count("docs")
    with EmbeddedQdrant(tmp_path / "db") as again:
        assert again.collection_exists("docs")


# Crashes


@pytest.mark.parametrize("batches", [1, 12, 40])
def test_a_killed_writer_leaves_every_acknowledged_record(tmp_path, batches):
    writer = child(None, TESTS / "sink_writer.py", tmp_path)
    for _ in range(batches):
        acknowledged = int(writer.stdout.readline())
    writer.kill()
    rest = writer.communicate()[0].split()
    acknowledged = int(rest[-1]) if rest else acknowledged
    with closing(QdrantSink(SinkOptions(collection="docs", path=str(tmp_path)))) as sink:
        assert sink.schema().metadata == SCHEMA.metadata
        stored = sink.stored("a.md")
        assert {record(number).id for number in range(acknowledged)} <= stored.keys()
        assert len(stored) == sink.count()
        sink.upsert([record(number) for number in range(acknowledged + 1)])


def test_what_a_crash_left_half_made_is_removed(tmp_path):
    with EmbeddedQdrant(tmp_path) as client:
        client.create_collection("docs", DENSE)
    (tmp_path / ".scratch-1" / "segments").mkdir(parents=True)
    with EmbeddedQdrant(tmp_path) as client:
        assert [known.name for known in client.get_collections().collections] == ["docs"]
    assert names(tmp_path) == [".corral.lock", "docs"]


# Folder


def test_opening_a_folder_that_is_not_there_makes_nothing(tmp_path):
    with EmbeddedQdrant(tmp_path / "typo") as client:
        assert client.get_collections().collections == []
        assert not client.collection_exists("docs")
        with pytest.raises(SinkError, match=r"has no collection 'docs'; it has \[\]"):
            client.count("docs")
    assert not (tmp_path / "typo").exists()


def test_a_folder_of_other_things_is_refused_and_left_alone(tmp_path):
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(SinkError, match=r"not made by corral: it holds holiday\.jpg\. Give a new"):
        EmbeddedQdrant(tmp_path)
    assert names(tmp_path) == ["holiday.jpg"]


def test_a_folder_of_the_clients_local_mode_is_refused(tmp_path):
    with closing(QdrantClient(path=str(tmp_path))) as local:
        local.create_collection("docs", DENSE)
    with pytest.raises(SinkError, match="not made by corral: it holds .*collection"):
        EmbeddedQdrant(tmp_path)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SinkError, match="is a file"):
        EmbeddedQdrant(tmp_path / "file")


def test_a_collection_without_its_sidecar_is_refused(client, tmp_path):
    (tmp_path / "db" / "bare").mkdir()
    with pytest.raises(SinkError, match=r"bare is not a collection of corral's.*no corral\.json"):
        client.get_collection("bare")


@pytest.mark.parametrize("version", [0, 2])
def test_another_schema_version_is_refused_with_both_versions(client, tmp_path, version):
    client.close()
    sidecar = tmp_path / "db" / "docs" / "corral.json"
    sidecar.write_text(json.dumps(json.loads(sidecar.read_text()) | {"schema_version": version}))
    with (
        EmbeddedQdrant(tmp_path / "db") as again,
        pytest.raises(SinkError, match=rf"version 1: schema_version.*got {version}"),
    ):
        again.get_collection("docs")


def test_a_damaged_sidecar_is_refused(client, tmp_path):
    client.close()
    (tmp_path / "db" / "docs" / "corral.json").write_text("{")
    with (
        EmbeddedQdrant(tmp_path / "db") as again,
        pytest.raises(SinkError, match="cannot be read by this version"),
    ):
        again.count("docs")


def test_a_shard_that_lost_its_files_is_refused(client, tmp_path):
    client.close()
    for file in (tmp_path / "db" / "docs").rglob("*"):
        if file.is_file() and file.name != "corral.json":
            file.unlink()
    with EmbeddedQdrant(tmp_path / "db") as again, pytest.raises(SinkError, match="'docs'"):
        again.count("docs")


@pytest.mark.parametrize(
    "name",
    ["../up", "a/b", "a\\b", "..", ".", "", ".hidden", " ", "nul\0", "c:d", "x" * 201, "\ud800"],
)
def test_a_name_that_could_leave_the_folder_is_refused(client, name):
    with pytest.raises(SinkError, match="a collection's name"):
        client.create_collection(name, DENSE)
    with pytest.raises(SinkError, match="a collection's name"):
        client.delete_collection(name)


@pytest.mark.parametrize("name", ["docs 2", "Ümläut-文書", "a.b.c", "x" * 200, "-rf"])
def test_other_names_are_just_names(client, tmp_path, name):
    client.create_collection(name, DENSE)
    client.upsert(name, [point(1)])
    client.close()
    with EmbeddedQdrant(tmp_path / "db") as again:
        assert name in [known.name for known in again.get_collections().collections]
        assert again.count(name).count == 1


# Collections


def test_collections_are_listed_made_once_and_deleted(client, tmp_path):
    client.create_collection("other", DENSE)
    listed = [known.name for known in client.get_collections().collections]
    assert listed == ["docs", "other"]
    with pytest.raises(SinkError, match="already"):
        client.create_collection("docs", DENSE)
    assert client.delete_collection("other")
    assert not client.delete_collection("other")
    assert names(tmp_path / "db") == [".corral.lock", "docs"]


def test_metadata_is_merged_and_kept(client, tmp_path):
    client.create_collection("noted", DENSE, metadata={"a": 1, "b": {"c": [None]}})
    client.update_collection("noted", metadata={"a": 2, "d": "é"})
    client.close()
    with EmbeddedQdrant(tmp_path / "db") as again:
        metadata = again.get_collection("noted").config.metadata
        assert metadata == {"a": 2, "b": {"c": [None]}, "d": "é"}


def test_the_description_is_what_was_made(client):
    made = models.VectorParams(
        size=4,
        distance=models.Distance.DOT,
        datatype=models.Datatype.FLOAT16,
        hnsw_config=models.HnswConfigDiff(m=8),
        multivector_config=models.MultiVectorConfig(
            comparator=models.MultiVectorComparator.MAX_SIM
        ),
        memory=models.Memory.COLD,
    )
    sparse = models.SparseVectorParams(
        modifier=models.Modifier.IDF, index=models.SparseIndexParams(full_scan_threshold=10)
    )
    client.create_collection(
        "rich",
        {"multi": made},
        {"sparse": sparse},
        hnsw_config=models.HnswConfigDiff(m=24, memory=models.Memory.CACHED),
    )
    config = client.get_collection("rich").config
    assert config.params.vectors == {"multi": made}
    assert config.params.sparse_vectors == {"sparse": sparse}
    assert (config.hnsw_config.m, config.hnsw_config.ef_construct) == (24, 100)


def test_an_unnamed_vector_works_as_on_a_server(client):
    client.create_collection("plain", models.VectorParams(size=2, distance=models.Distance.EUCLID))
    client.upsert("plain", [models.PointStruct(id=1, vector=[3.0, 4.0])])
    client.upsert("plain", [models.PointStruct(id=2, vector=[0.0, 0.0])])
    assert client.get_collection("plain").config.params.vectors.size == 2
    (first, _) = client.query_points("plain", query=[3.0, 3.0], with_vectors=True).points
    assert (first.id, first.score, first.vector) == (1, 1.0, [3.0, 4.0])


INDEXES = {
    "bool": models.BoolIndexParams(type="bool"),
    "datetime": models.PayloadSchemaType.DATETIME,
    "float": models.PayloadSchemaType.FLOAT,
    "geo": models.PayloadSchemaType.GEO,
    "integer": models.IntegerIndexParams(type="integer", range=True, lookup=False),
    "keyword": models.KeywordIndexParams(type="keyword", is_tenant=True, memory="cached"),
    "text": models.TextIndexParams(type="text", tokenizer="word", lowercase=True),
    "uuid": "uuid",
}


def test_every_kind_of_payload_index_is_made_and_kept(client, tmp_path):
    for field, schema in INDEXES.items():
        client.create_payload_index("docs", field, schema)
        client.create_payload_index("docs", field, schema)
    client.upsert("docs", [point(1, integer=5), point(2)])
    client.close()
    with EmbeddedQdrant(tmp_path / "db") as again:
        found = again.get_collection("docs").payload_schema
        assert {field: info.data_type.value for field, info in found.items()} == {
            field: field for field in INDEXES
        }
        assert found["keyword"].params == INDEXES["keyword"]
        assert found["integer"].points == 1


# Vectors


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1.0] * 7, r"shape \(7,\)"),
        ([float("nan")] * 8, "not finite"),
        ([float("inf")] * 8, "not finite"),
        ([0.0] * 8, "norm 0"),
        ([1e-9] * 8, "norm"),
    ],
)
def test_vectors_that_the_engine_would_take_in_silence_are_refused(client, values, words):
    bad = models.PointStruct(id=2, vector={"dense": values})
    with pytest.raises(SinkError, match=f"point 2: its vector 'dense' .*{words}"):
        client.upsert("docs", [point(1), bad])
    assert client.count("docs").count == 0


def test_an_undeclared_vector_is_refused_with_those_there_are(client):
    with pytest.raises(SinkError, match=r"no vector 'other' of that kind; it has \['dense'\]"):
        client.upsert("docs", [models.PointStruct(id=1, vector={"other": [1.0] * 8})])


def test_a_sparse_vector_that_is_not_finite_is_refused(client):
    client.create_collection("s", sparse_vectors_config={"sparse": models.SparseVectorParams()})
    values = models.SparseVector(indices=[1], values=[float("nan")])
    with pytest.raises(SinkError, match="not finite"):
        client.upsert("s", [models.PointStruct(id=1, vector={"sparse": values})])


def test_a_row_of_a_multivector_is_checked_too(client):
    params = models.VectorParams(
        size=2,
        distance=models.Distance.COSINE,
        multivector_config=models.MultiVectorConfig(
            comparator=models.MultiVectorComparator.MAX_SIM
        ),
    )
    client.create_collection("m", {"multi": params})
    client.upsert("m", [models.PointStruct(id=1, vector={"multi": [[1.0, 0.0], [0.0, 1.0]]})])
    for rows in ([[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.0, 0.0]], [[float("nan"), 0.0]]):
        with pytest.raises(SinkError, match="point 2"):
            client.upsert("m", [models.PointStruct(id=2, vector={"multi": rows})])
    (found,) = client.query_points("m", query=[[1.0, 0.0], [1.0, 0.0]], using="multi").points
    assert found.score == pytest.approx(2.0)


def test_text_to_embed_is_refused(client):
    text = models.Document(text="t", model="m")
    with pytest.raises(SinkError, match="embeds nothing itself"):
        client.upsert("docs", [models.PointStruct(id=1, vector={"dense": text})])


@pytest.mark.parametrize("wrong", ["path/of/file", "123"])
def test_an_id_that_is_no_uuid_is_refused(client, wrong):
    with pytest.raises(SinkError, match="UUID"):
        client.upsert("docs", [models.PointStruct(id=wrong, vector={"dense": vector(1).tolist()})])


# What it does not do, it says


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.create_collection("n", DENSE, shard_number=2),
        lambda client: client.create_collection("n", DENSE, replication_factor=2),
        lambda client: client.update_collection("docs", hnsw_config=models.HnswConfigDiff(m=4)),
        lambda client: client.upsert("docs", [point(1)], shard_key_selector="k"),
        lambda client: client.query_points("docs", shard_key_selector="k"),
        lambda client: client.query_points(
            "docs", lookup_from=models.LookupLocation(collection="c")
        ),
    ],
)
def test_an_option_it_has_not_is_refused(client, call):
    with pytest.raises(SinkError, match="knows no (shard_|replication|hnsw|lookup)"):
        call(client)


def test_options_that_one_copy_meets_by_itself_are_accepted(client):
    client.upsert("docs", [point(1)], wait=True, ordering=models.WriteOrdering.STRONG, timeout=5)
    found = client.query_points("docs", query=vector(1).tolist(), using="dense", consistency="all")
    assert len(found.points) == 1


@pytest.mark.parametrize("name", ["create_snapshot", "recover_snapshot", "facet"])
def test_a_method_it_has_not_is_refused_with_the_reason(client, name):
    with pytest.raises(AttributeError, match=f"embedded Qdrant has no {name}.*A Qdrant server"):
        getattr(client, name)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        client.nonsense  # noqa: B018


def test_a_setting_of_a_later_client_is_refused():
    with pytest.raises(SinkError, match="no datatype 'float8'"):
        _looked_up({}, "float8", "datatype")


def test_an_index_it_has_not_is_refused(client):
    stemmed = models.TextIndexParams(type="text", stopwords=models.Language.ENGLISH)
    with pytest.raises(SinkError, match="stopwords"):
        client.create_payload_index("docs", "text", stemmed)
    with pytest.raises(SinkError, match="one of bool, .*; got 'colour'"):
        client.create_payload_index("docs", "text", "colour")


def test_a_batch_object_is_refused(client):
    batch = models.Batch(ids=[1], vectors={"dense": [vector(1).tolist()]})
    with pytest.raises(SinkError, match="list of PointStruct; got a Batch"):
        client.upsert("docs", batch)


# Writing


def test_modes_and_conditions_of_an_upsert(client):
    client.upsert("docs", [point(1, v=1)])
    client.upsert("docs", [point(1, v=2), point(2, v=2)], update_mode=models.UpdateMode.INSERT_ONLY)
    client.upsert("docs", [point(2, v=3), point(3, v=3)], update_mode=models.UpdateMode.UPDATE_ONLY)
    older = models.Filter(must=[models.FieldCondition(key="v", range=models.Range(lt=2))])
    client.upsert("docs", [point(1, v=9), point(2, v=9)], update_filter=older)
    found, _ = client.scroll("docs")
    assert {point.id: point.payload["v"] for point in found} == {1: 9, 2: 3}


def test_payloads_change_by_ids_and_by_filter(client):
    client.upsert("docs", [point(number, n=number, keep=True) for number in (1, 2, 3)])
    above = models.Filter(must=[models.FieldCondition(key="n", range=models.Range(gt=1))])
    client.set_payload("docs", {"a": 1}, [1])
    client.set_payload("docs", {"a": 2}, above)
    client.set_payload("docs", {"b": 3}, models.PointIdsList(points=[3]), key="inner")
    client.overwrite_payload("docs", {"n": 2}, models.FilterSelector(filter=_n(2)))
    found = {point.id: point.payload for point in client.retrieve("docs", [1, 2, 3, 99])}
    assert found == {
        1: {"n": 1, "keep": True, "a": 1},
        2: {"n": 2},
        3: {"n": 3, "keep": True, "a": 2, "inner": {"b": 3}},
    }


def _n(value):
    return models.Filter(
        must=[models.FieldCondition(key="n", match=models.MatchValue(value=value))]
    )


def test_points_are_deleted_by_ids_and_by_filter(client):
    client.upsert("docs", [point(number, n=number) for number in range(1, 6)])
    client.delete("docs", [1, 77])
    client.delete("docs", models.PointIdsList(points=[2]))
    client.delete("docs", _n(3))
    client.delete("docs", models.FilterSelector(filter=_n(4)))
    assert [point.id for point in client.scroll("docs")[0]] == [5]


def test_a_batch_of_operations_runs_in_order(client):
    client.batch_update_points(
        "docs",
        [
            models.UpsertOperation(upsert=models.PointsList(points=[point(1), point(2), point(3)])),
            models.DeleteOperation(delete=models.PointIdsList(points=[2])),
            models.SetPayloadOperation(set_payload=models.SetPayload(payload={"a": 1}, points=[1])),
            models.OverwritePayloadOperation(
                overwrite_payload=models.SetPayload(payload={"b": 1}, filter=models.Filter())
            ),
        ],
    )
    assert {point.id: point.payload for point in client.scroll("docs")[0]} == {
        1: {"b": 1},
        3: {"b": 1},
    }


def test_a_batch_operation_it_has_not_is_refused(client):
    clear = models.ClearPayloadOperation(clear_payload=models.PointIdsList(points=[1]))
    with pytest.raises(SinkError, match="no ClearPayloadOperation"):
        client.batch_update_points("docs", [clear])
    nowhere = models.SetPayloadOperation(set_payload=models.SetPayload(payload={}))
    with pytest.raises(SinkError, match="points or a filter"):
        client.batch_update_points("docs", [nowhere])


def test_records_whose_ids_are_numbers_are_read_from_any_of_them_on(client, tmp_path):
    client.upsert("docs", [point(number) for number in (9, 10, 11)])
    sink = QdrantSink(SinkOptions(collection="docs", path=str(tmp_path / "db")), client=client)
    assert [one.id for one in sink.records(after="9")] == ["10", "11"]


def test_many_threads_write_and_read_without_loss(client):
    def work(thread):
        for batch in range(10):
            first = thread * 1000 + batch * 10
            client.upsert("docs", [point(first + number) for number in range(10)])
            client.query_points("docs", query=vector(first).tolist(), using="dense")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.count("docs").count == 600


def test_a_failing_flush_still_lets_go_of_the_folder(client, tmp_path, monkeypatch):
    class Broken:
        def flush(self):
            raise OSError(28, "No space left on device")

        def close(self):
            pass

    collection = client._collection("docs")
    shard = collection._shard
    monkeypatch.setattr(collection, "_shard", Broken())
    with pytest.raises(SinkError, match="No space left"):
        client.close()
    shard.close()
    with EmbeddedQdrant(tmp_path / "db") as again:
        assert again.count("docs").count == 0


def test_optimize_builds_a_graph_once_there_is_enough_to_index(tmp_path):
    size = 2048
    schema = Schema(vectors={"dense": VectorParams(size=size)})
    with closing(QdrantSink(SinkOptions(collection="docs", path=str(tmp_path)))) as sink:
        sink.create(schema)
        rows = np.random.default_rng(0).standard_normal((1400, size)).astype(np.float32)
        sink.upsert([record(n, vectors={"dense": row}) for n, row in enumerate(rows)])
        assert sink.client.get_collection("docs").indexed_vectors_count == 0
        sink.optimize()
        assert sink.client.get_collection("docs").indexed_vectors_count == 1400
        assert sink.search(rows[17], vector_name="dense", limit=1)[0].id == record(17).id


def test_the_write_ahead_log_is_always_on(client, tmp_path):
    client.close()
    config = json.loads((tmp_path / "db" / "docs" / "edge_config.json").read_text())
    assert config.get("wal_enabled") is not False
    shard = qdrant_edge.EdgeShard.load(str(tmp_path / "db" / "docs"))
    try:
        with pytest.raises(Exception, match="WouldBlock"):
            qdrant_edge.EdgeShard.load(str(tmp_path / "db" / "docs"))
    finally:
        shard.close()


def test_records_are_left_as_they_were_given(tmp_path):
    given = record(1)
    before = Record(
        id=given.id,
        vectors={"dense": given.vectors["dense"].copy()},
        payload=json.loads(json.dumps(given.payload)),
    )
    with closing(QdrantSink(SinkOptions(collection="docs", path=str(tmp_path)))) as sink:
        sink.create(SCHEMA)
        sink.upsert([given])
    assert given.payload == before.payload
    assert np.array_equal(given.vectors["dense"], before.vectors["dense"])
