"""`corral rerank`, and `corral search --rerank`."""

import json
from pathlib import Path

import numpy as np
import pytest
import tiny_models
from commands import corral
from reranking import documents_of, reranker

from corral.errors import PoolingError, UsageError
from corral.search import search
from corral_sinks import SinkOptions

QUERY = "which fish is in the harbour"
MODEL = tiny_models.qwen3(pooling="rank")
EXAMPLES = Path(__file__).parents[1] / "examples" / "docs"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Three text files, a file that is none, and a long one."""
    folder = tmp_path_factory.mktemp("files")
    for i, text in enumerate(documents_of(5, 12, 3)):
        (folder / f"{i}.txt").write_text(text, "utf-8")
    (folder / "long.txt").write_text("fish " * 2_000, "utf-8")
    (folder / "binary").write_bytes(bytes(range(256)))
    return folder


def printed(done):
    """The JSON lines of a command that went well."""
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_files_come_out_best_first_with_probabilities(files):
    names = [str(files / name) for name in ("0.txt", "1.txt", "2.txt", "long.txt")]
    found = printed(corral("rerank", QUERY, *names, "--model", MODEL.path, "--json"))
    with reranker(MODEL.path) as model:
        scores = model.rerank(QUERY, [Path(name).read_text("utf-8") for name in names])
    order = np.argsort(-scores)
    assert [line["source"] for line in found] == [names[i] for i in order]
    np.testing.assert_allclose([line["score"] for line in found], scores[order], atol=1e-4)
    assert {line["source"]: line["truncated"] for line in found} == {
        name: "long" in name for name in names
    }


def test_raw_scores_the_best_few_and_standard_input(files):
    asked = ["rerank", QUERY, files / "0.txt", "-", "--model", MODEL.path, "--json"]
    both = printed(corral(*asked, "--raw", stdin="the fishing boat"))
    assert {line["source"] for line in both} == {str(files / "0.txt"), "-"}
    assert any(line["score"] < 0 for line in both)
    few = printed(corral(*asked, "--raw", "--top-n", 1, stdin="the fishing boat"))
    assert few == both[:1]


def test_lines_for_reading_say_what_was_cut(files):
    done = corral("rerank", QUERY, files / "0.txt", files / "long.txt", "--model", MODEL.path)
    assert done.returncode == 0, done.stderr
    lines = {line.split()[1]: line for line in done.stdout.splitlines()}
    assert lines[str(files / "long.txt")].endswith("(its end was not read)")
    assert lines[str(files / "0.txt")].split()[1:] == [str(files / "0.txt")]


def test_a_file_that_is_no_text_is_named_and_the_others_are_scored(files):
    done = corral(
        "rerank", QUERY, files / "binary", files / "0.txt", "--model", MODEL.path, "--json"
    )
    assert done.returncode == 1
    assert str(files / "binary") in done.stderr
    assert [json.loads(line)["source"] for line in done.stdout.splitlines()] == [
        str(files / "0.txt")
    ]


def test_an_embedding_model_is_refused_in_one_line(files):
    done = corral("rerank", QUERY, files / "0.txt", "--model", tiny_models.qwen3().path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: pooling_type rank needs a classification head")
    assert len(done.stderr.splitlines()) == 1


# Search


@pytest.fixture(scope="module")
def collection(tmp_path_factory, minilm_path):
    """The examples' pages, ingested with the built-in model."""
    assert minilm_path.is_file()
    path = tmp_path_factory.mktemp("qdrant")
    done = corral("ingest", EXAMPLES, "--path", path, "--collection", "pages")
    assert done.returncode == 0, done.stderr
    return path


def target(path):
    return SinkOptions(collection="pages", path=str(path))


def test_a_search_is_reranked_over_more_than_it_returns(collection):
    question = "who looks after the dog"
    near = search(question, target=target(collection), k=6)
    found = search(question, target=target(collection), k=2, rerank=str(MODEL.path), fetch_k=6)
    with reranker(MODEL.path) as model:
        scores = model.rerank(question, [chunk.text for chunk in near])
    best = np.argsort(-scores)[:2]
    assert [chunk.text for chunk in found] == [near[i].text for i in best]
    np.testing.assert_allclose([chunk.score for chunk in found], scores[best], atol=1e-4)


def test_the_command_reranks_too(collection):
    asked = ["search", "dog", "--path", collection, "--collection", "pages", "-k", 2, "--json"]
    found = printed(corral(*asked, "--rerank", MODEL.path, "--fetch-k", 4))
    reranked = search("dog", target=target(collection), k=2, rerank=str(MODEL.path), fetch_k=4)
    assert [line["text"] for line in found] == [chunk.text for chunk in reranked]


def test_without_fetch_k_four_times_k_are_asked_for(collection):
    question = "who looks after the dog"
    found = search(question, target=target(collection), k=8, rerank=str(MODEL.path))
    explicit = search(question, target=target(collection), k=8, rerank=str(MODEL.path), fetch_k=32)
    assert [chunk.text for chunk in found] == [chunk.text for chunk in explicit]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"k": 0}, "k is 0; it must be at least 1"),
        ({"fetch_k": 9}, "there is none"),
        ({"k": 5, "fetch_k": 4, "rerank": "x.gguf"}, "fetch_k is 4 and k is 5"),
    ],
)
def test_numbers_that_cannot_be_are_refused(tmp_path, options, says):
    with pytest.raises(UsageError, match=says):
        search("dog", target=target(tmp_path), **options)


def test_a_model_that_is_no_reranker_is_refused(collection):
    with pytest.raises(PoolingError, match="is no reranker"):
        search("dog", target=target(collection), rerank="minilm")
