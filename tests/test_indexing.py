"""Loading much: no graph meanwhile, all of it afterwards, and how far it is."""

import io
import subprocess
import sys
import threading
from contextlib import closing, suppress

import pytest
import qdrant_edge
from qdrant_client import models
from qdrant_stand_in import QdrantStandIn
from retrieving import write
from sink_contract import SCHEMA, record, sparse, vector

from corral.cli.progress import watch
from corral.report import Report
from corral.transfer import copy
from corral_sinks import (
    Building,
    Record,
    Schema,
    SinkError,
    SinkOptions,
    SinkUnavailableError,
    SparseParams,
    Storage,
    VectorParams,
)
from corral_sinks.qdrant import QdrantSink, _collection, _indexing, _optimizing, _steps


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
    sink.optimize(told.append)
    assert server.indexing == {"docs": 20_000}  # as it was
    assert server.statuses == []
    assert [(one.indexed, one.points) for one in told] == [(0, 1), (500, 1000), (900, 1000), (0, 1)]
    assert [one.seconds for one in told] == sorted(one.seconds for one in told)


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
        tell_building=indexed.append,
    )
    assert moved == [(256, 300), (300, 300)]
    assert {(one.indexed, one.points) for one in indexed} == {(300, 300)}


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

        def tell(building):
            if not told:
                asking.start()
            told.append(building)

        sink.optimize(tell)
        asking.join()
        assert len(told) > 2
        assert {(one.indexed, one.points) for one in told} == {(None, 300)}
        assert told[0].seconds < told[-1].seconds
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
            sink.optimize(told.append)
    assert [one.points for one in told] == [1300, 2350]
    assert len(calls) == 2


@pytest.mark.slow
def test_enough_to_index_gets_a_graph_by_another_process_step_by_step(tmp_path, monkeypatch):
    names = ("dense", "long")
    storage = Storage(quantization="scalar")
    monkeypatch.setattr(_optimizing.optimize_apart, "__kwdefaults__", {"seconds": 0.01})
    with closing(QdrantSink(SinkOptions(collection="docs", path=str(tmp_path)))) as sink:
        sink.create(
            Schema(vectors={name: VectorParams(size=256, storage=storage) for name in names})
        )
        sink.upsert(
            [
                record(number, vectors=dict.fromkeys(names, vector(number, 256)))
                for number in range(11_000)
            ]
        )
        told = []
        sink.optimize(told.append)
        steps = list(dict.fromkeys(one.step for one in told))
        graphs = [step for step in steps if step.startswith("graph")]
        assert len(graphs) == 2
        assert graphs[0].endswith("1 of 2")
        assert graphs[1].endswith("2 of 2")
        assert set(steps) - set(graphs) <= {"", "copying", "last files"} | {
            f"quantised copy of {name!r}" for name in names
        }
        assert sink.info().indexed_vectors_count == 22_000
        assert not (tmp_path / "docs" / "temp_segments").exists()


def test_what_is_being_built_is_read_off_the_files(tmp_path):
    quantized = models.ScalarQuantization(
        scalar=models.ScalarQuantizationConfig(type=models.ScalarType.INT8)
    )
    params = models.VectorParams(size=4, distance=models.Distance.COSINE)
    vectors = {
        "dense": params.model_copy(update={"quantization_config": quantized}),
        "full": params.model_copy(update={"hnsw_config": models.HnswConfigDiff(m=0)}),
        "long": params,
    }
    segment = tmp_path / "temp_segments" / "segment_builder_x"
    written = {
        segment / "vector_storage-dense" / "matrix.dat": "copying",
        segment / "id_tracker.mappings": "quantised copy of 'dense'",
        segment / "vector_storage-dense" / "quantized.data": "graph of 'dense', 1 of 2",
        segment / "vector_index-full" / "graph.bin": "graph of 'dense', 1 of 2",
        segment / "vector_index-dense" / "graph.bin": "graph of 'long', 2 of 2",
        segment / "vector_index-long" / "graph.bin": "last files",
    }
    assert _steps.step_of(tmp_path, vectors) == ""
    for file, step in written.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        assert _steps.step_of(tmp_path, vectors) == step
    _steps.clear(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_an_optimiser_ends_with_a_process_that_is_killed(tmp_path):
    filled(tmp_path).close()
    code = """
import sys
from corral_sinks import SinkOptions
from corral_sinks.qdrant import QdrantSink, _collection, _optimizing
_collection._WORTH_A_PROCESS = 1
busy = "print('busy', file=open(sys.argv[1] + '/busy', 'w')); import time; time.sleep(600)\\ndone ="
_optimizing._CODE = _optimizing._CODE.replace("done =", busy)
_optimizing.optimize_apart.__kwdefaults__ = {"seconds": 0.05}
def tell(_):
    if (tell.folder / "busy").exists():
        print("busy", flush=True)
from pathlib import Path
tell.folder = Path(sys.argv[1]) / "docs"
QdrantSink(SinkOptions(collection="docs", path=sys.argv[1])).optimize(tell)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout.readline() == "busy\n"
        parent.kill()
    target = SinkOptions(collection="docs", path=str(tmp_path))
    n_points = None
    while n_points is None:  # it would be busy for ten minutes, longer than a test may take
        with suppress(SinkUnavailableError), closing(QdrantSink(target)) as sink:
            n_points = sink.count()
    assert n_points == 300


def test_an_optimiser_whose_parent_is_gone_already_does_nothing(tmp_path):
    child = subprocess.run(
        [sys.executable, "-c", _optimizing._CODE, str(tmp_path), "0"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (child.returncode, child.stderr) == (1, "nobody waits for it\n")


def test_what_an_optimiser_left_is_deleted_when_the_collection_is_opened(tmp_path):
    filled(tmp_path).close()
    left = tmp_path / "docs" / "temp_segments" / "segment_builder_x"
    left.mkdir(parents=True)
    (left / "matrix.dat").write_bytes(b"x")
    with closing(QdrantSink(SinkOptions(collection="docs", path=str(tmp_path)))) as sink:
        assert sink.count() == 300
    assert not left.parent.exists()


def test_a_shard_that_another_process_still_has_is_not_called_damaged(tmp_path):
    filled(tmp_path).close()
    shard = qdrant_edge.EdgeShard.load(str(tmp_path / "docs"))
    try:
        with closing(QdrantSink(SinkOptions(collection="docs", path=str(tmp_path)))) as sink:
            with pytest.raises(SinkUnavailableError, match="open in another process.*Wait") as told:
                sink.count()
            assert "damaged" not in str(told.value)
    finally:
        shard.close()


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


def test_how_far_it_is_says_only_what_is_known():
    known = Building(points=1_000, indexed=3, seconds=12.4)
    assert str(known) == "indexing 3 of 1,000 points, for 12 s"
    unknown = Building(points=1_000, indexed=None, step="graph of 'dense', 1 of 2", seconds=61)
    assert str(unknown) == "indexing 1,000 points, graph of 'dense', 1 of 2, for 61 s"


def test_the_command_line_tells_of_indexes_in_place_of_files(capsys, monkeypatch):
    report = Report(files_total=2, bytes_total=10)
    report.building = Building(points=1_000, indexed=3, seconds=0)
    monkeypatch.setattr("corral.cli.progress._LINE_SECONDS", 0.0)
    with watch(sys.stderr) as progress:
        progress(report, files_done=2, bytes_done=10)
    assert capsys.readouterr().err == "indexing 3 of 1,000 points, for 0 s\n"


@pytest.mark.parametrize(("indexed", "total"), [(3, 1_000), (None, None)])
def test_a_bar_fills_up_only_where_it_is_known_how_far_it_is(indexed, total, monkeypatch):
    shown = []
    monkeypatch.setattr("rich.progress.Progress.update", lambda *_, **fields: shown.append(fields))

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    report = Report(files_total=2, bytes_total=10)
    with watch(Terminal()) as progress:
        progress(report, files_done=2, bytes_done=10)
        report.building = Building(points=1_000, indexed=indexed, step="copying", seconds=5)
        progress(report, files_done=2, bytes_done=10)
    assert [(one["completed"], one["total"]) for one in shown] == [(10, 10), (indexed or 0, total)]
    assert str(shown[1]["done"]) == str(report.building)
