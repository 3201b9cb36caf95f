"""A full disk ends a run with what is stored intact; on a real one, where a test may mount it."""

import errno
import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny_models
from sink_contract import SCHEMA, record

from corral.errors import IncompleteRunError
from corral.ingest import IngestOptions, ingest
from corral.report import Report
from corral_sinks import SinkError, SinkOptions
from corral_sinks.jsonl import JsonlSink
from corral_sinks.qdrant import QdrantSink

TESTS = Path(__file__).parent
MIB = 2**20
WRITER = """
import sys
from sink_contract import SCHEMA, record
from corral_sinks import SinkError, SinkOptions
from corral_sinks.qdrant import QdrantSink
sink = QdrantSink(SinkOptions(collection="docs", path=sys.argv[1]))
sink.create(SCHEMA)
n = 0
try:
    while True:
        sink.upsert([record(n + i, payload={"page_content": "x" * 2**20}) for i in range(4)])
        n += 4
except SinkError as error:
    print(error)
sink.close()
again = QdrantSink(SinkOptions(collection="docs", path=sys.argv[1]))
print(again.count() == n > 0)
again.delete([record(0).id])
print(again.count() == n - 1)
"""


def disk(monkeypatch, free):
    """Let the disk have as many bytes free as `free` says at each question."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free()))


@pytest.fixture
def sink(tmp_path):
    with closing(QdrantSink(SinkOptions(collection="docs", path=str(tmp_path / "db")))) as sink:
        sink.create(SCHEMA)
        sink.upsert([record(1), record(2)])
        yield sink


def _may_mount(folder):
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", folder]
    if shutil.which("unshare") is None:
        return False
    done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True)
    return done.returncode == 0


def test_a_disk_that_is_really_full_kills_nobody_and_loses_nothing(tmp_path):
    if not _may_mount(tmp_path):
        pytest.skip("no file system may be mounted here")
    script = (
        'mount -t tmpfs -o size=160m tmpfs "$1" && exec "$2" -c "$3" "$1/db"'  # 96 MiB to write to
    )
    child = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", tmp_path, sys.executable, WRITER],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd=TESTS,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
    )  # fmt: skip
    assert child.returncode == 0, child.stderr
    said, *counts = child.stdout.splitlines()
    assert "the disk is full" in said
    assert counts == ["True", "True"]


@pytest.mark.parametrize(
    "write",
    [
        lambda sink: sink.upsert([record(3)]),
        lambda sink: sink.set_payload({record(1).id: {"metadata": {"source": "b.md"}}}),
    ],
)
def test_a_write_is_refused_while_there_is_still_room_and_a_deletion_makes_some(
    sink, monkeypatch, write
):
    disk(monkeypatch, lambda: 20 * MIB)
    with pytest.raises(SinkError, match="disk is full: 20 MiB are free.*takes up to 64") as caught:
        write(sink)
    assert "What was acknowledged is stored. Make room" in str(caught.value)
    assert sink.stored("a.md").keys() == {record(1).id, record(2).id}
    sink.delete([record(1).id])
    assert sink.count() == 1
    disk(monkeypatch, lambda: 7 * MIB)
    with pytest.raises(SinkError, match="a deletion takes up to 8"):
        sink.delete([record(2).id])


def test_a_collection_is_not_begun_without_room_and_leaves_nothing(tmp_path, monkeypatch):
    disk(monkeypatch, lambda: 20 * MIB)
    with closing(QdrantSink(SinkOptions(collection="docs", path=str(tmp_path / "db")))) as sink:
        with pytest.raises(SinkError, match="disk is full"):
            sink.create(SCHEMA)
        assert sink.schema() is None
    assert [entry.name for entry in (tmp_path / "db").iterdir()] == [".corral.lock"]


def test_what_there_is_no_room_to_optimise_is_said_and_searched_as_it_is(sink, monkeypatch, caplog):
    held = sum(os.lstat(file).st_blocks * 512 for file in (Path(sink._options.path)).rglob("*"))
    disk(monkeypatch, lambda: 64 * MIB + held // 2)
    sink.optimize()
    assert "not optimised, searches scan" in caplog.text
    assert sink.count() == 2


def test_an_ingest_on_a_disk_that_fills_up_ends_and_the_next_one_goes_on(tmp_path, monkeypatch):
    docs = tmp_path / "docs"
    docs.mkdir()
    for number in range(4):
        words = " ".join(f"word{number}x{i}" for i in range(2000))
        (docs / f"{number}.txt").write_text(words)
    options = IngestOptions(
        paths=[docs],
        target=SinkOptions(collection="docs", path=str(tmp_path / "db")),
        model=str(tiny_models.bert().path),
        chunk_size=32,
        isolate=False,
    )
    frees = iter([*[1000 * MIB] * 4, *[10 * MIB] * 9999])
    with monkeypatch.context() as patched:
        disk(patched, lambda: next(frees))
        report = Report()
        with pytest.raises(
            IncompleteRunError, match="(?s)disk is full.*run the same command again"
        ):
            ingest(options, progress=lambda *_, **__: None, report=report)
    assert report.embedded > 0
    with closing(QdrantSink(options.target)) as sink:
        assert sink.count() == report.embedded
    again = ingest(options, progress=lambda *_, **__: None)
    assert again.reused == report.embedded
    assert again.all_stored


def test_json_lines_on_a_full_disk_end_with_the_last_whole_record(tmp_path, monkeypatch):
    options = SinkOptions(collection="docs", path=str(tmp_path))
    with closing(JsonlSink(options)) as sink:
        sink.create(SCHEMA)
        sink.upsert([record(1)])
        file = sink._handle

        class Full:
            def __getattr__(self, name):
                return getattr(file, name)

            def write(self, content):
                file.write(content[: len(content) // 2])
                file.flush()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patched:
            patched.setattr(sink, "_handle", Full())
            with pytest.raises(SinkError, match="No space left on device"):
                sink.upsert([record(2), record(3)])
        assert sink.count() == 1
        sink.upsert([record(4)])
    with closing(JsonlSink(options)) as sink:
        assert sink.stored("a.md").keys() == {record(1).id, record(4).id}
