"""A short vector finds, the full one orders: --dim N --rescore-dim full."""

import numpy as np
import pytest
import tiny_models
from retrieving import PREFIX, QUERY, TEXTS, write

from corral import CorralRetriever, GGUFEmbeddings, RankingOptions
from corral.cli import ingest_main
from corral.embedders import DenseEmbedder
from corral.errors import CollectionError, UsageError
from corral.search import search
from corral_sinks import SinkOptions
from corral_sinks.qdrant import connect

MODEL = tiny_models.qwen3()
FAMILY = """
[mine]
source = "https://example.org/card"
match = ["tiny-qwen3"]
trained_dims = [16, 32]
"""


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """The tiny model is of a family that was trained for 16 and 32 dimensions."""
    path = tmp_path / "mine.toml"
    path.write_text(FAMILY)
    monkeypatch.setenv("CORRAL_PROFILES", str(path))


@pytest.fixture
def place(tmp_path, trained):  # noqa: ARG001
    (tmp_path / "docs").mkdir()
    two = {"short_dim": 16}
    return write(tmp_path / "docs", model=MODEL, options=two, path=str(tmp_path / "db"))


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def test_both_vectors_are_the_models_and_of_unit_length(place):
    with connect(path=place["path"]) as client:
        points, _ = client.scroll("docs", limit=9, with_vectors=True)
        params = client.get_collection("docs").config.params.vectors
    assert (params["dense"].size, params["full"].size) == (16, 64)
    assert params["full"].hnsw_config.m == 0
    with GGUFEmbeddings(MODEL.path) as embeddings:
        expected = embeddings.embed([point.payload["page_content"] for point in points])
    found = {name: np.array([point.vector[name] for point in points]) for name in params}
    np.testing.assert_allclose(found["full"], expected, atol=2e-3)
    np.testing.assert_allclose(found["dense"], unit(expected[:, :16]), atol=5e-3)


def test_what_the_short_vector_finds_comes_in_the_full_ones_order(place):
    with GGUFEmbeddings(MODEL.path, query_prefix=PREFIX) as embeddings:
        rows = embeddings.embed(list(TEXTS.values()))
        query = embeddings.embed_query_row(QUERY)
    names, full = list(TEXTS), rows @ query
    short = unit(rows[:, :16]) @ unit(query[:16])
    found_first = sorted(range(5), key=lambda n: -short[n])[:3]
    target = SinkOptions(**place)
    found = search(QUERY, target=target, k=2, ranking=RankingOptions(candidates=3))
    best = sorted(found_first, key=lambda n: -full[n])[:2]
    assert [chunk.source for chunk in found] == [names[n] for n in best]
    assert [chunk.score for chunk in found] == pytest.approx([full[n] for n in best], abs=5e-3)
    by_short = search(QUERY, target=target, k=5, ranking=RankingOptions(using=["dense"]))
    assert [c.score for c in by_short] == pytest.approx(sorted(short, reverse=True), abs=5e-3)
    with CorralRetriever(**place, k=5) as retriever:
        scores = [document.metadata["score"] for document in retriever.invoke(QUERY)]
    assert scores == pytest.approx(sorted(full, reverse=True), abs=5e-3)


def test_a_run_with_one_vector_or_another_length_is_refused(place, tmp_path):
    with pytest.raises(
        CollectionError, match="short_dim: the collection has 16, this run has None"
    ):
        write(tmp_path / "docs", model=MODEL, path=place["path"])
    with pytest.raises(CollectionError, match="has 16, this run has 32"):
        write(tmp_path / "docs", model=MODEL, options={"short_dim": 32}, path=place["path"])


@pytest.mark.usefixtures("trained")
def test_dimensions_that_the_model_was_not_trained_for_are_refused():
    with GGUFEmbeddings(MODEL.path, dim=32) as embeddings:
        with pytest.raises(UsageError, match="dim is 17; the model was trained for 16, 32, 64"):
            DenseEmbedder(embeddings, short_dim=17)
        with pytest.raises(UsageError, match="have 32 dimensions and those that order them 32"):
            DenseEmbedder(embeddings, short_dim=32)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rescore-dim", "full"], "give --dim, too"),
        (["--rescore-dim", "all", "--dim", "16"], "a number or \"full\"; got 'all'"),
    ],
)
def test_the_command_line_refuses_what_does_not_go_together(tmp_path, capsys, options, words):
    with pytest.raises(SystemExit) as end:
        ingest_main([str(tmp_path), "--path", str(tmp_path), "--collection", "c", *options])
    assert end.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.usefixtures("trained")
def test_the_command_line_stores_both(tmp_path, capsys):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("Anna closed the gate.")
    words = [str(tmp_path / "docs"), "--path", str(tmp_path / "db"), "--collection", "docs"]
    with pytest.raises(SystemExit) as end:
        ingest_main([*words, "--model", str(MODEL.path), "--dim", "16", "--rescore-dim", "32"])
    assert end.value.code == 0, capsys.readouterr().err
    with connect(path=str(tmp_path / "db")) as client:
        params = client.get_collection("docs").config.params.vectors
    assert {name: found.size for name, found in params.items()} == {"dense": 16, "full": 32}


def test_dimensions_that_the_model_was_not_trained_for_are_taken_where_they_are_forced(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "gate.txt").write_text(TEXTS["gate.txt"])
    ends = ["--path", str(tmp_path / "db"), "--collection", "docs"]
    words = [str(tmp_path / "docs"), "--model", str(MODEL.path), *ends, "--dim", "16"]
    codes = []
    for force in ([], ["--force-dim"]):
        with pytest.raises(SystemExit) as end:
            ingest_main([*words, "--rescore-dim", "full", *force])
        codes.append(end.value.code)
    assert codes == [2, 0]
    target = SinkOptions(collection="docs", path=str(tmp_path / "db"))
    assert search(QUERY, target=target)[0].source == "gate.txt"
