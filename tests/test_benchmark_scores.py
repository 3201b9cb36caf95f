"""The figures of benchmarks/chunking.py, by hand."""

import importlib.util
from pathlib import Path

import pytest

_FILE = Path(__file__).parents[1] / "benchmarks" / "chunking.py"


@pytest.fixture(scope="module")
def chunking():
    spec = importlib.util.spec_from_file_location("benchmark_of_chunking", _FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("evidence", "found", "elsewhere", "expected"),
    [
        ([(0, 10)], [(0, 10)], 0, (1.0, 1.0, 1.0)),
        ([(0, 10)], [(5, 15)], 0, (0.5, 0.5, 5 / 15)),
        ([(0, 10)], [(5, 15), (7, 12)], 10, (0.5, 0.25, 5 / 25)),  # chunks that overlap count once
        ([(0, 4), (10, 14)], [(0, 20)], 0, (1.0, 8 / 20, 8 / 20)),
        ([(0, 4)], [], 5, (0.0, 0.0, 0.0)),
    ],
)
def test_characters_are_counted(chunking, evidence, found, elsewhere, expected):
    score = chunking.score(evidence, found, elsewhere)
    assert (score.recall, score.precision, score.iou) == pytest.approx(expected)


def test_the_mean_is_taken_of_each(chunking):
    scores = [chunking.Score(1.0, 0.5, 0.25), chunking.Score(0.0, 0.5, 0.75)]
    assert chunking.mean(scores) == chunking.Score(0.5, 0.5, 0.5)
