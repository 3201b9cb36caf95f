"""An ingest: what is stored, what a second run does, what is refused, what becomes of bad parts."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter, defaultdict
from pathlib import Path
from urllib.parse import unquote_to_bytes

import numpy as np
import pytest
import tiny_models
from qdrant_client import models as qdrant
from qdrant_stand_in import QdrantStandIn

from corral import GGUFEmbeddings, pipeline, reading
from corral.calibration import recall
from corral.discovery import SkippedFile, SourceFile
from corral.engine import _llama
from corral.errors import (
    CollectionError,
    IncompleteRunError,
    ModelError,
    PoolingError,
    ReadError,
    UsageError,
)
from corral.fingerprint import METADATA_KEY, Fingerprint
from corral.identity import ChunkIds, content_hash
from corral.ingest import IngestOptions, ingest
from corral.metrics import prometheus
from corral.prune import vanished
from corral.readers import files
from corral.report import FileReport, Report
from corral.search import search
from corral_chunkers import ChunkerError
from corral_sinks import Record, SinkError, SinkOptions
from corral_sinks.qdrant import QdrantSink, connect
from corral_sinks.qdrant import sink as sink_module
from corral_sinks.qdrant._upload import Limits

BERT = tiny_models.bert()
QUICK = Limits(first_wait=0.01, longest_wait=0.05)
SENTENCES = "The flock went up the hill. Rain came in the night! Who closed the gate? "


def ignore(*_, **__):
    """Take no note of the progress."""


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "docs"
    root.mkdir()
    (root / "a.txt").write_text(SENTENCES * 20)
    (root / "b.md").write_text("# Title\n\nOne paragraph.\n\nAnother paragraph.\n")
    (root / "c.rst").write_text("Same text.")
    (root / "d.txt").write_text("Same text.")
    return root


@pytest.fixture
def target(tmp_path):
    return SinkOptions(collection="docs", path=str(tmp_path / "db"))


def run(folder, target, **options) -> Report:
    settings = {"model": str(BERT.path), "chunk_size": 40, "isolate": False, **options}
    return ingest(IngestOptions(paths=[folder], target=target, **settings), progress=ignore)


def points(target):
    with connect(path=target.path) as client:
        found, _ = client.scroll(target.collection, limit=10_000, with_vectors=True)
    return {str(point.id): point for point in found}


def test_every_chunk_is_stored_with_its_text_offsets_and_vector(folder, target):
    report = run(folder, target)
    stored = points(target)
    assert report.files == Counter(stored=4)
    assert len(stored) == report.chunks == report.embedded > 8
    with GGUFEmbeddings(BERT.path) as embeddings:
        for point in stored.values():
            metadata = point.payload["metadata"]
            text = (folder / metadata["source"]).read_text()
            assert text[metadata["start"] : metadata["end"]] == point.payload["page_content"]
            assert metadata["content_hash"] == content_hash(point.payload["page_content"])
            assert metadata["truncated"] is False
            assert metadata["model"] == str(BERT.path)
            read = metadata.get("context", "") + point.payload["page_content"]
            expected = embeddings.embed([read])[0]
            np.testing.assert_allclose(point.vector["dense"], expected, atol=2e-3)
            assert metadata["n_tokens"] == embeddings.sequences("").count(read)
        tokens = sum(point.payload["metadata"]["n_tokens"] for point in stored.values())
    assert report.tokens == tokens


def test_equal_texts_in_two_files_and_twice_in_one_keep_points_of_their_own(folder, target):
    (folder / "e.txt").write_text("Same text.\n" * 40)
    run(folder, target, chunk_size=6)
    by_source = Counter(
        point.payload["metadata"]["source"]
        for point in points(target).values()
        if point.payload["page_content"].startswith("Same")
    )
    assert by_source["c.rst"] == by_source["d.txt"] == 1
    assert by_source["e.txt"] > 10


def test_a_run_by_the_same_model_at_another_place_changes_nothing(folder, target, tmp_path):
    run(folder, target)
    moved = tmp_path / "moved.gguf"
    moved.write_bytes(BERT.path.read_bytes())
    report = run(folder, target, model=str(moved))
    assert (report.embedded, report.moved, report.files) == (0, 0, Counter(unchanged=4))


def test_a_second_run_embeds_writes_and_deletes_nothing(folder, target, monkeypatch):
    run(folder, target)
    before = points(target)
    for name in ("upsert", "set_payload", "delete"):
        monkeypatch.setattr(QdrantSink, name, lambda *_: pytest.fail("the store was written to"))
    monkeypatch.setattr(GGUFEmbeddings, "embed_checked", lambda *_: pytest.fail("embedded"))
    report = run(folder, target)
    assert report.files == Counter(unchanged=4)
    assert (report.embedded, report.moved, report.deleted) == (0, 0, 0)
    assert report.reused == report.chunks == len(before)
    assert points(target) == before


def contents(path):
    return {file: file.read_bytes() for file in Path(path).rglob("*") if file.is_file()}


@pytest.mark.parametrize("sink", ["qdrant", "jsonl"])
@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_a_second_run_decodes_nothing_and_leaves_the_store_as_it_is_at_any_batch_size(
    folder, target, monkeypatch, sink, batch
):
    monkeypatch.setattr(pipeline, "_BATCH_CHUNKS", batch)
    run(folder, target, sink=sink)
    if sink == "qdrant":
        points(target)  # the engine tidies its journals when it is opened again
    before = contents(target.path)
    monkeypatch.setattr(_llama.Context, "decode", lambda *_: pytest.fail("decoded"))
    for number in (batch, 3):
        monkeypatch.setattr(pipeline, "_BATCH_CHUNKS", number)
        assert run(folder, target, sink=sink, prune=True).files == Counter(unchanged=4)
        assert contents(target.path) == before


@pytest.mark.parametrize(("worth", "n_calls"), [(1500, 1), (1_000_000, 0)])
@pytest.mark.usefixtures("empty_cache")
def test_a_run_calibrates_when_there_is_much_to_embed_and_never_for_nothing(
    folder, target, monkeypatch, worth, n_calls
):
    calls = []
    calibrate = GGUFEmbeddings.calibrate
    monkeypatch.setattr("corral.run._WORTH_CALIBRATING", worth)
    monkeypatch.setattr(GGUFEmbeddings, "calibrate", lambda self: calls.append(calibrate(self)))
    first = run(folder, target)
    assert first.bytes_total > 1500
    assert len(calls) == n_calls
    assert 0 < first.model_busy <= 1
    assert run(folder, target).files == Counter(unchanged=4)
    assert len(calls) == n_calls


class TestPrune:
    def test_what_is_stored_of_files_that_are_gone_is_deleted(self, folder, target):
        run(folder, target)
        held = Counter(p.payload["metadata"]["source"] for p in points(target).values())
        (folder / "a.txt").unlink()
        (folder / "d.txt").rename(folder / "moved.txt")
        planned = run(folder, target, prune=True, dry_run=True)
        assert planned.pruned == ["a.txt", "d.txt"]
        assert planned.deleted == held["a.txt"] + held["d.txt"]
        assert {"a.txt", "d.txt"} <= sources(target)
        done = run(folder, target, prune=True)
        assert (done.pruned, done.deleted) == (planned.pruned, planned.deleted)
        assert done.as_dict()["pruned"] == ["a.txt", "d.txt"]
        assert sources(target) == {"b.md", "c.rst", "moved.txt"}

    def test_files_that_a_pattern_leaves_out_are_not_gone(self, folder, target):
        run(folder, target)
        (folder / "c.rst").unlink()
        assert run(folder, target, prune=True, include=("*.md",)).pruned == ["c.rst"]
        assert sources(target) == {"a.txt", "b.md", "d.txt"}

    def test_files_that_are_no_text_any_more_are_not_gone(self, folder, target):
        run(folder, target)
        (folder / "c.rst").write_bytes(bytes(100))
        assert run(folder, target, prune=True).pruned == []

    def test_nothing_goes_where_the_answer_is_no(self, folder, target):
        run(folder, target)
        (folder / "c.rst").unlink()
        asked = []
        options = IngestOptions(
            paths=[folder],
            target=target,
            model=str(BERT.path),
            chunk_size=40,
            prune=True,
            isolate=False,
        )
        report = ingest(options, progress=ignore, may_prune=asked.append)
        assert asked == [["c.rst"]]
        assert report.pruned == []
        assert "c.rst" in sources(target)

    def test_nothing_goes_where_a_file_failed_since_it_may_be_the_renamed_one(
        self, folder, target, monkeypatch, caplog
    ):
        run(folder, target)
        (folder / "c.rst").rename(folder / "new.rst")
        read = files.read_bytes

        def forbidden(path, **options):
            if path.name == "new.rst":
                raise ReadError(f"{path} cannot be read: Permission denied.")
            return read(path, **options)

        monkeypatch.setattr(files, "read_bytes", forbidden)
        report = run(folder, target, prune=True)
        assert report.files["failed"] == 1
        assert report.pruned == []
        assert "not pruned" in caplog.text
        assert "c.rst" in sources(target)

    def test_a_folder_that_is_empty_or_another_one_empties_nothing(self, folder, target, tmp_path):
        more, other = tmp_path / "more", tmp_path / "other"
        for new in (more, other):
            new.mkdir()
            (new / "x.txt").write_text("An x.")
        ingest_both = {
            "paths": [folder, more],
            "target": target,
            "model": str(BERT.path),
            "isolate": False,
        }
        ingest(IngestOptions(**ingest_both), progress=ignore)
        before = points(target)
        with pytest.raises(UsageError, match="none of its 5 sources.*ingest without --prune"):
            run(other, target, prune=True, chunk_size=None)
        (more / "x.txt").unlink()
        with pytest.raises(UsageError, match=r"all files of .*more would be taken for gone"):
            ingest(IngestOptions(**ingest_both, prune=True), progress=ignore)
        more.rmdir()
        with pytest.raises(UsageError, match="more cannot be read"):
            ingest(IngestOptions(**ingest_both, prune=True), progress=ignore)
        assert points(target) == before

    def test_a_folder_that_cannot_be_looked_into_empties_nothing(self):
        files = [
            SourceFile(Path("docs/a.txt"), "a.txt"),
            SkippedFile(Path("docs/deep"), "deep", "it cannot be looked into: no", failed=True),
        ]
        with pytest.raises(UsageError, match=r"which files are gone: docs.deep: it cannot"):
            vanished(["a.txt", "deep/b.txt"], files, [Path("docs")])

    def test_nothing_is_gone_from_an_empty_collection(self, folder, target):
        assert run(folder, target, prune=True).pruned == []
        assert vanished([], [SourceFile(folder / "a.txt", "a.txt")], [folder]) == []


def sources(target):
    return {point.payload["metadata"]["source"] for point in points(target).values()}


def test_an_inserted_paragraph_costs_only_its_own_chunk_and_mends_the_moved_ones(folder, target):
    book = folder / "a.txt"
    paragraphs = [f"Paragraph number {i:02} of the book of the flock.\n\n" for i in range(12)]
    book.write_text("".join(paragraphs))
    with GGUFEmbeddings(BERT.path) as embeddings:
        size = max(map(embeddings.sequences("").count, paragraphs))
    run(folder, target, chunk_size=size)
    before = points(target)
    new = "Paragraph number XX of the book of the flock.\n\n"
    book.write_text("".join([*paragraphs[:6], new, *paragraphs[6:]]))
    report = run(folder, target, chunk_size=size)
    after = points(target)
    assert 1 <= report.embedded <= 3
    assert report.moved >= 3
    text = book.read_text()
    for point in after.values():
        metadata = point.payload["metadata"]
        if metadata["source"] == "a.txt":
            assert text[metadata["start"] : metadata["end"]] == point.payload["page_content"]
    kept = before.keys() & after.keys()
    assert all(after[key].vector == before[key].vector for key in kept)
    assert len(before.keys() - after.keys()) == report.deleted


def test_a_file_that_was_emptied_loses_its_chunks_and_one_that_vanished_keeps_them(folder, target):
    run(folder, target)
    (folder / "a.txt").write_text(" \n")
    (folder / "b.md").unlink()
    report = run(folder, target)
    sources = {point.payload["metadata"]["source"] for point in points(target).values()}
    assert sources == {"b.md", "c.rst", "d.txt"}
    assert report.deleted > 0
    assert ("a.txt", f"{folder / 'a.txt'} holds nothing but white space.") in report.reasons
    assert report.all_stored


def test_bad_files_are_listed_and_the_others_stored(folder, target):
    (folder / "binary.txt").write_bytes(b"\x00\x01\x02" * 100)
    (folder / "empty.txt").write_bytes(b"")
    (folder / "gone.txt").symlink_to(folder / "nowhere.txt")
    report = run(folder, target)
    assert report.files["stored"] == 4
    assert {source for source, _ in report.reasons} == {"binary.txt", "empty.txt", "gone.txt"}


def test_a_file_that_may_not_be_read_fails_the_run_and_no_other_file(folder, target, monkeypatch):
    read = files.read_bytes

    def forbidden(path, **options):
        if path.name == "b.md":
            raise ReadError(f"{path} cannot be read: Permission denied.")
        return read(path, **options)

    monkeypatch.setattr(files, "read_bytes", forbidden)
    report = run(folder, target)
    assert report.files == Counter(stored=3, failed=1)
    assert not report.all_stored
    assert report.reasons[0][0] == "b.md"


def test_a_file_over_the_limit_is_skipped_with_the_numbers(folder, target):
    report = run(folder, target, max_file_size=100)
    assert report.files == Counter(stored=3, skipped=1)
    assert "the limit is 100" in report.reasons[0][1]


ODD_TEXTS = {
    "bom.txt": ("With a mark.\r\nAnd cafe\u0301s in NFD.\r\n", "utf-8-sig"),
    "plain.md": (
        "No mark: caf\u00e9, \U0001f468\u200d\U0001f469, \u05e9\u05dc\u05d5\u05dd.",
        "utf-8",
    ),
    "wide.txt": ("Two bytes each: \u00e9\u4e2d.\n", "utf-16"),
    "french.txt": (
        "Na\u00efve caf\u00e9s, \u201csmart\u201d quotes \u2013 and a dash\u2026\n",
        "cp1252",
    ),
    "japanese.txt": (
        "\u543e\u8f29\u306f\u732b\u3067\u3042\u308b\u3002\u540d\u524d\u306f\u307e\u3060\u7121\u3044\u3002\n",
        "shift_jis",
    ),
    "chinese.txt": (
        "\u5b66\u800c\u65f6\u4e60\u4e4b\uff0c\u4e0d\u4ea6\u8bf4\u4e4e\uff1f\u6709\u670b\u81ea\u8fdc\u65b9\u6765\u3002\n",
        "gb18030",
    ),
    "line\nfeed.txt": ("A name of two lines.", "utf-8"),
}


def odd_folder(root):
    """Make a folder of every kind of file; return the sources that are no text, with a word why."""
    for name, (text, encoding) in ODD_TEXTS.items():
        (root / name).write_bytes(text.encode(encoding))
    Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9.txt")).write_text("A name that is no UTF-8.")
    (root / "nul.txt").write_bytes(b"text with a NUL \x00 in it")
    (root / "binary.txt").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    (root / "empty.txt").touch()
    (root / "loop.txt").symlink_to("loop.txt")
    (root / "up").symlink_to("..")
    os.mkfifo(root / "fifo.txt")
    with (root / "huge.txt").open("wb") as huge:
        huge.truncate(2**31)
    (root / "secret.txt").write_text("Of nobody's business.")
    (root / "shrinking.txt").write_text("It shrinks while it is read. " * 100)
    return {
        "nul.txt": "NUL", "binary.txt": "PNG", "empty.txt": "is empty", "fifo.txt": "FIFO",
        "huge.txt": "2,147,483,648 bytes; the limit is 134,217,728", "up": "outside",
        "loop.txt": "leads nowhere",
    }  # fmt: skip


def test_of_a_folder_of_odd_files_all_is_stored_right_or_listed(folder, target, monkeypatch):
    shutil.rmtree(folder)
    folder.mkdir()
    skipped = odd_folder(folder)
    read_bytes, fstat = reading._open, os.fstat

    def opened(path, flags):
        if path.endswith("secret.txt"):
            raise PermissionError(13, "Permission denied", path)
        return read_bytes(path, flags)

    def shrunk(handle):
        found = fstat(handle)
        if os.path.samestat(found, shrinking):
            os.truncate(folder / "shrinking.txt", 10)
        return found

    monkeypatch.setattr(reading, "_open", opened)
    shrinking = (folder / "shrinking.txt").stat()
    monkeypatch.setattr(os, "fstat", shrunk)
    report = run(folder, target)
    monkeypatch.undo()
    failed = {"secret.txt": "Permission denied", "shrinking.txt": "changed while it was read"}
    told = {entry.source: entry for entry in report.entries if entry.error}
    assert told.keys() == skipped.keys() | failed.keys()
    for source, words in {**skipped, **failed}.items():
        assert words in told[source].error
        assert told[source].status == ("failed" if source in failed else "skipped")
    texts = {name: text for name, (text, _) in ODD_TEXTS.items()}
    texts["caf\udce9.txt"] = "A name that is no UTF-8."
    stored = defaultdict(list)
    for point in points(target).values():
        metadata = point.payload["metadata"]
        name = os.fsdecode(unquote_to_bytes(metadata["source"]))
        stored[name].append(metadata)
        text = texts[name]
        assert text[metadata["start"] : metadata["end"]] == point.payload["page_content"]
    assert stored.keys() == texts.keys()
    for name, pieces in stored.items():
        covered = {at for piece in pieces for at in range(piece["start"], piece["end"])}
        assert "".join(texts[name][at] for at in sorted(covered)).split() == texts[name].split()


def test_a_folder_of_odd_names_is_told_of_on_any_terminal(folder, target):
    odd_folder(folder)
    (folder / "line\nfeed.txt").write_bytes(bytes(9))
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.txt")).write_bytes(bytes(9))
    report_file = folder.parent / "report.json"
    for options in ((), ("--json", "--report", str(report_file))):
        child = subprocess.run(
            [sys.executable, "-m", "corral.cli", "ingest", str(folder), "--path", target.path,
             "--collection", "docs", "--model", str(BERT.path), "-v", *options],
            capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
        assert (child.returncode, "Traceback" in child.stderr) == (0, False), child.stderr
    assert {"line%0Afeed.txt", "caf%E9.txt"} <= {
        entry["source"] for entry in json.loads(report_file.read_text())["files"]
    }


def test_what_links_lead_to_is_stored_on_demand(folder, target, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.txt").write_text("From elsewhere.")
    (folder / "link").symlink_to(outside)
    assert run(folder, target).files["skipped"] == 1
    assert run(folder, target, follow_symlinks=True).files == Counter(stored=1, unchanged=4)
    assert "link/x.txt" in sources(target)
    assert run(folder, target, follow_symlinks=True, prune=True).pruned == []


def test_a_line_of_200_kilobytes_is_cut_and_stored(folder, target):
    (folder / "line.txt").write_text("x" * 100_000 + " " + "word " * 20_000)
    report = run(folder, target, chunk_size=500)
    assert report.files["stored"] == 5
    assert report.truncated == 0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"chunk_size": 41}, "chunker.size: the collection has 40, this run has 41"),
        ({"chunk_overlap": 4}, "chunker.overlap: the collection has 0, this run has 4"),
        ({"model_options": {"document_prefix": "d: "}}, "document_prefix: .*'', .*'d: '"),
        ({"model": str(tiny_models.bert(seed=1).path)}, "model_sha256: "),
    ],
)
def test_other_settings_are_refused_with_each_field_before_any_file_is_read(
    folder, target, monkeypatch, options, named
):
    run(folder, target)
    monkeypatch.setattr(files, "read_bytes", lambda *_, **__: pytest.fail("a file was read"))
    with pytest.raises(CollectionError, match=f"(?s)'docs' was made with other.*{named}"):
        run(folder, target, **options)


def test_a_collection_that_corral_did_not_write_is_refused(folder, target):
    with connect(path=target.path) as client:
        client.create_collection(
            "docs", {"dense": qdrant.VectorParams(size=4, distance=qdrant.Distance.COSINE)}
        )
    with pytest.raises(CollectionError, match="no fingerprint: it was not written by corral"):
        run(folder, target)


def test_a_collection_with_our_fingerprint_and_other_vectors_is_refused(folder, target):
    run(folder, target)
    with connect(path=target.path) as client:
        metadata = client.get_collection("docs").config.metadata
        client.delete_collection("docs")
        client.create_collection(
            "docs",
            {"dense": qdrant.VectorParams(size=4, distance=qdrant.Distance.DOT)},
            metadata=metadata,
        )
    with pytest.raises(CollectionError, match="has the vectors .*size=4.*this run writes"):
        run(folder, target)


def test_an_empty_folder_and_a_missing_one_are_refused_before_the_model_is_opened(tmp_path, target):
    (tmp_path / "empty").mkdir()
    for name in ("empty", "missing"):
        with pytest.raises(UsageError, match=name):
            run(tmp_path / name, target, model="no-such-model")


def test_what_cannot_be_stored_is_refused(folder, target):
    with pytest.raises(PoolingError, match="no vector of a whole text"):
        run(folder, target, model=str(tiny_models.bert(pooling="none").path),
            model_options={"pooling_type": "none"})  # fmt: skip
    with pytest.raises(ModelError):
        run(folder, target, model="no-such-model")
    with pytest.raises(UsageError, match="no chunker 'scissors'; installed are: .*tokens"):
        run(folder, target, chunker="scissors")
    with pytest.raises(UsageError, match="no sink 'drain'; installed are: .*jsonl, qdrant"):
        run(folder, target, sink="drain")
    with pytest.raises(UsageError, match=r"chunk size is 600 tokens; the model takes 512"):
        run(folder, target, chunk_size=600)


def test_chunks_over_the_models_limit_are_truncated_on_demand_and_counted(folder, target):
    report = run(
        folder, target, chunk_size=60, model_options={"n_ubatch": 32, "over_length": "truncate"}
    )
    truncated = [p for p in points(target).values() if p.payload["metadata"]["truncated"]]
    assert report.truncated == len(truncated) > 0


def test_a_chunk_size_of_zero_is_no_default(folder, target):
    with pytest.raises(ChunkerError, match="size"):
        run(folder, target, chunk_size=0)


def test_the_default_chunk_size_is_what_the_model_takes(folder, target):
    run(folder, target, chunk_size=None, model_options={"n_ubatch": 64})
    sizes = [point.payload["metadata"]["n_tokens"] for point in points(target).values()]
    assert 32 < max(sizes) <= 64


def test_a_chunk_without_a_usable_vector_is_quarantined_and_its_neighbours_stored(
    folder, target, monkeypatch, caplog
):
    run(folder, target)
    whole = points(target)

    class Spoiled(_llama.Context):
        def decode(self, tokens, positions, sequences, **options):
            super().decode(tokens, positions, sequences, **options)
            self._lengths = np.bincount(sequences)

        def pooled_row(self, sequence):
            row = super().pooled_row(sequence)
            return row * np.nan if self._lengths[sequence] in bad_lengths else row

    def tell(point):
        return tuple(point.payload["metadata"][name] for name in ("source", "start", "end"))

    lengths = {tell(point): point.payload["metadata"]["n_tokens"] for point in whole.values()}
    bad_lengths = {min(lengths.values()), lengths[min(lengths)]}
    spoiled = {chunk for chunk, length in lengths.items() if length in bad_lengths}
    assert 3 < len(spoiled) < len(lengths)
    monkeypatch.setattr(_llama, "Context", Spoiled)
    fresh = SinkOptions(collection="fresh", path=target.path)
    report = run(folder, fresh)
    assert report.quarantined == len(spoiled) > 0
    assert len(points(fresh)) == len(whole) - len(spoiled)
    assert not report.all_stored
    assert any("no vector for characters 0 to" in reason for _, reason in report.reasons)
    told = {
        (entry["source"], lost["start"], lost["end"])
        for entry in report.as_dict()["files"]
        for lost in entry["quarantined"]
    }
    assert told == spoiled
    for source, start, end in told:
        assert f"no vector for characters {start} to {end} of {source}: " in caplog.text
    assert any("; nor for " in reason for _, reason in report.reasons)
    monkeypatch.undo()
    mended = run(folder, fresh)
    assert mended.embedded == len(spoiled)
    assert points(fresh).keys() == whole.keys()


COMPLETED = {"operation_id": 1, "status": "completed"}


def test_points_that_a_server_acknowledges_and_drops_are_missed_in_the_end(folder, tmp_path):
    with QdrantStandIn(tmp_path / "server") as server:
        target = SinkOptions(collection="docs", url=server.url)
        server.fail(result=COMPLETED)
        report = run(folder, target)
        assert report.points == 0
        assert report.missing == report.points_expected == report.chunks > 0
        (failure,) = report.failures
        assert failure == (
            f"{report.chunks} chunks were acknowledged and are not in the collection "
            f"(it has 0 points, {report.chunks} expected)"
        )
        mended = run(folder, target)
        assert mended.failures == []
        assert mended.points == mended.embedded == mended.totals()["points"] == report.chunks
        (folder / "b.md").write_text("All of it is new.")
        server.fail(method="POST", path="/points/delete", result=COMPLETED)
        report = run(folder, target)
        assert report.surplus == report.points - report.points_expected == report.deleted > 0
        assert "points of these files are in the collection beside theirs" in report.failures[0]


def test_points_that_others_write_meanwhile_are_no_difference(folder, target, monkeypatch, caplog):
    optimize = QdrantSink.optimize

    def meanwhile(self, tell):
        optimize(self, tell)
        payload = {"page_content": "x", "metadata": {"source": "other.txt"}}
        vectors = {"dense": np.ones(64, np.float32)}
        self.upsert([Record(id=str(uuid.uuid4()), vectors=vectors, payload=payload)])

    (folder / "empty.txt").touch()
    monkeypatch.setattr(QdrantSink, "optimize", meanwhile)
    report = run(folder, target)
    assert report.failures == []
    assert report.points == report.points_expected + 1 == len(points(target))
    assert "another run has written to it meanwhile" in caplog.text


def test_a_store_that_fails_ends_the_run_and_what_it_took_is_kept(folder, target, monkeypatch):
    for i in range(20):
        (folder / f"more-{i}.txt").write_text(SENTENCES * 10)
    upsert = QdrantSink.upsert
    calls = []

    def failing(self, records):
        calls.append(len(records))
        if len(calls) == 2:
            raise SinkError("the disk is full")
        upsert(self, records)

    monkeypatch.setattr(QdrantSink, "upsert", failing)
    with pytest.raises(IncompleteRunError, match=r"(?s)the disk is full.*[0-9]+ chunks are stored"):
        run(folder, target)
    monkeypatch.undo()
    taken = len(points(target))
    assert taken == calls[0]
    report = run(folder, target)
    assert report.reused >= taken
    assert report.chunks == len(points(target))
    assert not [t for t in threading.enumerate() if t.name.startswith("corral-")]


def test_a_fault_while_reading_ends_the_run(folder, target, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(files, "read_bytes", broken)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        run(folder, target)


def test_progress_is_told_until_all_is_done(folder, target):
    told = []
    options = IngestOptions(paths=[folder], target=target, model=str(BERT.path), isolate=False)
    report = ingest(
        options,
        progress=lambda _, *, files_done, bytes_done: told.append((files_done, bytes_done)),
    )
    assert told == sorted(told)
    assert told[-1] == (4, sum(path.stat().st_size for path in folder.iterdir()))
    assert (report.files_total, report.bytes_total) == told[-1]
    assert 0 < report.model_busy <= 1
    assert report.tokens_per_second > 0


def test_the_report_tells_of_each_file_what_the_totals_add_up_to(folder, target):
    (folder / "e.txt").touch()
    (folder / "b.md").write_text("word " * 100)
    options = {"chunk_size": 60, "model_options": {"n_ubatch": 32, "over_length": "truncate"}}
    report = run(folder, target, **options)
    told = report.as_dict()
    entries = {entry.pop("source"): entry for entry in told["files"]}
    assert entries.keys() == {"a.txt", "b.md", "c.rst", "d.txt", "e.txt"}
    for name in ("chunks", "tokens", "truncated"):
        assert sum(entry[name] for entry in entries.values()) == told["totals"][name] > 0
    assert entries["e.txt"]["status"] == "skipped"
    assert entries["e.txt"]["error"].endswith("e.txt is empty.")
    assert entries["c.rst"]["error"] is None
    assert all(0 <= entry["seconds"] <= report.seconds for entry in entries.values())
    assert told["totals"]["files"] == 5
    assert (told["totals"]["stored"], told["totals"]["skipped"]) == (4, 1)
    again = run(folder, target, **options)
    assert {entry.status for entry in again.entries} == {"unchanged", "skipped"}
    assert {entry.tokens for entry in again.entries} == {0}


def test_a_dry_run_tells_what_the_run_then_does_and_touches_nothing(
    folder, target, tmp_path, monkeypatch
):
    monkeypatch.setattr(GGUFEmbeddings, "embed_checked", lambda *_: pytest.fail("embedded"))
    counted = ("chunks", "embedded", "reused", "moved", "deleted", "tokens")
    first = run(folder, target, dry_run=True)
    assert not (tmp_path / "db").exists()
    monkeypatch.undo()
    assert (
        run(folder, target).totals().items()
        >= {name: first.totals()[name] for name in ("files", "stored", *counted)}.items()
    )
    (folder / "a.txt").write_text("".join(f"Other words, number {i}. " for i in range(30)))
    (folder / "binary.txt").write_bytes(bytes(100))
    before = points(target)
    second = run(folder, target, dry_run=True)
    assert points(target) == before
    done = run(folder, target)
    after = points(target)
    assert second.files == done.files == Counter(stored=1, unchanged=3, skipped=1)
    assert {name: second.totals()[name] for name in counted} == {
        name: done.totals()[name] for name in counted
    }
    assert done.deleted > 0
    new = [point for key, point in after.items() if key not in before]
    assert len(new) == done.embedded > 0 == done.moved
    for point in new:
        del point.payload["metadata"]["truncated"]
    n_payloads = sum(len(json.dumps(point.payload)) for point in new)
    n_vectors = sum(4 * len(point.vector["dense"]) for point in new)
    assert second.bytes_to_write == n_payloads + n_vectors


@pytest.mark.usefixtures("empty_cache")
def test_a_dry_run_knows_the_time_where_the_model_was_calibrated(folder, target):
    assert run(folder, target, dry_run=True).expected_seconds is None
    with GGUFEmbeddings(BERT.path) as embeddings:
        embeddings.calibrate()
        known = recall(embeddings.settings["model_sha256"])
    report = run(folder, target, dry_run=True)
    rate = known.trials[known.setting]
    assert report.totals()["expected_seconds"] == pytest.approx(report.tokens / rate)


def test_a_dry_run_refuses_other_settings_too(folder, target):
    run(folder, target)
    with pytest.raises(CollectionError, match="chunker.size"):
        run(folder, target, chunk_size=41, dry_run=True)


def test_strict_makes_failures_of_skipped_files_and_truncated_chunks(folder, target):
    options = {"chunk_size": 60, "model_options": {"n_ubatch": 32, "over_length": "truncate"}}
    (folder / "empty.txt").touch()
    lax = run(folder, target, **options)
    assert (lax.failures, lax.all_stored) == ([], True)
    fresh = SinkOptions(collection="fresh", path=target.path)
    strict = run(folder, fresh, strict=True, **options)
    assert strict.failures == [
        "1 files skipped (--strict)",
        f"{strict.truncated} chunks truncated (--strict)",
    ]
    assert not strict.all_stored


def test_what_was_counted_is_told_where_the_run_ends_early(folder, target, monkeypatch):
    def failing(*_):
        raise SinkError("the disk is full")

    monkeypatch.setattr(QdrantSink, "upsert", failing)
    report = Report()
    options = IngestOptions(paths=[folder], target=target, model=str(BERT.path), isolate=False)
    with pytest.raises(IncompleteRunError):
        ingest(options, progress=ignore, report=report)
    assert report.error == "the disk is full"
    assert report.failures[0] == "the run ended before its end"
    assert not report.summary()["ok"]
    assert report.seconds > 0


def test_metrics_are_written_as_prometheus_reads_them():
    report = Report(embedded=3, points=5, reused=2, tokens=70, seconds=2.0)
    report.add(FileReport(source="a", status="stored", chunks=5))
    text = prometheus(report, collection='do"c\\s', finished_at=1.5)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    label = r'collection="do\"c\\s"'
    assert f"corral_ingest_success{{{label}}} 1" in lines
    assert f'corral_ingest_files{{{label},status="stored"}} 1' in lines
    assert f'corral_ingest_chunks_by_fate{{{label},fate="embedded"}} 3' in lines
    assert f"corral_ingest_finished_timestamp_seconds{{{label}}} 1.5" in lines
    sample = re.compile(r'[a-z_]+\{([a-z]+="(\\.|[^"\\])*",?)+\} [0-9.]+')
    assert all(sample.fullmatch(line) for line in lines)
    named = {line.partition("{")[0] for line in lines}
    assert named == set(re.findall(r"^# TYPE (\S+) gauge$", text, re.MULTILINE))
    report.error = "the disk is full"
    assert f"corral_ingest_success{{{label}}} 0" in prometheus(
        report, collection='do"c\\s', finished_at=1.5
    )


def test_an_empty_report_divides_by_nothing():
    assert (Report().tokens_per_second, Report().model_busy) == (0.0, 0.0)


def test_the_jsonl_sink_takes_an_ingest_too(folder, tmp_path):
    target = SinkOptions(collection="docs", path=str(tmp_path / "lines"))
    report = run(folder, target, sink="jsonl")
    again = run(folder, target, sink="jsonl")
    (file,) = (tmp_path / "lines").glob("docs*.jsonl")
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert len([record for record in records if "vectors" in record]) == report.embedded
    assert (again.embedded, again.reused) == (0, report.chunks)


def wait_until(condition):
    ends = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


def start(folder, target, *options, stderr=subprocess.PIPE):
    """Run an ingest in a child process; give it when it has made the collection."""
    child = subprocess.Popen(
        [sys.executable, "-m", "corral.cli", "ingest", str(folder), "--path", target.path,
         "--collection", target.collection, "--model", str(BERT.path), "--chunk-size", "40",
         *options],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True,
    )  # fmt: skip
    wait_until((Path(target.path) / target.collection).exists)
    return child


def many_files(folder, n=300):
    for i in range(n):
        (folder / f"more-{i}.txt").write_text(f"Number {i}. " + SENTENCES * 20)


@pytest.mark.parametrize("seconds", [0.0, 0.3, 0.8])
def test_a_run_that_is_killed_goes_on_where_it_was(folder, target, seconds):
    many_files(folder, 100)
    child = start(folder, target)
    time.sleep(seconds)
    child.kill()
    child.communicate(timeout=60)
    with connect(path=target.path) as client:
        there = client.collection_exists(target.collection)
        taken = client.count(target.collection).count if there else 0
    report = run(folder, target)
    assert report.reused == taken
    assert report.chunks == len(points(target)) == report.reused + report.embedded


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_run_in_order_and_says_how_to_go_on(folder, target, tmp_path, number):
    many_files(folder)
    log = tmp_path / "log.txt"
    with log.open("w") as stderr:
        child = start(folder, target, "-v", stderr=stderr)
        wait_until(lambda: "stored more-" in log.read_text())
        child.send_signal(number)
        printed, _ = child.communicate(timeout=60)
    said = log.read_text()
    assert child.returncode == 130
    assert "run the same command again" in said
    assert "failed   the run ended before its end" in printed
    assert "Traceback" not in said
    left = run(folder, target, dry_run=True)
    assert left.reused == len(points(target)) < left.chunks


def whole(folder, tmp_path):
    """What a run that nothing disturbed stores of the folder."""
    return run_to_points(folder, SinkOptions(collection="whole", path=str(tmp_path / "whole")))


def run_to_points(folder, target):
    run(folder, target)
    return {key: (p.payload, p.vector) for key, p in points(target).items()}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_runs_that_are_killed_at_twenty_random_moments_end_in_what_one_run_stores(
    folder, target, tmp_path
):
    many_files(folder)
    expected = whole(folder, tmp_path)
    child = start(folder, target)
    began = time.monotonic()
    child.communicate(timeout=300)
    seconds = time.monotonic() - began
    shutil.rmtree(target.path)
    drawn = random.Random(7)
    partial = 0
    for _ in range(20):
        child = start(folder, target)
        time.sleep(drawn.uniform(0, 0.7 * seconds))
        child.kill()
        child.communicate(timeout=60)
        with connect(path=target.path) as client:
            there = client.collection_exists(target.collection)
        taken = points(target) if there else {}
        assert taken.keys() <= expected.keys()
        if len(taken) == len(expected):
            shutil.rmtree(target.path)
        else:
            partial += len(taken) > 0
    assert partial > 3
    taken = len(points(target)) if Path(target.path, target.collection).exists() else 0
    found = run_to_points(folder, target)
    assert found.keys() == expected.keys()
    for key, (payload, vector) in expected.items():
        assert found[key][0] == payload
        np.testing.assert_allclose(found[key][1]["dense"], vector["dense"], atol=2e-3)
    assert run(folder, target).reused == len(expected) >= taken


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_memory_does_not_grow_with_the_corpus(tmp_path):
    """The peaks of the run and of the model's process, at 2,000 and at 20,000 chunks."""
    code = """
import json, resource, sys
from corral.cli import ingest_main
try:
    ingest_main(sys.argv[1:])
except SystemExit as ended:
    of = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    peaks = [resource.getrusage(one).ru_maxrss for one in of]
    print(json.dumps([ended.code, *peaks]), file=sys.stderr)
"""
    peaks = []
    for n_files in (20, 200):
        folder = tmp_path / f"{n_files} files"
        folder.mkdir()
        for number in range(n_files):
            text = "".join(f"{number} and {line}. {SENTENCES}" for line in range(100))
            (folder / f"{number}.txt").write_text(text)
        done = subprocess.run(
            [sys.executable, "-c", code, folder, "--sink", "jsonl", "--path", tmp_path / "db",
             "--collection", f"of{n_files}", "--model", BERT.path, "--chunk-size", "60", "--json"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        code_of_exit, *peak = json.loads(done.stderr.splitlines()[-1])
        assert code_of_exit == 0, done.stderr
        assert json.loads(done.stdout)["totals"]["embedded"] >= 100 * n_files
        peaks.append(peak)
    (run_before, model_before), (run_after, model_after) = peaks
    assert run_after < 1.15 * run_before
    assert model_after < 1.15 * model_before


class TestServer:
    """Runs against one server, which stays while they come, fail and go."""

    @pytest.fixture(autouse=True)
    def _server(self, tmp_path, monkeypatch):
        monkeypatch.setattr(sink_module, "Limits", lambda: QUICK)
        with QdrantStandIn(tmp_path / "server") as self.server:
            self.target = SinkOptions(collection="docs", url=self.server.url)
            yield

    def stored(self):
        found, _ = self.server.engine.scroll("docs", limit=10_000, with_vectors=True)
        return {str(point.id): point.payload for point in found}

    def start(self, folder):
        return subprocess.Popen(
            [sys.executable, "-m", "corral.cli", "ingest", str(folder), "--url", self.server.url,
             "--collection", "docs", "--model", str(BERT.path), "--chunk-size", "40"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def test_connections_that_are_dropped_lose_and_double_nothing(self, folder):
        many_files(folder, 40)
        drawn = random.Random(7)
        run(folder, SinkOptions(collection="clean", url=self.server.url))
        expected = self.server.engine.count("clean").count
        calls = [
            ("PUT", "/docs/points"),
            ("POST", "/docs/points/scroll"),
            ("POST", "/docs/points/count"),
            ("GET", "/docs"),
            ("PUT", "/docs/index"),
        ]
        for _ in range(20):
            method, path = drawn.choice(calls)
            self.server.fail(method=method, path=path, drop=True, apply=drawn.random() < 0.5)
        report = run(folder, self.target)
        assert report.failures == []
        assert len(self.stored()) == report.points == report.embedded == expected
        assert sum(fault.times for fault in self.server.faults) < 15
        self.server.faults.clear()
        assert run(folder, self.target).embedded == 0

    @pytest.mark.parametrize("n_points", [1, 500])
    def test_a_run_that_is_killed_goes_on_where_the_server_is(self, folder, n_points):
        many_files(folder, 60)
        child = self.start(folder)
        engine = self.server.engine
        wait_until(lambda: engine.collection_exists("docs"))
        wait_until(lambda: engine.count("docs").count >= n_points)
        child.kill()
        child.communicate(timeout=60)
        wait_until(lambda: not self.server.n_connections)  # what had come in is done by then
        taken = self.stored()
        report = run(folder, self.target)
        assert report.reused == len(taken) >= n_points
        assert report.failures == []
        assert self.stored().items() >= taken.items()

    def test_two_runs_at_once_end_right(self, folder, tmp_path):
        many_files(folder, 12)
        other = tmp_path / "other"
        other.mkdir()
        many_files(other, 12)
        for file in other.iterdir():
            file.rename(file.with_stem(f"other-{file.stem}"))
        children = [self.start(place) for place in (folder, folder, other)]
        for child in children:
            _, said = child.communicate(timeout=120)
            assert (child.returncode, "Traceback" in said) == (0, False), said
        report = run(folder, self.target)
        again = run(other, self.target)
        assert (report.embedded, again.embedded, report.moved, report.deleted) == (0, 0, 0, 0)
        assert len(self.stored()) == report.chunks + again.chunks
        assert report.failures == again.failures == []

    @pytest.mark.parametrize("unseen", [2, 3])
    def test_a_collection_that_another_run_makes_first_is_used_or_refused(self, folder, unseen):
        run(folder, self.target)
        unseen_at_first = {"method": "GET", "path": "/docs/exists", "result": {"exists": False}}
        self.server.fail(**unseen_at_first, times=unseen)
        report = run(folder, self.target)
        assert report.failures == []
        assert len(self.stored()) == report.chunks
        self.server.fail(**unseen_at_first, times=unseen)
        with pytest.raises(CollectionError, match="chunker.size: the collection has 40"):
            run(folder, self.target, chunk_size=41)

    def test_a_server_that_makes_no_collection_is_an_error(self, folder):
        self.server.fail(path="/collections/docs", status=400, words="no space left")
        with pytest.raises(SinkError, match="no space left"):
            run(folder, self.target)


def test_chunk_ids_depend_on_source_text_and_occurrence_alone():
    ids = ChunkIds("a.txt")
    first, again, other = ids.next("x"), ids.next("x"), ids.next("y")
    assert len({first, again, other, ChunkIds("b.txt").next("x")}) == 4
    assert ChunkIds("a.txt").next("x") == first
    assert uuid.UUID(first).version == 5
    assert ChunkIds("a.txt").next("y") == other


def test_ids_of_fields_that_read_the_same_when_joined_differ():
    assert ChunkIds("a1").next("b") != ChunkIds("a").next("1b")


def test_a_fingerprint_lists_what_differs_on_either_side():
    old = Fingerprint(model="m", fields={"a": 1, "b": 2})
    new = Fingerprint(model="other name", fields={"a": 1, "c": 3})
    assert old.differences(new) == [("b", 2, None), ("c", None, 3)]
    old.require_equal(Fingerprint(model="other name", fields={"a": 1, "b": 2}), collection="x")
    assert Fingerprint.from_metadata(old.to_metadata(), collection="x") == old
    with pytest.raises(CollectionError, match="no fingerprint"):
        Fingerprint.from_metadata({METADATA_KEY: {"model": "m"}}, collection="x")


class TestSearch:
    @pytest.fixture(autouse=True)
    def _stored(self, folder, target):
        run(folder, target)
        self.target = target

    def test_the_nearest_chunks_come_first_with_where_they_stand(self):
        found = search("Same text.", target=self.target, k=3)
        assert len(found) == 3
        assert [chunk.score for chunk in found] == sorted(
            (chunk.score for chunk in found), reverse=True
        )
        assert [chunk.text for chunk in found[:2]] == ["Same text."] * 2
        assert {chunk.source for chunk in found[:2]} == {"c.rst", "d.txt"}
        assert found[0].as_dict().keys() == {"score", "source", "start", "end", "text"}

    def test_it_takes_the_model_that_made_the_collection_and_no_other(self):
        other = str(tiny_models.bert(seed=1).path)
        with pytest.raises(CollectionError, match="model_sha256"):
            search("gate", target=self.target, model=other)
        moved = Path(self.target.path).parent / "moved.gguf"
        moved.write_bytes(BERT.path.read_bytes())
        assert search("gate", target=self.target, model=str(moved), k=1)

    def test_a_collection_that_is_not_there_is_an_error(self):
        with pytest.raises(CollectionError, match="no collection 'other' at .*db; `ingest` makes"):
            search("gate", target=SinkOptions(collection="other", path=self.target.path))

    def test_k_must_be_positive(self):
        with pytest.raises(UsageError, match="k is 0"):
            search("gate", target=self.target, k=0)
