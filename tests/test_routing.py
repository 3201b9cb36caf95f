"""Documents over a model's limit go whole to a second one, into a vector of its own."""

import shutil

import numpy as np
import pytest
import tiny_models
from tiny_models import Shape

from corral import CorralRetriever, GGUFEmbeddings
from corral.cli.progress import summary_lines
from corral.errors import CollectionError, ModelError, PoolingError
from corral.ingest import IngestOptions, ingest
from corral.ranking import RankingOptions
from corral.search import search
from corral_sinks import SinkOptions
from corral_sinks.qdrant import connect

NEAR = tiny_models.bert(shape=Shape(n_ctx_train=64))
FAR = tiny_models.qwen3(shape=Shape(n_ctx_train=1024))
SHORT = "Who closed the gate?"
LONG = "\n The flock went up the hill. Rain came in the night!\n\nWho closed the gate? " * 5


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "docs"
    root.mkdir()
    (root / "short.txt").write_text(SHORT)
    (root / "long.txt").write_text(LONG)
    return root


@pytest.fixture
def target(tmp_path):
    return SinkOptions(collection="docs", path=str(tmp_path / "db"))


def run(folder, target, **options):
    settings = {"model": str(NEAR.path), "long_model": str(FAR.path), "isolate": False, **options}
    return ingest(
        IngestOptions(paths=[folder], target=target, **settings), progress=lambda *_, **__: None
    )


def points_by_source(target):
    with connect(path=target.path) as client:
        found, _ = client.scroll(target.collection, limit=100, with_vectors=True)
    by_source = {}
    for point in found:
        by_source.setdefault(point.payload["metadata"]["source"], []).append(point)
    return by_source


def test_a_long_document_goes_whole_to_the_second_model(folder, target):
    report = run(folder, target)
    stored = points_by_source(target)
    (long,), (short,) = stored["long.txt"], stored["short.txt"]
    assert set(long.vector) == {"long"}
    assert set(short.vector) == {"dense"}
    with GGUFEmbeddings(FAR.path) as far, GGUFEmbeddings(NEAR.path) as near:
        assert np.allclose(long.vector["long"], far.embed([LONG.strip()])[0], atol=1e-5)
        assert np.allclose(short.vector["dense"], near.embed([SHORT])[0], atol=1e-5)
        n_tokens = far.sequences("").count(LONG.strip())
    assert long.payload["page_content"] == LONG.strip()
    assert long.payload["metadata"]["n_tokens"] == n_tokens > 64
    assert long.payload["metadata"]["model"] == str(FAR.path)
    assert short.payload["metadata"]["model"] == str(NEAR.path)
    assert report.truncated == 0
    assert report.totals()["routed"] == 1


def test_the_summary_says_what_went_where_and_why(folder, target):
    (line,) = [line for line in summary_lines(run(folder, target)) if line.startswith("long")]
    assert "1 documents of more than the 64 tokens" in line
    assert f"went whole to {FAR.path}, into the vector long" in line


def test_a_second_run_does_nothing(folder, target):
    run(folder, target)
    report = run(folder, target)
    assert (report.embedded, report.moved, report.deleted) == (0, 0, 0)
    assert report.files["unchanged"] == 2


def test_a_document_that_grows_over_the_limit_moves(folder, target):
    (folder / "short.txt").write_text(LONG + SHORT)
    run(folder, target)
    (folder / "short.txt").write_text(SHORT)
    report = run(folder, target)
    assert (report.embedded, report.deleted) == (1, 1)
    (short,) = points_by_source(target)["short.txt"]
    assert set(short.vector) == {"dense"}


def test_a_document_over_the_second_limit_too_is_cut_for_it(folder, target):
    far = tiny_models.qwen3(shape=Shape(n_ctx_train=128))
    report = run(folder, target, long_model=str(far.path))
    parts = points_by_source(target)["long.txt"]
    assert len(parts) > 1
    assert all(set(part.vector) == {"long"} for part in parts)
    assert max(part.payload["metadata"]["n_tokens"] for part in parts) <= 128
    assert report.truncated == 0


def test_a_query_is_embedded_by_both_and_the_finds_are_fused(folder, target):
    run(folder, target)
    found = search(SHORT, target=target, k=2)
    assert {chunk.source for chunk in found} == {"long.txt", "short.txt"}
    (only,) = search(SHORT, target=target, k=2, ranking=RankingOptions(using=["long"]))
    assert only.source == "long.txt"
    with CorralRetriever(collection="docs", path=target.path, k=2) as retriever:
        documents = retriever.invoke(SHORT)
    assert {document.metadata["source"] for document in documents} == {"long.txt", "short.txt"}


def test_words_are_stored_of_long_documents_too(folder, target):
    run(folder, target, sparse={})
    (long,) = points_by_source(target)["long.txt"]
    assert set(long.vector) == {"long", "sparse"}


def test_a_second_model_that_is_missing_is_named(folder, target, tmp_path):
    far = tmp_path / "far.gguf"
    shutil.copy(FAR.path, far)
    run(folder, target, long_model=str(far))
    moved = far.rename(tmp_path / "moved.gguf")
    words = r"vector long\) were embedded by .*far\.gguf.*minilm\. Say where"
    with pytest.raises(ModelError, match=words):
        search(SHORT, target=target)
    assert len(search(SHORT, target=target, k=2, long_model=str(moved))) == 2
    other = tiny_models.qwen3(shape=Shape(n_ctx_train=1024), seed=1)
    for wrong in (other, NEAR):  # the second is of another kind, too
        with pytest.raises(CollectionError, match="model_sha256"):
            search(SHORT, target=target, long_model=str(wrong.path))


def test_another_second_model_does_not_mix(folder, target):
    run(folder, target)
    other = tiny_models.qwen3(shape=Shape(n_ctx_train=1024), seed=1)
    with pytest.raises(CollectionError, match=r"long\.model_sha256"):
        run(folder, target, long_model=str(other.path))
    with pytest.raises(CollectionError, match=r"long\.model_sha256"):
        run(folder, target, long_model=None)


def test_a_second_model_that_pools_otherwise_is_refused(folder, target):
    with pytest.raises(PoolingError, match="pools by mean; it must pool by last"):
        run(folder, target, long_model=str(tiny_models.bert().path))


def test_a_dry_run_says_what_would_go_where(folder, target):
    report = run(folder, target, dry_run=True)
    assert report.routed == 1
    assert report.chunks == 2
