"""A file that is as it was is not read into chunks again; whatever differs breaks its seal."""

import os

import pytest
import tiny_models

from corral import readers
from corral.ingest import IngestOptions, ingest
from corral.readers import ReaderOptions
from corral.sealing import SEAL, is_sealed, place_of, seal
from corral_sinks import SinkOptions
from corral_sinks.qdrant import connect

BERT = tiny_models.bert()
SENTENCES = "Rain came in the night! Who closed the gate? The hill is high. "
STORED = {
    "a": {"start": 0, "end": 5, "chunk_index": 0, "source": "x.md", "heading_path": ["H"]},
    "b": {"start": 5, "end": 9, "chunk_index": 1, "source": "x.md"},
}


def sealed(read_hash="r"):
    places = {name: place_of(metadata) for name, metadata in STORED.items()}
    return {**STORED, "b": {**STORED["b"], SEAL: seal(read_hash, places)}}


# The seal


def test_what_was_sealed_is_sealed_whatever_others_know_of_it_besides():
    stored = sealed()
    assert is_sealed("r", stored)
    assert is_sealed("r", {**stored, "a": {**stored["a"], "mine": 1}})


@pytest.mark.parametrize(
    "change",
    [
        lambda stored: stored.pop("a"),
        lambda stored: stored.update(c={"start": 9, "end": 12}),
        lambda stored: stored["a"].update(start=1),
        lambda stored: stored["a"].update(heading_path=["other"]),
        lambda stored: stored["a"].update(title="new"),
        lambda stored: stored["b"].pop(SEAL),
        lambda stored: stored["a"].update({SEAL: stored["b"][SEAL]}),
    ],
)
def test_what_a_killed_run_left_half_done_is_not_sealed(change):
    stored = {name: dict(metadata) for name, metadata in sealed().items()}
    change(stored)
    assert not is_sealed("r", stored)


def test_other_bytes_and_nothing_stored_are_not_sealed():
    assert not is_sealed("other", sealed())
    assert not is_sealed("r", {})


# The hash of how a file is read


def test_all_that_documents_depend_on_is_in_the_hash(tmp_path, monkeypatch):
    file = tmp_path / "a.csv"
    file.write_text("name,age\nx,1\n")

    def hashed(source="a.csv", **options):
        with readers.files.Readers(ReaderOptions(**options)) as opened:
            return opened.load(file, source).hash

    first = hashed()
    assert hashed() == first
    others = [hashed("b.csv"), hashed("a.txt"), hashed(rows=2), hashed(metadata_fields=("age",))]
    file.write_text("name,age\nx,2\n")
    others.append(hashed())
    monkeypatch.setattr("corral.readers.files._versions", lambda: ("corral 99",))
    others.append(hashed())
    assert len({first, *others}) == 7


# An ingest


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "docs"
    root.mkdir()
    for name in ("a.md", "b.txt"):
        (root / name).write_text(f"# {name}\n\n{SENTENCES * 4}")
    return root


@pytest.fixture
def target(tmp_path):
    return SinkOptions(collection="docs", path=str(tmp_path / "db"))


@pytest.fixture
def cut(monkeypatch):
    """Sources of what was read into documents."""
    seen = []
    documents = readers.files.Readers.documents

    def counted(opened, loaded):
        seen.append(loaded.file.source)
        return documents(opened, loaded)

    monkeypatch.setattr(readers.files.Readers, "documents", counted)
    return seen


def run(folder, target, **options):
    settings = IngestOptions(
        paths=[folder], target=target, model=str(BERT.path), chunk_size=40, isolate=False, **options
    )
    return ingest(settings, progress=lambda *_, **__: None)


def payloads(target):
    with connect(path=target.path) as client:
        found, _ = client.scroll(target.collection, limit=1000)
    return {point.id: point.payload for point in found}


def test_a_second_run_cuts_no_file_and_finds_the_same(folder, target, cut):
    first = run(folder, target)
    assert sorted(cut) == ["a.md", "b.txt"]
    cut.clear()
    again = run(folder, target)
    assert cut == []
    assert (again.embedded, again.moved, again.deleted) == (0, 0, 0)
    assert again.chunks == again.reused == first.chunks
    assert again.files == {"unchanged": 2}
    assert again.failures == []


def test_a_changed_file_alone_is_cut_and_each_file_has_one_seal(folder, target, cut):
    run(folder, target)
    with (folder / "b.txt").open("a") as file:
        file.write("\n\nOne more paragraph.")
    cut.clear()
    report = run(folder, target)
    assert cut == ["b.txt"]
    assert 0 < report.embedded < report.chunks
    seals = [p["metadata"]["source"] for p in payloads(target).values() if SEAL in p["metadata"]]
    assert sorted(seals) == ["a.md", "b.txt"]
    cut.clear()
    assert run(folder, target).embedded == 0
    assert cut == []


def test_a_chunk_that_is_lost_or_stands_elsewhere_in_the_store_is_mended(folder, target, cut):
    run(folder, target)
    before = payloads(target)
    lost, moved, *_ = [key for key, p in before.items() if p["metadata"]["source"] == "a.md"]
    with connect(path=target.path) as client:
        client.delete("docs", [lost])
        client.set_payload("docs", {"start": 7}, [moved], key="metadata")
    cut.clear()
    report = run(folder, target)
    assert cut == ["a.md"]
    assert report.embedded == 1
    assert payloads(target) == before


def test_a_touched_file_is_not_cut(folder, target, cut):
    run(folder, target)
    cut.clear()
    os.utime(folder / "a.md", (1, 1))
    run(folder, target)
    assert cut == []
