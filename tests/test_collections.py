"""What there is in collections, deleting of it, and whether it is right."""

import json
import shutil
from contextlib import closing
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from commands import corral
from retrieving import TEXTS, write
from sink_contract import SCHEMA, record

from corral import audit as audit_module
from corral.audit import audit
from corral.errors import CollectionError, UsageError
from corral.identity import content_hash
from corral.overview import collections, delete_sources, info
from corral_sinks import SinkOptions
from corral_sinks.qdrant import EmbeddedQdrant, QdrantSink, connect


def ignore(*_, **__):
    """Take no note of the progress."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    (folder / "docs").mkdir()
    options = {"sparse": {"language": "none"}}
    write(folder / "docs", path=str(folder / "db"), options=options)
    return folder


@pytest.fixture
def place(made, tmp_path):
    """A copy of an ingested folder and its collection, to be spoilt."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path


def target_in(place, **changes):
    return SinkOptions(collection="docs", path=str(place / "db"), **changes)


def audited(place, **options):
    return audit(target_in(place), paths=[place / "docs"], progress=ignore, **options)


def test_collections_are_listed_with_what_made_them(place):
    with closing(QdrantSink(SinkOptions(collection="other", path=str(place / "db")))) as sink:
        sink.create(replace(SCHEMA, metadata={}))
    docs, other = collections(path=str(place / "db"))
    assert (docs.name, docs.points, docs.tenants) == ("docs", 5, False)
    assert docs.vectors == {"dense": 64, "sparse": "sparse"}
    assert docs.model.endswith(".gguf")
    assert (other.name, other.model) == ("other", None)
    with pytest.raises(CollectionError, match="no folder"):
        collections(path=str(place / "nowhere"))


def test_info_counts_chunks_tokens_and_bytes_by_source(place):
    found = info(target_in(place))
    assert found.points == 5
    assert set(found.sources) == set(TEXTS)
    with closing(QdrantSink(target_in(place))) as sink:
        records = list(sink.records())
    assert found.tokens == sum(r.payload["metadata"]["n_tokens"] for r in records)
    assert found.vector_bytes == 5 * 4 * len(records[0].vectors["dense"])
    assert found.payload_bytes == sum(
        len(json.dumps(r.payload, ensure_ascii=False).encode()) for r in records
    )
    assert found.disk_bytes > found.vector_bytes
    assert found.index["payload"]["metadata.source"] == "keyword"
    assert found.fingerprint["sparse"] == "bm25"
    with pytest.raises(CollectionError, match="no collection 'none'"):
        info(SinkOptions(collection="none", path=str(place / "db")))


def test_deleting_takes_the_named_sources_or_nothing(place):
    with pytest.raises(CollectionError, match=r"holds nothing of 'gat\.txt'.*'gate\.txt'"):
        delete_sources(target_in(place), ("wool.txt", "gat.txt"))
    assert info(target_in(place)).points == 5
    assert delete_sources(target_in(place), ("wool.txt", "gate.txt")) == {
        "wool.txt": 1,
        "gate.txt": 1,
    }
    assert set(info(target_in(place)).sources) == set(TEXTS) - {"wool.txt", "gate.txt"}


def test_a_collection_that_is_right_is_found_so(place):
    found = audited(place)
    assert found.ok
    assert (found.points, found.files, found.sampled) == (5, 5, 5)
    assert found.least_similarity > 0.9999
    assert found.as_dict()["ok"] is True


def test_what_files_and_collection_differ_in_is_told(place):
    (place / "docs" / "gate.txt").write_text("Ben opened the gate.")
    (place / "docs" / "new.txt").write_text("A new text.")
    (place / "docs" / "wool.txt").unlink()
    found = audited(place, sample=0)
    assert (found.missing, found.stale) == (2, 2)
    assert sorted(found.differing) == ["gate.txt", "new.txt"]
    assert found.extra == ["wool.txt"]
    assert not found.ok
    assert found.least_similarity is None


def test_vectors_that_are_wrong_are_told_by_record_and_name(place):
    with closing(QdrantSink(target_in(place))) as sink:
        first, second, third, *_ = sink.records()
        turned = np.roll(first.vectors["dense"], 1)
        words = second.vectors["sparse"]
        halved = replace(words, values=np.append(words.values[:1], 9 * words.values[1:]))
        sink.upsert(
            [
                replace(first, vectors={**first.vectors, "dense": turned}),
                replace(second, vectors={**second.vectors, "sparse": halved}),
                replace(third, vectors={"dense": third.vectors["dense"]}),
            ]
        )
    flaws = {(flaw.id, flaw.vector): flaw.fault for flaw in audited(place).flaws}
    assert set(flaws) == {(first.id, "dense"), (second.id, "sparse"), (third.id, "sparse")}
    assert "similarity" in flaws[first.id, "dense"]
    assert flaws[third.id, "sparse"] == "is missing"


def own(number, **changes):
    """A record as an ingest writes it, as far as it is looked at."""
    metadata = {"source": "a.md", "content_hash": content_hash("text"), "n_tokens": 3}
    return record(number, payload={"page_content": "text", "metadata": metadata}, **changes)


def test_a_stored_vector_without_unit_length_or_with_nan_is_a_flaw():
    long = own(1, vectors={"dense": np.full(8, 1.0, np.float32)})
    broken = own(2, vectors={"dense": np.full(8, np.nan, np.float32)})
    (first,) = audit_module._flaws(long, SCHEMA)
    (second,) = audit_module._flaws(broken, SCHEMA)
    assert "longer or shorter than 1" in first.fault
    assert (second.source, "not finite" in second.fault) == ("a.md", True)
    assert list(audit_module._flaws(own(3), SCHEMA)) == []


def test_a_text_that_is_another_one_is_a_flaw(place):
    with closing(QdrantSink(target_in(place))) as sink:
        first, *_ = sink.records()
        sink.set_payload({first.id: {**first.payload, "page_content": "Ben opened the gate."}})
    (flaw,) = audited(place, sample=0).flaws
    assert (flaw.id, flaw.vector) == (first.id, "page_content")


def test_what_another_program_stored_is_counted_and_searched(place):
    target = ["--path", str(place / "db"), "--collection", "docs"]
    with closing(QdrantSink(target_in(place))) as sink:
        first, *_ = sink.records()
        for number, payload in enumerate(({"page_content": "Foreign.", "metadata": {}}, {})):
            sink.upsert([replace(first, id=record(number).id, payload=payload)])
    found = audited(place)
    assert (found.ok, found.foreign, found.flaws, found.sampled) == (False, 2, [], 5)
    assert info(target_in(place)).sources[""].chunks == 2
    code, out, err = corral("search", "gate", *target, "-k", "7")
    assert (code, "Foreign." in out) == (0, True), err
    code, out, _ = corral("verify", str(place / "docs"), *target)
    assert (code, "2 chunks that no ingest wrote" in out) == (1, True)


def test_names_that_lead_to_a_collection_are_listed_with_it(place):
    with closing(connect(path=str(place / "db"))) as client:
        cast("EmbeddedQdrant", client).set_apart("docs", "docs-0123abcd")
    (only,) = collections(path=str(place / "db"))
    assert (only.name, only.aliases) == ("docs-0123abcd", ["docs"])
    code, out, _ = corral("collections", "--path", str(place / "db"))
    assert (code, out.startswith("docs-0123abcd, also called docs  5 points")) == (0, True)


def test_a_damaged_collection_is_listed_among_the_others(place):
    shutil.copytree(place / "db" / "docs", place / "db" / "bad")
    (place / "db" / "bad" / "corral.json").write_text("{}x")
    code, out, _ = corral("collections", "--path", str(place / "db"))
    bad, docs = out.splitlines()
    assert (code, docs.startswith("docs  5 points")) == (1, True)
    assert bad.startswith("bad  ")
    assert "cannot be read by this version" in bad
    code, out, _ = corral("collections", "--path", str(place / "db"), "--json")
    faults = {one["name"]: one["fault"] for one in map(json.loads, out.splitlines())}
    assert (code, faults["docs"], bool(faults["bad"])) == (1, None, True)


def test_a_collection_that_lost_its_sidecar_is_listed_and_can_be_deleted(place):
    db = ["--path", str(place / "db")]
    (place / "db" / "docs" / "corral.json").unlink()
    code, out, _ = corral("collections", *db)
    assert code == 1
    assert "it has no corral.json, or lost it" in out
    code, out, _ = corral("delete", "--all", *db, "--collection", "docs", "--yes")
    assert (code, out) == (0, "docs: deleted with 0 points\n")
    assert corral("collections", *db)[:2] == (0, "")


def test_a_collection_is_deleted_with_the_names_that_lead_to_it(place):
    with closing(EmbeddedQdrant(place / "db")) as client:
        client.set_apart("docs", "docs-0123abcd")
    where = ["--path", str(place / "db"), "--collection", "docs"]
    for words, said in [
        (["--all"], "add --yes"),
        (["--all", "wool.txt", "--yes"], "give the SOURCEs to delete, or --all"),
        (["--yes"], "give the SOURCEs to delete, or --all"),
        (["--all", "--yes", "--tenant", "anna"], "the chunks of all tenants"),
    ]:
        code, _, err = corral("delete", *words, *where)
        assert (code, said in err) == (2, True)
    code, out, _ = corral("delete", "--all", *where, "--yes", "--json")
    assert json.loads(out) == {"deleted": 5, "collection": "docs-0123abcd"}
    code, _, err = corral("delete", "--all", *where, "--yes")
    assert (code, "there is no collection 'docs'" in err) == (2, True)


def test_paths_of_which_nothing_is_known_are_no_reason_to_call_all_gone(place):
    (place / "other").mkdir()
    (place / "other" / "else.txt").write_text("Something else.")
    with pytest.raises(UsageError, match="none of its 5 sources.*is under the paths given"):
        audit(target_in(place), paths=[place / "other"], progress=ignore)


def test_a_server_that_is_not_there_and_a_file_for_a_folder_are_told(tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = corral("collections", "--path", str(tmp_path / "file"))
    assert (code, "is a file; --path is a folder" in err) == (2, True)
    code, _, err = corral("collections", "--url", "http://127.0.0.1:1")
    assert (code, "cannot reach the Qdrant server" in err) == (2, True)


def test_the_sample_is_of_the_size_that_is_asked_for(place):
    assert audited(place, sample=2).sampled == 2


def test_the_command_line_lists_tells_deletes_and_verifies(place):
    target = ["--path", str(place / "db"), "--collection", "docs"]
    code, out, err = corral("collections", *target[:2])
    assert (code, "docs  5 points" in out) == (0, True), err
    code, out, _ = corral("collections", *target[:2], "--json")
    assert json.loads(out)["points"] == 5
    code, out, _ = corral("info", *target)
    assert "5 of 5 sources" in out
    assert '"gate.txt": 1 chunks' in out
    code, out, _ = corral("info", *target, "--json")
    assert json.loads(out)["sources"]["gate.txt"]["chunks"] == 1
    code, out, err = corral("verify", str(place / "docs"), *target)
    assert (code, "all is as it should be" in out) == (0, True), err
    code, _, err = corral("delete", "gate.txt", *target)
    assert (code, "add --yes" in err) == (2, True)
    code, out, _ = corral("delete", "gate.txt", *target, "--yes")
    assert (code, out) == (0, "gate.txt: 1 chunks deleted\n")
    code, out, _ = corral("delete", "wool.txt", *target, "--yes", "--json")
    assert json.loads(out) == {"deleted": 1, "sources": {"wool.txt": 1}}
    code, out, _ = corral("verify", str(place / "docs"), *target)
    assert code == 1
    assert "gate.txt: differs from its file" in out
    assert "something is amiss" in out
    code, out, _ = corral("verify", str(place / "docs"), *target, "--json")
    assert (code, json.loads(out)["missing"]) == (1, 2)
