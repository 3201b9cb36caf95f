"""An ingest of many formats: what stands in the payload, and files that hold several documents."""

import json
from collections import Counter

import docx
import pytest
import tiny_models
from pdf_files import lines, pdf
from qdrant_stand_in import QdrantStandIn

from corral import GGUFEmbeddings
from corral.errors import UsageError
from corral.ingest import IngestOptions, ingest
from corral.readers import ReaderOptions
from corral.readers.text import TextReader
from corral_sinks import SinkOptions
from corral_sinks.qdrant import connect

BERT = tiny_models.bert()


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "docs"
    root.mkdir()
    return root


@pytest.fixture(params=["qdrant", "jsonl", "server"])
def run(request, tmp_path, folder):
    """An ingest of the folder into one of the stores; further options go to it."""
    settings = {
        "isolate": False,
        "sink": "qdrant",
        "target": SinkOptions(collection="c", path=str(tmp_path / "db")),
    }
    server = None
    if request.param == "jsonl":
        settings["sink"] = "jsonl"
    if request.param == "server":
        server = QdrantStandIn(tmp_path / "server").__enter__()
        settings["target"] = SinkOptions(collection="c", url=server.url)

    def run(**options):
        fixed = {"paths": [folder], "model": str(BERT.path), "chunk_size": 40, **settings}
        report = ingest(IngestOptions(**{**fixed, **options}), progress=lambda *_, **__: None)
        assert report.failures == []
        return report

    yield run
    if server:
        server.__exit__(None, None, None)


@pytest.fixture
def run_embedded(tmp_path, folder):
    target = SinkOptions(collection="c", path=str(tmp_path / "db"))

    def run(**options):
        fixed = {"paths": [folder], "model": str(BERT.path), "chunk_size": 40, "target": target}
        fixed["isolate"] = False
        return ingest(IngestOptions(**{**fixed, **options}), progress=lambda *_, **__: None)

    def metadata():
        with connect(path=target.path) as client:
            found, _ = client.scroll("c", limit=10_000)
        return [{"text": p.payload["page_content"], **p.payload["metadata"]} for p in found]

    run.metadata = metadata
    return run


def rows(*texts):
    return "".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(texts))


def test_the_payload_tells_where_a_chunk_stands(folder, run_embedded):
    (folder / "a.pdf").write_bytes(pdf([], lines("Some text."), info="/Title (Flock)"))
    (folder / "b.md").write_text("# Top\n\n## Sub\n\nWords.\n")
    word = docx.Document()
    word.add_heading("Head", 1)
    word.core_properties.language = "de"
    word.save(folder / "c.docx")
    (folder / "d.jsonl").write_text('{"id": 7, "text": "Hello.", "by": "Ann"}\n')
    options = ReaderOptions(text_fields=("text",), metadata_fields=("by",), id_field="id")
    report = run_embedded(records=options)
    assert report.files == Counter(stored=4)
    told = {found["source"]: found for found in run_embedded.metadata()}
    assert told["a.pdf"]["page"] == 2
    assert told["a.pdf"]["title"] == "Flock"
    assert told["a.pdf"]["reader"] == "pdf/1"
    assert told["b.md"]["heading_path"] == ["Top"]
    assert (told["b.md"]["title"], told["c.docx"]["language"]) == ("Top", "de")
    row = told["d.jsonl#7"]
    assert (row["text"], row["by"], row["record"], row["file"]) == ("Hello.", "Ann", 1, "d.jsonl")
    assert all("file" not in found for source, found in told.items() if "#" not in source)


def test_a_second_run_over_many_documents_in_a_file_does_nothing(folder, run):
    (folder / "d.jsonl").write_text(rows(*(f"Row number {i}." for i in range(300))))
    (folder / "plain.txt").write_text("Text.")
    options = ReaderOptions(text_fields=("text",), id_field="id")
    first = run(records=options)
    assert (first.files, first.embedded) == (Counter(stored=2), 301)
    again = run(records=options, prune=True)
    assert again.files == Counter(unchanged=2)
    assert (again.embedded, again.moved, again.deleted, again.pruned) == (0, 0, 0, [])


def test_documents_that_a_file_lost_go_and_changed_ones_are_embedded(folder, run):
    file = folder / "d.jsonl"
    options = ReaderOptions(text_fields=("text",), id_field="id")
    file.write_text(rows("zero", "one", "two", "three"))
    run(records=options)
    file.write_text(rows("zero", "changed", "two"))
    report = run(records=options)
    assert (report.embedded, report.reused, report.deleted) == (1, 2, 2)
    assert report.points == 3
    file.unlink()
    (folder / "other.txt").write_text("Other.")
    kept = run(records=options)
    assert kept.points == 4
    (folder / "d.txt").write_text("zero")
    pruned = run(records=options, prune=True)
    assert (pruned.pruned, pruned.deleted, pruned.points) == (["d.jsonl"], 3, 2)


def test_a_row_that_is_put_in_embeds_itself_alone_and_the_others_are_told_their_number(folder, run):
    (folder / "d.csv").write_text("a\none\ntwo\n")
    run()
    (folder / "d.csv").write_text("a\nnew\none\ntwo\n")
    report = run()
    assert (report.embedded, report.reused, report.moved, report.deleted) == (1, 2, 2, 0)


def test_equal_records_without_a_name_keep_points_of_their_own(folder, run):
    (folder / "d.csv").write_text("a\nsame\nsame\n")
    assert run().points == 2
    assert run().embedded == 0


def test_a_file_whose_last_record_is_broken_loses_and_brings_nothing(folder, run_embedded):
    file = folder / "d.jsonl"
    file.write_text(rows("zero", "one"))
    run_embedded()
    file.write_text(rows("new") + "{")
    report = run_embedded()
    assert report.files == Counter(failed=1)
    assert "line 2 of" in report.reasons[0][1]
    assert len(run_embedded.metadata()) == 2


def test_another_version_of_a_reader_costs_what_it_reads_otherwise(
    folder, run_embedded, monkeypatch
):
    (folder / "a.txt").write_text("Text.")
    run_embedded()
    monkeypatch.setattr(TextReader, "version", 2)
    monkeypatch.setattr(GGUFEmbeddings, "embed_checked", lambda *_: pytest.fail("embedded"))
    report = run_embedded()
    assert (report.embedded, report.moved) == (0, 1)
    assert [found["reader"] for found in run_embedded.metadata()] == ["text/2"]


def test_what_is_known_no_more_goes_from_the_payload(folder, run_embedded):
    (folder / "a.md").write_text("# T\n")
    (folder / "a.md").write_text("---\ntitle: Named\n---\nText.\n")
    run_embedded(chunk_size=512)
    (folder / "a.md").write_text("---\nmore: Named\n---\nText.\n")
    run_embedded(chunk_size=512)
    assert all("title" not in found for found in run_embedded.metadata())


def test_what_is_ignored_is_pruned_and_what_a_run_leaves_out_is_not(folder, run_embedded):
    for name in ("a.txt", "b.txt", "c.md", ".d.txt"):
        (folder / name).write_text(name)
    run_embedded(hidden=True)
    (folder / ".corralignore").write_text("b.txt\n")
    report = run_embedded(prune=True, include=("*.txt",))
    assert report.pruned == ["b.txt"]
    assert {found["source"] for found in run_embedded.metadata()} == {"a.txt", "c.md", ".d.txt"}


def test_hostile_files_are_listed_and_the_others_stored(folder, run_embedded):
    (folder / "a.txt").write_text("Sound.")
    (folder / "b.txt").write_bytes(b"x" * 17_000_000)
    (folder / "c.json").write_text("[" * 100_000)
    (folder / "d.docx").write_bytes(b"PK\x03\x04")
    (folder / "e.pdf").write_bytes(pdf([], []))
    (folder / "f.html").write_text("<p>Sound, too.")
    report = run_embedded()
    assert report.files == Counter(stored=2, skipped=3, failed=1)
    assert {source for source, _ in report.reasons} == {"b.txt", "c.json", "d.docx", "e.pdf"}


@pytest.mark.parametrize("name", ["source", "start", "reader"])
def test_a_field_of_our_own_name_is_refused(folder, run_embedded, name):
    (folder / "d.jsonl").write_text(rows("x"))
    with pytest.raises(UsageError, match=f"metadata field '{name}' is a name"):
        run_embedded(records=ReaderOptions(metadata_fields=(name,)))
