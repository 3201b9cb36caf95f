"""A collection is built anew beside the one in force, and takes over in one step."""

from contextlib import closing

import pytest
import tiny_models
from click.testing import CliRunner
from qdrant_client import models
from qdrant_stand_in import QdrantStandIn

from corral.cli import corral
from corral.errors import CollectionError, UsageError
from corral.ingest import IngestOptions, ingest
from corral_sinks import SinkError, SinkOptions
from corral_sinks.qdrant import EmbeddedQdrant, QdrantSink, connect
from corral_sinks.qdrant._aliases import ALIASES

BERT = tiny_models.bert()


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "docs"
    root.mkdir()
    (root / "a.txt").write_text("The flock went up the hill. Rain came in the night! " * 10)
    (root / "b.txt").write_text("Who closed the gate?")
    return root


@pytest.fixture(params=["folder", "server"])
def target(request, tmp_path):
    if request.param == "folder":
        yield SinkOptions(collection="docs", path=str(tmp_path / "db"))
        return
    with QdrantStandIn(tmp_path / "served") as server:
        yield SinkOptions(collection="docs", url=server.url)


def run(folder, target, **options):
    given = {"model": str(BERT.path), "chunk_size": 40, "isolate": False, **options}
    settings = IngestOptions(paths=[folder], target=target, **given)
    return ingest(settings, progress=lambda *_, **__: None)


def state(target):
    """Names of the collections, what the alias leads to, and its settings."""
    with closing(connect(url=target.url, path=target.path)) as client:
        names = sorted(found.name for found in client.get_collections().collections)
        aliases = {one.alias_name: one.collection_name for one in client.get_aliases().aliases}
        fields = client.get_collection("docs").config.metadata["corral"]["fingerprint"]
        n_points = client.count("docs").count
    return names, aliases.get("docs"), fields["chunker.size"], n_points


def test_a_new_collection_is_an_alias_and_each_reindex_moves_it_and_keeps_the_old_one(
    folder, target
):
    first = run(folder, target, reindex=True)
    names, behind, size, n_points = state(target)
    assert (names, size, n_points) == ([behind], 40, first.chunks)
    assert first.switched_to == behind
    second = run(folder, target, reindex=True, chunk_size=20)
    names, now, size, n_points = state(target)
    assert names == sorted([behind, now])
    assert (size, n_points) == (20, second.chunks)
    again = run(folder, target, reindex=True, chunk_size=20)
    assert (again.embedded, again.switched_to) == (0, None)
    assert run(folder, target, chunk_size=20).embedded == 0
    dropped = run(folder, target, reindex=True, drop_old=True, chunk_size=20)
    assert dropped.dropped == [behind]
    assert state(target)[:2] == ([now], now)


def test_a_plain_collection_of_a_folder_is_renamed_and_one_of_a_server_needs_to_be_dropped(
    folder, target
):
    run(folder, target)
    if target.url is None:
        run(folder, target, reindex=True, chunk_size=20)
        names, behind, size, _ = state(target)
        assert len(names) == 2
        assert behind in names
        assert size == 20
        return
    with pytest.raises(CollectionError, match="--drop-old"):
        run(folder, target, reindex=True, chunk_size=20)
    assert state(target)[:3] == (["docs"], None, 40)
    run(folder, target, reindex=True, drop_old=True, chunk_size=20)
    names, behind, size, _ = state(target)
    assert (names, size) == ([behind], 20)


def test_a_failure_on_the_way_leaves_the_old_one_in_force_and_a_rerun_goes_on(
    folder, target, monkeypatch
):
    run(folder, target, reindex=True)
    before = state(target)
    with monkeypatch.context() as patch:
        patch.setattr(QdrantSink, "count", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(folder, target, reindex=True, chunk_size=20)
    assert state(target)[1:] == before[1:]
    with monkeypatch.context() as patch:
        patch.setattr(QdrantSink, "switch", refuse)
        with pytest.raises(SinkError):
            run(folder, target, reindex=True, chunk_size=20)
    assert state(target)[1:] == before[1:]
    after = run(folder, target, reindex=True, chunk_size=20)
    assert after.reused == after.chunks
    assert state(target)[2] == 20


def refuse(*_, **__):
    """Fail as a store does."""
    raise SinkError("no")


def test_nothing_is_switched_where_points_are_amiss(folder, target, caplog):
    run(folder, target, reindex=True)
    before = state(target)
    (folder / "gone.txt").write_text("A file that goes away.")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QdrantSink, "switch", refuse)
        with pytest.raises(SinkError):
            run(folder, target, reindex=True, chunk_size=20)
    (folder / "gone.txt").unlink()
    report = run(folder, target, reindex=True, chunk_size=20)
    assert not report.all_stored
    assert "stays as it was" in caplog.text
    assert state(target)[1:] == before[1:]
    assert run(folder, target, reindex=True, prune=True, chunk_size=20).all_stored
    assert state(target)[2] == 20


@pytest.mark.parametrize("drop_old", [False, True])
def test_a_collection_that_alone_holds_a_source_stays_in_force(folder, target, caplog, drop_old):
    run(folder, target, reindex=True)
    before = state(target)
    (folder / "b.txt").unlink()
    report = run(folder, target, reindex=True, drop_old=drop_old, chunk_size=20)
    assert (report.switched_to, report.dropped, report.lost) == (None, [], 1)
    assert report.failures == [
        "1 sources are only in the collection in force, which therefore stays so"
    ]
    assert state(target)[1:] == before[1:]
    assert "'b.txt', are only in it; give all PATHS" in caplog.text


def test_prune_asks_for_what_the_replaced_one_alone_holds(folder, target):
    run(folder, target, reindex=True)
    (folder / "b.txt").unlink()
    options = IngestOptions(
        paths=[folder], target=target, model=str(BERT.path), chunk_size=20, isolate=False,
        reindex=True, drop_old=True, prune=True,
    )  # fmt: skip
    asked = []
    kept = ingest(options, progress=lambda *_, **__: None, may_prune=asked.append)
    assert (asked, kept.switched_to, kept.lost) == ([["b.txt"]], None, 1)
    report = ingest(options, progress=lambda *_, **__: None)
    assert report.all_stored
    assert (report.pruned, len(report.dropped)) == (["b.txt"], 1)
    assert state(target)[2] == 20


def test_a_plain_collection_of_a_server_stays_where_it_alone_holds_a_source(folder, tmp_path):
    with QdrantStandIn(tmp_path / "served") as server:
        target = SinkOptions(collection="docs", url=server.url)
        run(folder, target)
        (folder / "b.txt").unlink()
        report = run(folder, target, reindex=True, drop_old=True, chunk_size=20)
        assert not report.all_stored
        assert state(target)[1:3] == (None, 40)


def test_a_dry_run_builds_nothing(folder, target):
    run(folder, target, reindex=True)
    before = state(target)
    report = run(folder, target, reindex=True, chunk_size=20, dry_run=True)
    assert report.chunks > before[3]
    assert state(target) == before


def test_files_that_fail_keep_the_old_one_in_force(folder, target):
    run(folder, target, reindex=True)
    before = state(target)
    (folder / "empty.txt").write_text("")
    report = run(folder, target, reindex=True, chunk_size=20, strict=True)
    assert not report.all_stored
    assert state(target)[1:] == before[1:]


@pytest.mark.parametrize(
    ("options", "words"),
    [({"sink": "jsonl"}, "aliases"), ({"tenant": "anna"}, "tenant")],
)
def test_what_cannot_be_built_anew_is_refused(folder, tmp_path, options, words):
    place = {
        "collection": "docs",
        "path": str(tmp_path / "db"),
        "tenant": options.pop("tenant", None),
    }
    with pytest.raises(UsageError, match=words):
        run(folder, SinkOptions(**place), reindex=True, **options)


def test_the_refusal_of_other_settings_names_the_option(folder, target):
    run(folder, target)
    with pytest.raises(CollectionError, match="--reindex"):
        run(folder, target, chunk_size=20)


def test_the_command_says_what_is_in_force(folder, tmp_path):
    place = ["ingest", str(folder), "--path", str(tmp_path / "db"), "--collection", "docs"]
    command = [*place, "--model", str(BERT.path), "--chunk-size", "40"]
    assert CliRunner().invoke(corral, [*command, "--drop-old"]).exit_code == 2
    done = CliRunner().invoke(corral, [*command, "--reindex"], standalone_mode=False)
    assert done.exit_code == 0, done.output
    assert "in force is docs-" in done.output


# Aliases of the embedded engine


def vectors():
    return models.VectorParams(size=2, distance=models.Distance.COSINE)


def moved(alias, name):
    made = models.CreateAlias(alias_name=alias, collection_name=name)
    return models.CreateAliasOperation(create_alias=made)


def test_an_alias_is_as_good_as_the_name_and_goes_with_its_collection(tmp_path):
    with EmbeddedQdrant(tmp_path / "db") as client:
        client.create_collection("one", vectors_config=vectors())
        client.update_collection_aliases([moved("docs", "one")])
        client.upsert("docs", [models.PointStruct(id=1, vector=[1.0, 0.0])])
        assert client.count("one").count == 1
        with pytest.raises(SinkError, match="already"):
            client.update_collection_aliases([moved("one", "one")])
        with pytest.raises(SinkError, match="no collection"):
            client.update_collection_aliases([moved("docs", "two")])
        with pytest.raises(SinkError, match="already"):
            client.set_apart("docs", "one")
        assert not client.delete_collection("docs")
        assert client.delete_collection("one")
        assert client.get_aliases().aliases == []
        renamed = models.RenameAlias(old_alias_name="a", new_alias_name="b")
        with pytest.raises(SinkError, match="renames no alias"):
            client.update_collection_aliases([models.RenameAliasOperation(rename_alias=renamed)])


def test_a_crash_while_a_collection_is_set_apart_leaves_it_under_its_name(tmp_path, monkeypatch):
    with EmbeddedQdrant(tmp_path / "db") as client:
        client.create_collection("docs", vectors_config=vectors())
        with monkeypatch.context() as patch:
            patch.setattr("pathlib.Path.rename", refuse)
            with pytest.raises(SinkError):
                client.set_apart("docs", "docs-00000000")
    with EmbeddedQdrant(tmp_path / "db") as client:
        assert client.collection_exists("docs")
        client.set_apart("docs", "docs-00000000")
        assert client.collection_exists("docs")
        assert [one.name for one in client.get_collections().collections] == ["docs-00000000"]


def test_a_damaged_file_of_aliases_is_said(tmp_path):
    with EmbeddedQdrant(tmp_path / "db") as client:
        client.create_collection("one", vectors_config=vectors())
        (tmp_path / "db" / ALIASES).write_text("{")
        with pytest.raises(SinkError, match="cannot be read"):
            client.get_aliases()
