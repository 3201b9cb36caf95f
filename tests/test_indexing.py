"""Loading much: no graph meanwhile, all of it afterwards, and how far it is."""

import sys
import threading
from contextlib import closing

import pytest
from qdrant_stand_in import QdrantStandIn
from retrieving import write
from sink_contract import SCHEMA, record, sparse, vector

from corral.cli.progress import watch
from corral.report import Report
from corral.transfer import copy
from corral_sinks import Record, Schema, SinkError, SinkOptions, SparseParams, VectorParams
from corral_sinks.qdrant import QdrantSink, _collection, _indexing, _optimizing


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setattr(_indexing, "_FIRST_WAIT", 0.001)
    with QdrantStandIn(tmp_path / "server") as running:
        yield running


@pytest.fixture
def sink(server):
    with closing(QdrantSink(SinkOptions(collection="docs", url=server.url))) as sink:
        sink.create(SCHEMA)
        yield sink


def test_a_server_defers_and_then_builds_and_tells_how_far_it_is(server, sink):
    sink.defer_indexing()
    assert server.indexing == {"docs": 0}
    sink.upsert([record(1)])
    server.statuses += [
        {"status": "green"},
        {"status": "yellow", "indexed_vectors_count": 500, "points_count": 1000},
        {"status": "grey", "indexed_vectors_count": 900, "points_count": 1000},
        {"status": "green"},
        {"status": "green"},
    ]
    told = []
    sink.optimize(lambda *counts: told.append(counts))
    assert server.indexing == {"docs": 20_000}  # as it was
    assert server.statuses == []
    assert told == [(0, 1), (500, 1000), (900, 1000), (0, 1)]


def test_a_collection_that_was_not_deferred_is_left_to_the_server(server, sink):
    sink.optimize()
    assert server.indexing == {}


def test_an_optimiser_that_failed_is_told(server, sink):
    sink.defer_indexing()
    server.statuses.append({"optimizer_status": {"error": "no space left"}})
    with pytest.raises(SinkError, match="cannot build its indexes: no space left"):
        sink.optimize()


def test_a_new_collection_is_deferred_and_one_that_is_there_is_not(server, tmp_path):
    write(tmp_path, url=server.url)
    assert server.indexing == {"docs": 20_000}
    changes = len(server.seen("PATCH", "/docs"))
    write(tmp_path, url=server.url)
    assert len(server.seen("PATCH", "/docs")) == changes == 2


def test_a_run_that_broke_off_is_brought_to_its_end_by_the_next(server, sink, tmp_path):
    sink.defer_indexing()
    target = SinkOptions(collection="other", path=str(tmp_path / "db"))
    with closing(QdrantSink(target)) as folder:
        folder.create(SCHEMA)
    copy(target, SinkOptions(collection="docs", url=server.url), tell=lambda *_: None)
    assert server.indexing == {"docs": 10_000}


def test_a_copy_tells_of_its_records_and_then_of_what_is_indexed(server, tmp_path):
    target = SinkOptions(collection="docs", path=str(tmp_path / "db"))
    with closing(QdrantSink(target)) as folder:
        folder.create(SCHEMA)
        folder.upsert([record(number) for number in range(300)])
    built = {"status": "green", "indexed_vectors_count": 300, "points_count": 300}
    server.statuses += [built] * 9
    moved, indexed = [], []
    copy(
        target,
        SinkOptions(collection="docs", url=server.url),
        tell=lambda *counts: moved.append(counts),
        tell_indexed=lambda *counts: indexed.append(counts),
    )
    assert moved == [(256, 300), (300, 300)]
    assert set(indexed) == {(300, 300)}


# Embedded


def filled(path, number=300, size=32):
    sink = QdrantSink(SinkOptions(collection="docs", path=str(path)))
    sink.create(Schema(vectors={"dense": VectorParams(size=size)}))
    sink.defer_indexing()
    sink.upsert(
        [
            Record(
                id=f"00000000-0000-0000-0000-{i:012}",
                vectors={"dense": vector(i, size)},
                payload={"metadata": {"source": "a.md"}},
            )
            for i in range(number)
        ]
    )
    return sink


@pytest.fixture
def apart(monkeypatch):
    """Let another process optimise, however little there is."""
    monkeypatch.setattr(_collection, "_WORTH_A_PROCESS", 1)
    monkeypatch.setattr(_optimizing, "_CODE", "import time; time.sleep(0.3)" + _optimizing._CODE)
    monkeypatch.setattr(_optimizing.optimize_apart, "__kwdefaults__", {"seconds": 0.05})


@pytest.mark.usefixtures("apart")
def test_another_process_optimises_while_threads_of_this_one_run_and_calls_wait(tmp_path):
    with closing(filled(tmp_path)) as sink:
        told, counts = [], []
        asking = threading.Thread(target=lambda: counts.append(sink.count()))

        def tell(*counts):
            if not told:
                asking.start()
            told.append(counts)

        sink.optimize(tell)
        asking.join()
        assert len(told) > 2
        assert {total for _, total in told} == {300}
        assert counts == [300]
        assert sink.search(vector(7, 32), vector_name="dense", limit=1)[0].score > 0.999


def test_another_process_does_it_also_where_there_are_vectors_of_other_kinds(tmp_path, monkeypatch):
    calls = []

    def apart(*given, tell):
        calls.append(given)
        tell()
        return False

    monkeypatch.setattr(_collection, "optimize_apart", apart)
    schema = Schema(
        vectors={"dense": VectorParams(size=2048), "full": VectorParams(size=8, indexed=False)},
        sparse_vectors={"words": SparseParams()},
    )
    with closing(QdrantSink(SinkOptions(collection="docs", path=str(tmp_path)))) as sink:
        sink.create(schema)
        told = []
        kinds = {"dense": vector(1, 2048), "full": vector(1), "words": sparse([1], [1])}
        for start in (0, 250, 1300):
            numbers = range(start, start + 1050)
            sink.upsert([record(number, vectors=kinds) for number in numbers])
            sink.optimize(lambda *counts: told.append(counts))
    assert told == [(0, 1300), (0, 1300), (0, 2350), (0, 2350)]
    assert len(calls) == 2


@pytest.mark.slow
def test_enough_to_index_gets_a_graph_by_another_process(tmp_path):
    with closing(filled(tmp_path, 11_000, 256)) as sink:
        told = []
        sink.optimize(lambda *counts: told.append(counts))
        assert told[-1] == (11_000, 11_000)
        assert sink.info().indexed_vectors_count == 11_000


@pytest.mark.usefixtures("apart")
def test_a_failing_optimiser_is_said_and_the_collection_stays_open(tmp_path, monkeypatch):
    monkeypatch.setattr(_optimizing, "_CODE", "raise SystemExit('no more memory')")
    with closing(filled(tmp_path)) as sink:
        with pytest.raises(SinkError, match="could not be optimised: no more memory"):
            sink.optimize()
        assert sink.count() == 300
        monkeypatch.setattr(_optimizing, "_CODE", "import os; os.kill(os.getpid(), 9)")
        with pytest.raises(SinkError, match="exit code -9"):
            sink.optimize()
        assert sink.count() == 300


@pytest.mark.usefixtures("apart")
def test_an_interrupt_ends_the_optimiser_and_the_collection_stays_open(tmp_path):
    with closing(filled(tmp_path)) as sink:

        def interrupt(*_):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            sink.optimize(interrupt)
        assert sink.count() == 300


# What is shown


def test_the_command_line_tells_of_points_in_place_of_files(capsys, monkeypatch):
    report = Report(files_total=2, bytes_total=10, indexed=3, to_index=1_000)
    monkeypatch.setattr("corral.cli.progress._LINE_SECONDS", 0.0)
    with watch(sys.stderr) as progress:
        progress(report, files_done=2, bytes_done=10)
    assert capsys.readouterr().err == "indexing: 3 of 1,000 points\n"
