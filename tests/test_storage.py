"""How vectors are kept: datatypes, quantised copies, memory and disk; and what is refused."""

from contextlib import closing

import numpy as np
import pytest
from qdrant_client import models
from qdrant_stand_in import QdrantStandIn
from retrieving import BERT, QUERY, write
from sink_contract import SCHEMA, record, vector

from corral import RankingOptions
from corral.audit import audit
from corral.cli import ingest_main, main
from corral.errors import CollectionError, UsageError
from corral.ranking import ranking_of
from corral.search import search
from corral_sinks import Schema, SinkError, SinkOptions, Storage, VectorParams
from corral_sinks.jsonl import JsonlSink
from corral_sinks.qdrant import Nearest, QdrantSink, connect, search_params, vector_bytes

QUANTIZATIONS = (
    *("scalar", "product:x4", "product:x64", "binary:1", "binary:1.5", "binary:2"),
    *("turbo:1", "turbo:1.5", "turbo:2", "turbo:4", "turbo:8"),
)
STORAGES = (
    *(Storage(quantization=kind) for kind in QUANTIZATIONS),
    *(Storage(datatype=kind) for kind in ("float16", "turbo4", "turbo8", "turbo16")),
    Storage(on_disk=True),
    Storage(on_disk=True, quantization="scalar", datatype="float16"),
)


def schema_of(storage, size=8, **changes):
    return Schema(vectors={"dense": VectorParams(size=size, storage=storage)}, **changes)


@pytest.fixture(params=["embedded", "server"])
def open_sink(request, tmp_path):
    if request.param == "embedded":
        path = str(tmp_path / "db")
        yield lambda: QdrantSink(SinkOptions(collection="docs", path=path))
    else:
        with QdrantStandIn(tmp_path) as server:
            yield lambda: QdrantSink(SinkOptions(collection="docs", url=server.url))


@pytest.mark.parametrize("storage", STORAGES, ids=str)
def test_every_way_is_made_told_of_and_searched(open_sink, storage):
    with closing(open_sink()) as sink:
        made = schema_of(storage, payload_on_disk=True)
        sink.create(made)
        assert sink.schema().vectors == made.vectors
        assert sink.schema().payload_on_disk is True
        sink.upsert([record(number) for number in range(20)])
        (hit,) = sink.search(vector(7), vector_name="dense", limit=1)
        assert hit.id == record(7).id
        assert hit.score == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(
    ("storage", "words"),
    [
        (Storage(datatype="uint8"), "fractions: all would be 0.*scalar"),
        (Storage(datatype="float8"), "no datatype 'float8'; there are float32"),
        (Storage(quantization="product"), "no quantization 'product'; there are scalar"),
    ],
)
def test_what_there_is_not_is_refused(open_sink, storage, words):
    with closing(open_sink()) as sink, pytest.raises(SinkError, match=words):
        sink.create(schema_of(storage))


@pytest.mark.parametrize(
    "schema",
    [schema_of(Storage(quantization="scalar")), schema_of(Storage(), payload_on_disk=True)],
)
def test_memory_refuses_what_it_would_ignore(schema):
    with closing(QdrantSink(SinkOptions(collection="docs", path=":memory:"))) as sink:
        with pytest.raises(SinkError, match="in memory keeps every vector as it is"):
            sink.create(schema)
        assert sink.schema() is None


def test_a_file_of_json_lines_refuses_it_too(tmp_path):
    target = SinkOptions(collection="docs", path=str(tmp_path))
    with (
        closing(JsonlSink(target)) as sink,
        pytest.raises(SinkError, match="knows no datatype.*sink qdrant"),
    ):
        sink.create(schema_of(Storage(datatype="float16")))


def test_a_foreign_quantization_is_named_by_its_kind(tmp_path):
    with closing(connect(path=str(tmp_path))) as client:
        quantile = models.ScalarQuantizationConfig(type=models.ScalarType.INT8, quantile=0.9)
        params = models.VectorParams(
            size=8,
            distance=models.Distance.COSINE,
            on_disk=True,
            quantization_config=models.ScalarQuantization(scalar=quantile),
        )
        client.create_collection("docs", {"dense": params})
        sink = QdrantSink(SinkOptions(collection="docs"), client=client)
        storage = sink.schema().vectors["dense"].storage
    assert storage == Storage(quantization="scalar", on_disk=True)


def test_bytes_of_a_vector_follow_the_datatype():
    kinds = {"float32": 4, "float16": 2, "turbo16": 2, "turbo8": 1, "turbo4": 0.5}
    for kind, each in kinds.items():
        params = VectorParams(size=384, storage=Storage(datatype=kind))
        assert vector_bytes(params) == 384 * each
    assert vector_bytes(SCHEMA.vectors["multi"]) == 0


@pytest.mark.slow
def test_a_copy_finds_and_the_vector_itself_orders(tmp_path):
    draw = np.random.default_rng(1)
    centres = draw.standard_normal((20, 384))
    rows = centres[draw.integers(20, size=7000)] + draw.standard_normal((7000, 384))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    with closing(QdrantSink(SinkOptions(collection="docs", path=str(tmp_path / "db")))) as sink:
        sink.create(schema_of(Storage(quantization="binary:1"), size=384))
        sink.upsert([record(n, vectors={"dense": row}) for n, row in enumerate(rows)])
        sink.optimize()

        def scores(**options):
            ranking = Nearest(vector=rows[3], name="dense")
            hits = sink.rank(ranking, limit=10, search_params=search_params(**options))
            return [hit.score for hit in hits]

        exact = sorted(rows @ rows[3], reverse=True)[:10]
        assert scores(exact=True) == pytest.approx(exact, abs=1e-4)
        assert scores(rescore=False) != pytest.approx(exact, abs=1e-2)
        rescored = scores(rescore=True, oversampling=8.0)
        true = {round(float(score), 3) for score in rows @ rows[3]}
        assert {round(score, 3) for score in rescored} <= true
        assert sum(rescored) >= sum(scores(rescore=True)) - 1e-4


def test_oversampling_below_one_is_refused():
    with pytest.raises(UsageError, match="oversampling is 0.5"):
        ranking_of({}, ["dense"], RankingOptions(oversampling=0.5), limit=3)


def test_an_ingest_keeps_vectors_so_and_a_later_run_needs_not_say_it_again(tmp_path):
    (tmp_path / "docs").mkdir()
    storage = {"storage": Storage(datatype="float16", quantization="turbo:4")}
    path = str(tmp_path / "db")
    place = write(tmp_path / "docs", path=path, options=storage)
    target = SinkOptions(**place)
    write(tmp_path / "docs", path=path)
    write(tmp_path / "docs", path=path, options=storage)
    with pytest.raises(CollectionError, match=r"turbo:4.*this run writes"):
        write(tmp_path / "docs", path=path, options={"storage": Storage(quantization="scalar")})
    found = audit(target, paths=[tmp_path / "docs"], progress=lambda *_, **__: None)
    assert found.ok
    options = RankingOptions(exact=True, oversampling=2.0, rescore=True)
    assert len(search(QUERY, target=target, k=5, ranking=options)) == 5


def test_the_command_line_sets_it(tmp_path, capsys):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("Anna closed the gate.")
    ends = ["--path", str(tmp_path / "db"), "--collection", "docs"]

    def call(command, *words):
        with pytest.raises(SystemExit) as end:
            command(words)
        return end.value.code, *capsys.readouterr()

    ingested = [str(tmp_path / "docs"), "--model", str(BERT.path), *ends]
    options = ["--quantization", "scalar", "--datatype", "float16"]
    disk = ["--on-disk", "vectors", "--on-disk", "payload"]
    code, _, err = call(ingest_main, *ingested, *options, *disk)
    assert code == 0, err
    with closing(QdrantSink(SinkOptions(collection="docs", path=str(tmp_path / "db")))) as sink:
        schema = sink.schema()
    expected = Storage(datatype="float16", quantization="scalar", on_disk=True)
    assert schema.vectors["dense"].storage == expected
    assert schema.payload_on_disk is True
    code, _, err = call(main, "search", QUERY, *ends, "--no-rescore", "--oversampling", "2")
    assert code == 0, err
    code, _, err = call(main, "search", QUERY, *ends, "--exact", "--json")
    assert code == 0, err
