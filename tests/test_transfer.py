"""A collection elsewhere: to a server and back, into files and out of them."""

import json
import re
import shutil
import subprocess
import sys
from contextlib import closing
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import yaml
from commands import corral
from qdrant_stand_in import QdrantStandIn
from retrieving import QUERY, write
from sink_contract import AWKWARD, SCHEMA, record, sparse, vector

from corral.cli import main
from corral.errors import CollectionError, IncompleteRunError, UsageError
from corral.search import search
from corral.transfer import Exported, copy, export, restore
from corral_sinks import (
    Building,
    Schema,
    SinkError,
    SinkOptions,
    SinkUnavailableError,
    SparseVector,
    VectorParams,
)
from corral_sinks.jsonl import JsonlSink, read_jsonl
from corral_sinks.parquet import read_parquet
from corral_sinks.qdrant import QdrantSink

ROOT = Path(__file__).parents[1]


def ignore(*_):
    """Take no note of the progress."""


def mixed(number):
    """A record with vectors of every kind."""
    return record(
        number,
        vectors={
            "dense": vector(number),
            "multi": np.stack([vector(number + 1), vector(number + 2)]),
            "words": sparse([7, 2**32 - 1], [0.5, 1 / 3]),
        },
        payload={
            "page_content": AWKWARD,
            "metadata": {"source": f"{number % 3}.md", "page": number, "tags": ["a", None, 0.1]},
        },
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An embedded collection of 600 records and one that lacks vectors."""
    target = SinkOptions(collection="docs", path=str(tmp_path_factory.mktemp("made") / "db"))
    with closing(QdrantSink(target)) as sink:
        sink.create(SCHEMA)
        sink.upsert([mixed(number) for number in range(600)])
        sink.upsert([record(601, vectors={"weights": sparse([1], [2])})])
    return target


@pytest.fixture
def folder(made, tmp_path):
    """A copy of it."""
    shutil.copytree(made.path, tmp_path / "db")
    return replace(made, path=str(tmp_path / "db"))


@pytest.fixture(scope="module")
def whole(made, tmp_path_factory):
    """What it comes to in a file of each form, in row groups of 100, if nothing goes wrong."""
    place = tmp_path_factory.mktemp("whole")
    files = {end: place / f"docs{end}" for end in (".jsonl", ".parquet")}
    with pytest.MonkeyPatch.context() as patch:
        small_groups(patch)
        for file in files.values():
            export(made, file, tell=ignore)
    return {end: file.read_bytes() for end, file in files.items()}


@pytest.fixture
def server(tmp_path):
    with QdrantStandIn(tmp_path / "server") as running:
        yield running


def plain(vectors):
    return {
        name: sorted(zip(found.indices.tolist(), found.values.tolist(), strict=True))
        if isinstance(found, SparseVector)
        else found.round(5).tolist()
        for name, found in vectors.items()
    }


def content(target):
    with closing(QdrantSink(target)) as sink:
        records = {one.id: (plain(one.vectors), one.payload) for one in sink.records()}
        return sink.schema(), records


def same(one, other):
    (schema, records), (other_schema, others) = content(one), content(other)
    assert schema == other_schema
    assert set(records) == set(others)
    for point, (vectors, payload) in records.items():
        assert payload == others[point][1]
        assert set(vectors) == set(others[point][0])
        for name, numbers in vectors.items():
            np.testing.assert_allclose(numbers, others[point][0][name], atol=2e-5)


def test_a_collection_goes_to_a_server_and_back_as_it_was(folder, server, tmp_path):
    there = SinkOptions(collection="docs", url=server.url)
    moved = copy(folder, there, tell=ignore)
    assert (moved.records, moved.written, moved.present, moved.points) == (601, 601, 0, 601)
    same(folder, there)
    back = SinkOptions(collection="again", path=str(tmp_path / "db"))
    assert copy(there, back, tell=ignore).points == 601
    same(folder, back)


def test_a_copy_that_broke_off_goes_on_and_counts(folder, server):
    there = SinkOptions(collection="docs", url=server.url)
    done = []

    def tell(number, total):
        done.append((number, total))
        if len(done) == 1:
            server.fail(status=400, words="disk is full")

    with pytest.raises(IncompleteRunError, match=r"disk is full.*\n256 records are there"):
        copy(folder, there, tell=tell)
    again = copy(folder, there, tell=ignore)
    assert again.points == again.records == 601
    assert (again.written, again.present) == (345, 256)
    third = copy(folder, there, tell=ignore)
    assert (third.written, third.present) == (0, 601)


def test_what_changed_since_is_sent_and_what_the_target_has_besides_stays(folder, server):
    there = SinkOptions(collection="docs", url=server.url)
    copy(folder, there, tell=ignore)
    with closing(QdrantSink(folder)) as sink:
        sink.set_payload({mixed(5).id: {"page_content": "new", "metadata": {"source": "n.md"}}})
        sink.delete([mixed(6).id])
    moved = copy(folder, there, tell=ignore)
    assert (moved.written, moved.points) == (1, 601)


def test_another_collection_in_the_target_or_none_in_the_source_is_refused(folder, server):
    there = SinkOptions(collection="docs", url=server.url)
    with closing(QdrantSink(there)) as sink:
        sink.create(replace(SCHEMA, metadata={"corral": {"model": "other"}}))
    with pytest.raises(CollectionError, match="another collection 'docs'.*--to"):
        copy(folder, there, tell=ignore)
    none = replace(folder, collection="none")
    for broken in (
        lambda: copy(none, there, tell=ignore),
        lambda: export(none, Path(folder.path).parent / "x.jsonl", tell=ignore),
    ):
        with pytest.raises(CollectionError, match="no collection 'none'"):
            broken()


def test_fewer_points_than_were_acknowledged_are_told(folder, tmp_path, monkeypatch):
    there = SinkOptions(collection="docs", path=str(tmp_path / "other"))
    source = replace(folder)
    count = QdrantSink.count
    monkeypatch.setattr(
        QdrantSink, "count", lambda self: count(self) - (self._options.path == there.path)
    )
    with pytest.raises(IncompleteRunError, match="601 records were acknowledged, .* has 600"):
        copy(source, there, tell=ignore)


@pytest.mark.parametrize("end", [".jsonl", ".parquet", ".PARQUET"])
def test_a_file_brings_everything_back(folder, tmp_path, end):
    file = tmp_path / f"docs{end}"
    told = []
    assert export(folder, file, tell=lambda *news: told.append(news)) == Exported(601, 0)
    assert told[-1] == (601, 601)
    back = SinkOptions(collection="back", path=str(tmp_path / "db"))
    assert restore(file, back, tell=ignore).written == 601
    same(folder, back)
    told.clear()
    again = restore(file, back, tell=lambda *news: told.append(news))
    assert (again.present, told) == (601, [(256, 601), (512, 601), (601, 601)])
    assert sorted(one.name for one in tmp_path.iterdir()) == ["db", file.name]


@pytest.mark.parametrize("end", [".jsonl", ".parquet"])
def test_an_import_that_broke_off_goes_on_and_counts(folder, server, tmp_path, end):
    file = tmp_path / f"docs{end}"
    export(folder, file, tell=ignore)
    there = SinkOptions(collection="docs", url=server.url)

    def tell(done, _):
        if done == 256:
            server.fail(status=400, words="disk is full")

    with pytest.raises(IncompleteRunError, match=r"disk is full.*\n256 records are there"):
        restore(file, there, tell=tell)
    again = restore(file, there, tell=ignore)
    assert (again.written, again.present, again.points) == (345, 256, 601)
    same(folder, there)


def small_groups(monkeypatch):
    """Let a row group hold 100 records."""
    monkeypatch.setattr("corral_sinks.parquet._ROWS", 100)


class Reading:
    """Counts what is read of a collection, vectors and all, and breaks off in time."""

    def __init__(self, monkeypatch, stop=None, error=KeyboardInterrupt):
        self.ids = []
        records = QdrantSink.records

        def counted(sink, *, vectors=True, after=None):
            for one in records(sink, vectors=vectors, after=after):
                if vectors:
                    if len(self.ids) == stop:
                        raise error
                    self.ids.append(one.id)
                yield one

        monkeypatch.setattr(QdrantSink, "records", counted)


def break_off(target, file, stop):
    """Interrupt an export once that many records are read."""

    def tell(done, _):
        if done == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(target, file, tell=tell)


def unfinished(file):
    return file.with_name(f".{file.name}.unfinished")


@pytest.mark.parametrize("end", [".jsonl", ".parquet"])
@pytest.mark.parametrize("stop", [1, 100, 450, 601])
def test_an_export_that_broke_off_goes_on_and_is_as_one_that_did_not(
    folder, tmp_path, monkeypatch, whole, stop, end
):
    small_groups(monkeypatch)
    file = tmp_path / f"docs{end}"
    break_off(folder, file, stop)
    assert not file.exists()
    assert unfinished(file).is_dir()
    again = Reading(monkeypatch)
    told = []
    found = export(folder, file, tell=lambda *news: told.append(news))
    assert found == Exported(601, stop)
    assert len(again.ids) == 601 - stop  # nothing is read twice
    assert told == [(number, 601) for number in range(stop + 1, 602)]
    assert file.read_bytes() == whole[file.suffix]
    assert not unfinished(file).exists()


def test_an_export_of_a_tenant_of_a_server_goes_on_too(server, tmp_path):
    everyone = SinkOptions(collection="shared", url=server.url)
    with closing(QdrantSink(everyone)) as sink:
        sink.create(replace(SCHEMA, tenants=True))
        sink.upsert([of_tenant(number, "anna" if number % 2 else "ben") for number in range(20)])
    anna = replace(everyone, tenant="anna")
    file = tmp_path / "anna.jsonl"
    break_off(anna, file, 4)
    assert export(anna, file, tell=ignore) == Exported(10, 4)
    with read_jsonl(file) as (_, records, _):
        found = [one.id for one in records]
    assert found == sorted(of_tenant(number, "anna").id for number in range(1, 20, 2))


@pytest.mark.parametrize("cut", [1, 2, 700])
def test_a_record_that_was_not_written_whole_is_cut_off_and_read_again(
    folder, tmp_path, whole, cut
):
    file = tmp_path / "docs.jsonl"
    break_off(folder, file, 300)
    lines = unfinished(file) / "lines"
    lines.write_bytes(lines.read_bytes()[:-cut])
    assert export(folder, file, tell=ignore) == Exported(601, 299)
    assert file.read_bytes() == whole[file.suffix]


def test_a_row_group_that_is_damaged_is_read_again_with_those_behind_it(
    folder, tmp_path, monkeypatch, whole
):
    small_groups(monkeypatch)
    file = tmp_path / "docs.parquet"
    break_off(folder, file, 350)
    damaged = unfinished(file) / "00000001.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert export(folder, file, tell=ignore) == Exported(601, 100)
    assert file.read_bytes() == whole[file.suffix]


@pytest.mark.parametrize("end", [".jsonl", ".parquet"])
def test_an_export_that_is_killed_leaves_no_file_of_that_name_and_the_next_one_goes_on(
    folder, tmp_path, monkeypatch, whole, end
):
    file = tmp_path / f"docs{end}"
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "import corral_sinks.parquet\n"
        "from corral.transfer import export\n"
        "from corral_sinks import SinkOptions\n"
        "corral_sinks.parquet._ROWS = 100\n"
        "kill = lambda done, _: done < 400 or os.kill(os.getpid(), signal.SIGKILL)\n"
        "export(SinkOptions(collection='docs', path=sys.argv[1]), Path(sys.argv[2]), tell=kill)\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", code, folder.path, file], stdin=subprocess.DEVNULL, check=False
    )
    assert child.returncode == -9
    assert not file.exists()
    small_groups(monkeypatch)
    assert export(folder, file, tell=ignore) == Exported(601, 400)
    assert file.read_bytes() == whole[file.suffix]
    assert not unfinished(file).exists()


@pytest.mark.parametrize(("end", "kept"), [(".jsonl", 203), (".parquet", 200)])
@pytest.mark.parametrize("change", ["payload", "deleted", "added"])
def test_a_collection_that_changed_in_between_is_read_again_from_there_on(
    folder, tmp_path, monkeypatch, caplog, end, kept, change
):
    small_groups(monkeypatch)
    other, file = tmp_path / f"other{end}", tmp_path / f"docs{end}"
    break_off(folder, file, 450)
    with closing(QdrantSink(folder)) as sink:
        point = [one.id for one in sink.records(vectors=False)][203]
        if change == "payload":
            sink.set_payload({point: {"page_content": "new", "metadata": {"source": "n.md"}}})
        elif change == "deleted":
            sink.delete([point])
        else:
            sink.upsert([replace(record(1), id=f"{point[:-1]}{int(point[-1], 16) - 1:x}")])
    export(folder, other, tell=ignore)
    assert not caplog.messages
    found = export(folder, file, tell=ignore)
    assert found.resumed == kept
    (message,) = caplog.messages
    assert re.search(f"has changed since .* the first {kept} records are kept", message)
    assert file.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("end", [".jsonl", ".parquet"])
def test_what_is_of_another_collection_is_begun_anew(folder, tmp_path, monkeypatch, caplog, end):
    small_groups(monkeypatch)
    other = replace(folder, collection="other")
    with closing(QdrantSink(other)) as sink:
        sink.create(replace(SCHEMA, metadata={"corral": {"model": "other"}}))
        sink.upsert([mixed(number) for number in range(200)])
    file = tmp_path / f"docs{end}"
    break_off(other, file, 150)
    assert export(folder, file, tell=ignore) == Exported(601, 0)
    assert "damaged or of another collection: the export begins anew" in caplog.text
    back = SinkOptions(collection="back", path=folder.path)
    restore(file, back, tell=ignore)
    same(folder, back)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]\n", b"7\n", b'{"corral_jsonl": 2}\n[1]\n'])
def test_a_damaged_beginning_is_begun_anew(folder, tmp_path, content, caplog):
    file = tmp_path / "docs.jsonl"
    unfinished(file).mkdir()
    (unfinished(file) / "lines").write_bytes(content)
    assert export(folder, file, tell=ignore) == Exported(601, 0)
    assert "begins anew" in caplog.text


def test_a_store_that_failed_on_the_way_is_told_with_what_is_there(folder, tmp_path, monkeypatch):
    file = tmp_path / "docs.jsonl"
    with monkeypatch.context() as patch:
        Reading(patch, 300, SinkError("the store is gone."))
        with pytest.raises(IncompleteRunError, match=r"is gone\.\n300 records are in .*goes on"):
            export(folder, file, tell=ignore)
    assert export(folder, file, tell=ignore).resumed == 300


def test_only_one_process_writes_a_file(folder, server, tmp_path):
    there = SinkOptions(collection="docs", url=server.url)
    copy(folder, there, tell=ignore)
    file = tmp_path / "docs.jsonl"

    def tell(done, _):
        if done == 1:
            with pytest.raises(SinkUnavailableError, match="unfinished .*is held by"):
                export(there, file, tell=ignore)

    assert export(there, file, tell=tell).records == 601


@pytest.mark.parametrize("end", [".jsonl", ".parquet"])
def test_what_the_disk_does_not_take_is_read_again(folder, tmp_path, monkeypatch, whole, end):
    small_groups(monkeypatch)
    file = tmp_path / f"docs{end}"
    code = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "import corral_sinks.parquet\n"
        "from corral.transfer import export\n"
        "from corral_sinks import SinkOptions\n"
        "corral_sinks.parquet._ROWS = 100\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "def limit(done, _):\n"
        "    if done == 250:\n"
        "        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), -1))\n"
        "export(SinkOptions(collection='docs', path=sys.argv[1]), Path(sys.argv[2]), tell=limit)\n"
    )
    size = len(whole[end]) // 2 if end == ".jsonl" else 4096
    child = subprocess.run(
        [sys.executable, "-c", code, folder.path, file, str(size)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    words = r"IncompleteRunError: cannot write .*File too large.*\n(\d+) records are in "
    assert re.search(words, child.stderr), child.stderr
    n_records = int(re.search(words, child.stderr).group(1))
    found = export(folder, file, tell=ignore)
    assert 200 <= found.resumed <= n_records
    assert file.read_bytes() == whole[file.suffix]


@pytest.mark.parametrize("end", [".jsonl", ".parquet"])
def test_a_file_that_lost_its_end_is_not_taken_for_a_whole_one(folder, tmp_path, end):
    file = tmp_path / f"docs{end}"
    export(folder, file, tell=ignore)
    raw = file.read_bytes()
    target = SinkOptions(collection="back", path=str(tmp_path / "db"))
    for cut in (len(raw) - 1 - raw[:-1].rfind(b"\n"), 7, len(raw) // 2):
        file.write_bytes(raw[:-cut])
        with pytest.raises(SinkError, match="600 of 601 records|damaged|cannot read"):
            restore(file, target, tell=ignore)
        with closing(QdrantSink(target)) as sink:
            assert sink.schema() is None


def test_a_file_that_is_damaged_further_on_says_how_much_is_there(folder, tmp_path):
    file = tmp_path / "docs.jsonl"
    export(folder, file, tell=ignore)
    lines = file.read_bytes().splitlines(keepends=True)
    bad = {"id": record(0).id, "vectors": {"dense": 7}, "payload": {}}
    lines[500] = json.dumps(bad).encode() + b"\n"
    file.write_bytes(b"".join(lines))
    target = SinkOptions(collection="back", path=str(tmp_path / "db"))
    with pytest.raises(IncompleteRunError, match=r"(?s)dense.*shape \(\).*256 records are there"):
        restore(file, target, tell=ignore)
    lines[500] = json.dumps({"id": record(0).id, "payload": {}}).encode() + b"\n"
    file.write_bytes(b"".join(lines))
    with pytest.raises(IncompleteRunError, match=r"damaged.*\n256 records are there"):
        restore(file, target, tell=ignore)


def test_a_collection_that_changes_meanwhile_is_not_exported(folder, tmp_path, monkeypatch):
    count = QdrantSink.count
    monkeypatch.setattr(QdrantSink, "count", lambda self: count(self) + 1)
    words = r"601 records were read of a collection that has 602.*\n601 records are in"
    with pytest.raises(IncompleteRunError, match=words):
        export(folder, tmp_path / "docs.jsonl", tell=ignore)
    assert not (tmp_path / "docs.jsonl").exists()


def of_tenant(number, tenant):
    metadata = {"source": "a.md", "tenant": tenant}
    return record(number, payload={"page_content": "text", "metadata": metadata})


def test_a_tenants_records_alone_are_copied_written_and_brought(folder, server, tmp_path):
    whole = SinkOptions(collection="shared", path=folder.path)
    with closing(QdrantSink(whole)) as sink:
        sink.create(replace(SCHEMA, tenants=True))
        sink.upsert([of_tenant(number, "anna" if number < 3 else "ben") for number in range(5)])
    anna = replace(whole, tenant="anna")
    there = SinkOptions(collection="shared", url=server.url, tenant="anna")
    assert copy(anna, there, tell=ignore).points == 3
    with closing(QdrantSink(replace(there, tenant=None))) as sink:
        assert sink.count() == 3
        assert sink.schema().tenants
    assert export(anna, tmp_path / "anna.jsonl", tell=ignore).records == 3
    export(whole, tmp_path / "all.parquet", tell=ignore)
    back = SinkOptions(collection="back", path=folder.path, tenant="ben")
    assert restore(tmp_path / "all.parquet", back, tell=ignore).points == 2
    with closing(QdrantSink(replace(back, tenant=None))) as sink:
        assert sink.count() == 2
    carl = replace(whole, tenant="carl")
    for run in (
        lambda: copy(carl, there, tell=ignore),
        lambda: export(carl, tmp_path / "carl.jsonl", tell=ignore),
        lambda: restore(tmp_path / "all.parquet", replace(carl, collection="carls"), tell=ignore),
    ):
        with pytest.raises(CollectionError, match="nothing of the tenant 'carl'"):
            run()
    nobody = replace(folder, tenant="anna")
    export(folder, tmp_path / "docs.jsonl", tell=ignore)
    for run in (
        lambda: copy(nobody, there, tell=ignore),
        lambda: export(nobody, tmp_path / "x.jsonl", tell=ignore),
        lambda: restore(tmp_path / "docs.jsonl", back, tell=ignore),
    ):
        with pytest.raises(CollectionError, match="no tenants, so there are none of"):
            run()


def test_other_programs_read_the_parquet_file(folder, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    export(folder, tmp_path / "docs.parquet", tell=ignore)
    table = parquet.read_table(tmp_path / "docs.parquet")
    assert table.column_names == ["id", "payload", "dense", "multi", "words", "weights"]
    assert table.num_rows == 601
    rows = {row["id"]: row for row in table.to_pylist()}
    found = rows[mixed(3).id]
    np.testing.assert_allclose(found["dense"], vector(3), atol=1e-6)
    assert json.loads(found["payload"]) == mixed(3).payload
    assert found["weights"] is None


def test_the_jsonl_file_is_the_sinks_and_deletions_in_it_hold(folder, tmp_path):
    file = tmp_path / "docs.jsonl"
    export(folder, file, tell=ignore)
    with closing(JsonlSink(SinkOptions(collection="docs", path=str(tmp_path)))) as sink:
        assert sink.count() == 601
        sink.upsert([record(1, payload={"page_content": "new", "metadata": {"source": "n.md"}})])
        sink.delete([record(2).id])
        with read_jsonl(file) as (schema, records, _):
            found = {one.id: one for one in records}
    assert schema.vectors == SCHEMA.vectors
    assert len(found) == 600
    assert found[record(1).id].payload["page_content"] == "new"


def test_a_file_that_is_there_or_of_no_known_form_is_refused(folder, tmp_path):
    (tmp_path / "docs.jsonl").write_text("")
    with pytest.raises(UsageError, match="is there already"):
        export(folder, tmp_path / "docs.jsonl", tell=ignore)
    for run in (export, lambda *given, **rest: restore(*reversed(given), **rest)):
        with pytest.raises(UsageError, match=r"must end in \.jsonl, \.parquet"):
            run(folder, tmp_path / "docs.csv", tell=ignore)


def line(*, ids=None, payload=None, size=8, metadata=(), indexes=()):
    """Give a file of one record in which something is as it cannot be."""
    schema = asdict(
        Schema(
            vectors={"dense": VectorParams(size=size)},
            metadata=metadata if metadata is None else dict(metadata),
            indexes=dict(indexes),
        )
    )
    head = {"corral_jsonl": 2, "schema": schema}
    payload = record(1).payload if ids else payload
    entry = {"id": ids or record(1).id, "vectors": {}, "payload": payload}
    return "".join(f"{json.dumps(one)}\n" for one in (head, entry)).encode()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", b"{}\n", "damaged or not corral's"),
        ("a.jsonl", b'{"corral_jsonl": 1}\n', "version 1; this corral reads 2"),
        ("a.parquet", b"PAR1", "cannot read|damaged"),
        ("a.jsonl", line(ids=7), "record 7 has no UUID"),
        ("a.jsonl", line(ids="x"), "badly formed"),
        ("a.jsonl", line(payload=[1]), "no object for a payload"),
        ("a.jsonl", line(payload=None), "no object for a payload"),
        ("a.jsonl", line(size=-4), "at least one dimension"),
        ("a.jsonl", line(metadata=None), "not iterable"),
        ("a.jsonl", line(indexes={"metadata.source": "foo"}, payload={}), "no index of type 'foo'"),
        ("none.jsonl", None, "cannot read"),
        ("none.parquet", None, "cannot read"),
    ],
)
def test_a_file_that_cannot_be_read_is_told(tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    target = SinkOptions(collection="docs", path=str(tmp_path / "db"))
    with pytest.raises(SinkError, match=words):
        restore(tmp_path / name, target, tell=ignore)
    with closing(QdrantSink(target)) as sink:
        assert sink.schema() is None


def test_a_parquet_file_of_another_program_is_refused(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(
        pa.table({"id": ["a"]}), tmp_path / "a.parquet"
    )
    with (
        pytest.raises(SinkError, match="not written by corral"),
        read_parquet(tmp_path / "a.parquet"),
    ):
        pass


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_a_file_that_cannot_be_written_leaves_nothing(folder, tmp_path, name, monkeypatch):
    with pytest.raises(SinkError, match="cannot write"):
        export(folder, tmp_path / "no folder" / name, tell=ignore)

    def broken(*_, **__):
        raise SinkError("the store is gone")
        yield

    monkeypatch.setattr(QdrantSink, "records", broken)
    with pytest.raises(SinkError, match="store is gone"):
        export(folder, tmp_path / name, tell=ignore)
    bad = record(1, vectors={"dense": np.full(8, np.nan, np.float32)})
    monkeypatch.setattr(QdrantSink, "records", lambda *_, **__: iter([bad]))
    with pytest.raises(SinkError, match=r"a\.md.*'dense' holds a value that is not finite"):
        export(folder, tmp_path / name, tell=ignore)
    assert [one.name for one in tmp_path.iterdir()] == ["db"]


def test_without_pyarrow_the_line_for_pip_is_told(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "corral_sinks.parquet")
    target = ["--path", folder.path, "--collection", "docs"]
    with pytest.raises(SystemExit) as end:
        main(["export", str(tmp_path / "a.parquet"), *target])
    assert end.value.code == 2
    assert "pip install 'corral[parquet]'" in capsys.readouterr().err


def test_a_copied_collection_is_searched_and_the_command_line_moves_it(
    tmp_path, server, monkeypatch
):
    (tmp_path / "docs").mkdir()
    place = write(tmp_path / "docs", path=str(tmp_path / "db"))
    ends = ["--path", place["path"], "--url", server.url, "--collection", "docs"]

    code, out, err = corral("copy", *ends)
    assert (code, out.startswith("5 records: 5 written, 0 there already")) == (0, True), err
    expected = [
        (one.source, pytest.approx(one.score, abs=1e-5))
        for one in search(QUERY, target=SinkOptions(**place))
    ]
    there = SinkOptions(collection="docs", url=server.url)
    assert [(one.source, one.score) for one in search(QUERY, target=there)] == expected
    code, out, err = corral("copy", *ends, "--back", "--to", "again", "--json")
    assert json.loads(out) == {"records": 5, "written": 5, "present": 0, "points": 5}, err
    code, _, err = corral("copy", *ends[:2], *ends[4:])
    assert (code, "give both" in err) == (2, True)
    file = str(tmp_path / "notes.jsonl")
    code, out, _ = corral("export", file, *ends[:2], *ends[4:])
    assert out == f"5 records in {file}\n"
    with monkeypatch.context() as patch:
        Reading(patch, 2)
        code, _, err = corral("export", file.replace("notes", "again"), *ends[:2], *ends[4:])
        assert (code, "the same command goes on from there" in err) == (130, True)
    code, out, _ = corral("export", file.replace("notes", "again"), *ends[:2], *ends[4:])
    assert out.endswith("again.jsonl, 2 of them from before\n")
    code, out, _ = corral("import", file, *ends[:2], "--collection", "third")
    assert "5 written" in out
    assert "not among these records" not in out
    assert corral("delete", "wool.txt", "--yes", *ends[2:])[0] == 0
    code, out, _ = corral("copy", *ends, "--back", "--to", "third")
    assert "the collection has 5 points\n1 of its points are not among these records" in out


def test_progress_is_told_now_and_then(monkeypatch, capsys):
    command = sys.modules["corral.cli.transfer"]
    monkeypatch.setattr(command, "_LINE_SECONDS", -1.0)
    command._progress()(256, 1000)
    command._building()(Building(points=2, indexed=1, seconds=3))
    assert capsys.readouterr().err == "256 of 1,000 records\nindexing 1 of 2 points, for 3 s\n"


def test_the_compose_file_pins_a_server_that_fits_the_client():
    text = (ROOT / "compose.yaml").read_text()
    server = yaml.safe_load(text)["services"]["qdrant"]
    assert server["environment"] == {"QDRANT__SERVICE__API_KEY": None}  # unset where it is unset
    assert all(port.startswith("127.0.0.1:") for port in server["ports"])
    major, minor = re.search(r"image: qdrant/qdrant:v(\d+)\.(\d+)\.\d+\n", text).groups()
    ours = version("qdrant-client").split(".")
    assert major == ours[0]
    assert abs(int(minor) - int(ours[1])) <= 1
    assert server["volumes"] == ["qdrant:/qdrant/storage"]
    assert "GET /readyz HTTP/1.0" in server["healthcheck"]["test"][-1]
