"""What is asked for by mistake is refused before anything is done, with the way out."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_models
from click.testing import CliRunner

from corral import GGUFEmbeddings, GGUFReranker
from corral.cli import corral
from corral.cli.progress import summary_lines
from corral.collection import n_candidates
from corral.errors import UsageError
from corral.report import Report

BERT = tiny_models.bert()
RANKER = tiny_models.qwen3(pooling="rank")
EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_contexts": 1000}, "n_contexts is 1000; it must be at least 1 and at most 256"),
        ({"n_contexts": 2.0}, "n_contexts is 2.0; it must be a whole number"),
        ({"n_threads": True}, "n_threads is True; it must be a whole number"),
        ({"n_gpu_layers": -7}, "n_gpu_layers is -7; it must be at least -1"),
        ({"dim": "32"}, "dim is '32'; it must be a whole number"),
        ({"dim": 33}, "force_dim=True, --force-dim"),
        ({"document_prefix": "rain " * 600}, "Take a prefix of at most 509 tokens"),
    ],
)
def test_options_of_a_model(options, words):
    with pytest.raises(UsageError, match=words):
        GGUFEmbeddings(BERT.path, **options)


def test_a_model_is_not_pickled():
    with GGUFEmbeddings(BERT.path) as embeddings:
        with pytest.raises(TypeError, match="a GGUFEmbeddings holds what lives in this process"):
            pickle.dumps(embeddings)
        with pytest.raises(TypeError, match="Make one in each process"):
            pickle.dumps({"model": embeddings})


@pytest.mark.parametrize("wrong", [("q", "a text"), ("q", ["a", 1]), (1, ["a"])])
def test_what_is_no_list_of_texts_is_not_ranked(wrong):
    with (
        GGUFReranker(RANKER.path) as reranker,
        pytest.raises(UsageError, match="texts are a list of strings"),
    ):
        reranker.rerank(*wrong)


@pytest.mark.parametrize(("k", "fetch_k"), [(10**30, None), (5, 10**9)])
def test_more_chunks_than_a_search_gives(k, fetch_k):
    with pytest.raises(UsageError, match="at most 100,000"):
        n_candidates(k, fetch_k=fetch_k, reranks=fetch_k is not None)


@pytest.fixture
def run(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("The flock went up the hill.")
    store = ("--path", tmp_path / "db", "--collection", "docs", "--model", BERT.path)

    def run_ingest(*options):
        arguments = ["ingest", tmp_path / "docs", *store, *options]
        return CliRunner().invoke(corral, [str(argument) for argument in arguments])

    return run_ingest


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--yes",), "there is no --prune"),
        (("--max-file-size", 0), "0 is not in the range x>=1"),
    ],
)
def test_options_of_an_ingest(run, options, words):
    result = run(*options)
    assert result.exit_code == 2
    assert words in result.output


@pytest.mark.parametrize("option", ["--report", "--metrics"])
def test_a_report_overwrites_nothing_but_an_earlier_one(run, tmp_path, option):
    document = tmp_path / "docs" / "a.txt"
    result = run(option, document)
    assert result.exit_code == 2
    assert "none of an earlier run" in result.output
    assert document.read_text() == "The flock went up the hill."
    report = tmp_path / "report"
    assert run(option, report).exit_code == 0
    first = report.read_text()
    assert run(option, report).exit_code == 0
    assert report.read_text() != first


def test_report_and_metrics_are_two_files(run, tmp_path):
    result = run("--report", tmp_path / "both", "--metrics", tmp_path / "both")
    assert result.exit_code == 2
    assert "are both" in result.output


def test_a_run_that_ended_early_counts_no_points():
    lines = summary_lines(Report(error="interrupted"))
    assert "points   not counted, since the run ended early" in lines


@pytest.mark.parametrize("name", ["rag_with_rerank", "rerank_texts", "retrieve_from_server"])
def test_an_example_without_its_argument_says_how_it_is_called(name):
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"examples/{name}.py" in done.stderr
    assert "Traceback" not in done.stderr
