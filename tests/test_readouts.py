"""One pass over a chunk's tokens gives its dense vector, a multivector and lexical weights."""

import logging
import pickle
from pathlib import Path

import numpy as np
import pytest
import tiny_models
from safetensors.numpy import save_file

from corral import GGUFEmbeddings
from corral.engine.pooling import PoolingType
from corral.engine.readouts import Heads, hold_under, lexical_weights, pool_rows
from corral.errors import CollectionError, PoolingError, UsageError
from corral.fingerprint import Fingerprint
from corral.ingest import IngestOptions, ingest
from corral.ranking import RankingOptions
from corral.readouts import ReadoutsEmbedder
from corral.recipe import Recipe
from corral.search import search
from corral_sinks import SinkOptions
from corral_sinks.qdrant import connect

BERT = tiny_models.bert()
N_EMBD = BERT.shape.n_embd
TEXTS = ("The flock went up the hill. The flock!", "Rain came in the night!", "Who closed it?")
RNG = np.random.default_rng(7)
HEADS = {
    "colbert_linear.weight": RNG.standard_normal((24, N_EMBD)).astype(np.float32),
    "colbert_linear.bias": RNG.standard_normal(24).astype(np.float32),
    "sparse_linear.weight": RNG.standard_normal((1, N_EMBD)).astype(np.float32),
    "sparse_linear.bias": np.array([0.1], dtype=np.float32),
}


@pytest.fixture
def heads(tmp_path):
    path = tmp_path / "heads.safetensors"
    save_file(HEADS, path)
    return path


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def token_rows(text):
    with pytest.warns(UserWarning, match="overrides"):
        embeddings = GGUFEmbeddings(BERT.path, pooling_type="none")
    with embeddings:
        (text_sequences,) = embeddings.sequences("").build([text])
        return embeddings.embed([text])[0], text_sequences.pieces[0].ids


def read_out(text, **options):
    with GGUFEmbeddings(BERT.path, token_rows=True) as embeddings:
        return ReadoutsEmbedder(embeddings, **options).embed_query(text)


# Pure


@pytest.mark.parametrize("kind", [PoolingType.NONE, PoolingType.RANK])
def test_what_is_no_pooling_of_rows_is_refused(kind):
    with pytest.raises(PoolingError, match=kind.name.lower()):
        pool_rows(kind, np.ones((2, 3), dtype=np.float32))


def test_lexical_weights_are_the_largest_of_each_token():
    ids = np.array([0, 7, 8, 7, 9, 2], dtype=np.int32)
    weights = np.array([9, 0.5, -1, 0.75, 0.25, 9], dtype=np.float32)
    assert lexical_weights(ids, weights, special={0, 2}) == {7: 0.75, 9: 0.25}


def test_a_multivector_is_held_under_a_limit_by_means_of_neighbours():
    rows = unit(RNG.standard_normal((10, 4)).astype(np.float32))
    assert hold_under(rows, 40) is rows
    held = hold_under(rows, 39)
    expected = [unit(rows[i : i + 2].mean(axis=0)) for i in range(0, 10, 2)]
    assert np.allclose(held, expected, atol=1e-6)
    assert hold_under(rows, 4).shape == (1, 4)


# The heads' file


def test_heads_without_a_bias_and_of_any_name(tmp_path):
    path = tmp_path / "projection.safetensors"
    save_file({"proj.weight": HEADS["colbert_linear.weight"]}, path)
    found = Heads.read(path, n_embd=N_EMBD)
    rows = RNG.standard_normal((3, N_EMBD)).astype(np.float32)
    assert np.allclose(found.multi(rows), rows @ HEADS["colbert_linear.weight"].T)
    assert found.sparse is None
    save_file({"matrix": HEADS["colbert_linear.weight"]}, path)
    assert Heads.read(path, n_embd=N_EMBD).multi.weight.shape == (24, N_EMBD)


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"colbert_linear.weight": np.ones((24, 12), np.float32)}, r"\(24, 12\).*64 wide"),
        ({"colbert_linear.weight": np.ones((2, 3, N_EMBD), np.float32)}, "another model"),
        ({"sparse_linear.weight": np.ones((2, N_EMBD), np.float32)}, "1 value a token"),
        (
            {
                "linear.weight": np.ones((3, N_EMBD), np.float32),
                "linear.bias": np.ones(4, np.float32),
            },
            r"a bias of \(4,\)",
        ),
        (
            {"a.weight": np.ones((2, N_EMBD), "f4"), "b.weight": np.ones((2, N_EMBD), "f4")},
            "a.weight, b.weight",
        ),
        ({"nothing": np.ones(3, np.float32)}, "a heads file has colbert_linear"),
    ],
)
def test_heads_of_another_model_are_refused(tmp_path, tensors, words):
    path = tmp_path / "heads.safetensors"
    save_file(tensors, path)
    with pytest.raises(UsageError, match=words):
        Heads.read(path, n_embd=N_EMBD)


def test_a_pickle_is_not_read(tmp_path):
    path = tmp_path / "colbert_linear.pt"
    path.write_bytes(pickle.dumps({"weight": 1}))
    with pytest.raises(UsageError, match="pickles, which may run code"):
        Heads.read(path, n_embd=N_EMBD)
    with pytest.raises(UsageError, match="no heads file"):
        Heads.read(tmp_path / "nowhere.safetensors", n_embd=N_EMBD)


# Against numpy


@pytest.mark.parametrize("text", TEXTS)
def test_all_three_are_numpys(text, heads):
    rows, ids = token_rows(text)
    found = read_out(text, heads=Heads.read(heads, n_embd=N_EMBD), multi=True, lexical=True)
    assert np.allclose(found["dense"], unit(rows.mean(axis=0)), atol=1e-5)
    projected = rows[1:] @ HEADS["colbert_linear.weight"].T + HEADS["colbert_linear.bias"]
    assert np.allclose(found["multi"], unit(projected), atol=1e-5)  # as BGE-M3: without [CLS]
    weights = rows @ HEADS["sparse_linear.weight"][0] + HEADS["sparse_linear.bias"][0]
    expected = {}
    for token, weight in zip(ids[1:-1].tolist(), weights[1:-1].tolist(), strict=True):
        if weight > 0:
            expected[token] = max(weight, expected.get(token, 0))
    stored = dict(
        zip(found["sparse"].indices.tolist(), found["sparse"].values.tolist(), strict=True)
    )
    assert stored == pytest.approx(expected, abs=1e-4)


def test_without_heads_a_multivector_is_the_rows_themselves():
    rows, _ = token_rows(TEXTS[0])
    found = read_out(TEXTS[0], multi=True)
    assert np.allclose(found["multi"], unit(rows[1:-1]), atol=1e-5)
    nothing = read_out("", multi=True)
    assert nothing["multi"].shape == (2, N_EMBD)  # special tokens are all there is


def test_a_text_of_no_weight_has_no_sparse_vector(tmp_path):
    path = tmp_path / "heads.safetensors"
    save_file(
        {
            "sparse_linear.weight": np.zeros((1, N_EMBD), "f4"),
            "sparse_linear.bias": np.array([-1], "f4"),
        },
        path,
    )
    found = read_out(TEXTS[0], heads=Heads.read(path, n_embd=N_EMBD), lexical=True)
    assert set(found) == {"dense"}


def test_heads_that_lack_what_is_asked_for(tmp_path):
    only = tmp_path / "only.safetensors"
    save_file({name: HEADS[name] for name in HEADS if name.startswith("sparse")}, only)
    with pytest.raises(UsageError, match="no projection"):
        read_out("x", heads=Heads.read(only, n_embd=N_EMBD), multi=True)
    save_file({name: HEADS[name] for name in HEADS if name.startswith("colbert")}, only)
    with pytest.raises(UsageError, match="sparse_linear"):
        read_out("x", heads=Heads.read(only, n_embd=N_EMBD), lexical=True)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"late": True, "multi": True}, "late chunking gives the dense vector alone"),
        ({"lexical": True, "bm25": {}, "heads": "h"}, "not both"),
        ({"lexical": True}, "--heads"),
        ({"heads": "h"}, "neither is asked for"),
    ],
)
def test_parts_that_do_not_go_together(parts, words):
    with pytest.raises(UsageError, match=words):
        Recipe(**parts)


def test_a_recipe_is_read_back_from_its_fingerprint(heads):
    recipe = Recipe(short_dim=32, multi=True, lexical=True, heads=str(heads), long_model="far.gguf")
    fields = {"short_dim": 32, "multi": "abc", "sparse": "lexical", "heads_sha256": "abc"}
    held = Fingerprint(model="m", fields=fields, names=recipe.names)
    again = Fingerprint.from_metadata(held.to_metadata(), collection="docs")
    assert Recipe.of(again) == recipe
    assert Recipe.of(again, heads="elsewhere").heads == "elsewhere"


@pytest.mark.parametrize("part", ["heads", "long_model"])
def test_a_part_that_a_collection_was_made_without_is_refused(part):
    held = Fingerprint(model="m", fields={}, names={})
    with pytest.raises(UsageError, match=f"{part}='x' is given, and the collection was made with"):
        Recipe.of(held, **{part: "x"})


# Through an ingest


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "docs"
    root.mkdir()
    for number, text in enumerate(TEXTS):
        (root / f"{number}.txt").write_text(text)
    return root


@pytest.fixture
def target(tmp_path):
    return SinkOptions(collection="docs", path=str(tmp_path / "db"))


def run(folder, target, **options):
    settings = {"model": str(BERT.path), **options}
    return ingest(
        IngestOptions(paths=[folder], target=target, **settings), progress=lambda *_, **__: None
    )


def test_an_ingest_stores_all_three_and_a_search_uses_them(folder, target, heads):
    report = run(folder, target, multi=True, lexical=True, heads=str(heads))
    assert report.embedded == len(TEXTS)
    assert run(folder, target, multi=True, lexical=True, heads=str(heads)).embedded == 0
    with connect(path=target.path) as client:
        points, _ = client.scroll("docs", limit=10, with_vectors=True)
    assert all(np.asarray(point.vector["multi"]).shape[1] == 24 for point in points)
    assert all(set(point.vector) == {"dense", "multi", "sparse"} for point in points)
    for number, text in enumerate(TEXTS):
        (best,) = search(text, target=target, k=1)
        assert best.source == f"{number}.txt"
    (by_words,) = search(TEXTS[1], target=target, k=1, ranking=RankingOptions(using=["sparse"]))
    assert by_words.source == "1.txt"


def test_that_nobody_trained_a_multivector_is_said_once_where_it_is_stored(folder, target, caplog):
    with caplog.at_level(logging.WARNING):
        run(folder, target, multi=True)
        search(TEXTS[0], target=target)
    assert caplog.text.count("nobody trained for MaxSim") == 1


def test_heads_that_are_not_those_of_the_collection(folder, target, heads, tmp_path):
    run(folder, target, multi=True, heads=str(heads))
    other = tmp_path / "other.safetensors"
    save_file({"colbert_linear.weight": HEADS["colbert_linear.weight"]}, other)
    with pytest.raises(CollectionError, match="multi: the collection has"):
        run(folder, target, multi=True, heads=str(other))
    with pytest.raises(CollectionError, match="made with other heads"):
        search("x", target=target, heads=str(other))
    moved = Path(heads).rename(tmp_path / "moved.safetensors")
    with pytest.raises(UsageError, match="no heads file"):
        search("x", target=target)
    assert search(TEXTS[0], target=target, k=1, heads=str(moved))[0].source == "0.txt"
