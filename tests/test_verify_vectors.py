"""A tampered vector of any kind is found, by what made it: also late ones, and long documents'."""

import io
import sys
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import tiny_models
from safetensors.numpy import save_file
from tiny_models import Shape

from corral import audit as audit_module
from corral.audit import audit
from corral.errors import ModelError, UsageError
from corral.ingest import IngestOptions, ingest
from corral.reading import STDIN
from corral_sinks import SinkOptions, SparseVector
from corral_sinks.qdrant import QdrantSink

BERT = tiny_models.bert()
NEAR = tiny_models.bert(shape=Shape(n_ctx_train=64))
FAR = tiny_models.qwen3(shape=Shape(n_ctx_train=128))
SENTENCES = "The flock went up the hill. Rain came in the night!\n\nWho closed the gate? "
RNG = np.random.default_rng(3)
KINDS = {
    "words": ({"sparse": {}}, {"dense", "sparse"}),
    "short": (
        {"short_dim": 16, "model_options": {"force_dim": True, "dim": 32}},
        {"dense", "full"},
    ),
    "readouts": ({"multi": True, "lexical": True}, {"dense", "multi", "sparse"}),
    "late": ({"late": True, "chunk_size": 20, "sparse": {}}, {"dense", "sparse"}),
    "routed": (
        {"model": str(NEAR.path), "long_model": str(FAR.path), "sparse": {}},
        {"dense", "long", "sparse"},
    ),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    family = tmp_path / "mine.toml"
    family.write_text(
        '[mine]\nsource = "https://example.org"\nmatch = ["tiny-bert"]\ntrained_dims = [16, 32]\n'
    )
    monkeypatch.setenv("CORRAL_PROFILES", str(family))
    save_file(
        {
            "colbert_linear.weight": RNG.standard_normal((24, 64)).astype(np.float32),
            "sparse_linear.weight": RNG.standard_normal((1, 64)).astype(np.float32),
        },
        tmp_path / "heads.safetensors",
    )
    root = tmp_path / "docs"
    root.mkdir()
    (root / "long.txt").write_text(SENTENCES * 8)
    (root / "short.txt").write_text("Who closed the gate?")
    return root


@pytest.fixture
def target(tmp_path):
    return SinkOptions(collection="docs", path=str(tmp_path / "db"))


def run(folder, target, **options):
    heads = {"heads": str(folder.parent / "heads.safetensors")} if "multi" in options else {}
    given = {"model": str(BERT.path), "isolate": False, **heads, **options}
    ingest(IngestOptions(target=target, **{"paths": [folder], **given}), progress=ignore)


def ignore(*_, **__):
    """Take no note of the progress."""


def audited(folder, target, **options):
    return audit(target, **{"paths": [folder], **options}, progress=ignore, sample=1000)


def tampered(vector):
    """Give a vector of the same kind and length that is another one."""
    if isinstance(vector, SparseVector):
        return replace(vector, values=2 * vector.values)
    return np.roll(vector, 1, axis=-1)


@pytest.mark.parametrize(
    "kind",
    [
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("words", "short")),
        *("readouts", "late", "routed"),
    ],
)
def test_vectors_of_every_kind_are_computed_anew_and_a_tampered_one_is_found(folder, target, kind):
    options, names = KINDS[kind]
    (folder / "wool.txt").write_text("Wool is shorn in June.")
    run(folder, target, **options)
    found = audited(folder, target)
    assert found.ok
    assert found.sampled == found.points > 2
    assert found.least_similarity > 0.9999
    changed = {}
    with closing(QdrantSink(target)) as sink:
        for record in sink.records():
            for name in record.vectors.keys() - changed:
                vectors = {**record.vectors, name: tampered(record.vectors[name])}
                sink.upsert([replace(record, vectors=vectors)])
                changed[name] = record.id
                break
    assert set(changed) == names
    found = audited(folder, target)
    assert not found.ok
    assert {flaw.vector: flaw.id for flaw in found.flaws} == changed
    assert all("similarity" in flaw.fault for flaw in found.flaws)


def test_vectors_that_a_chunk_lacks_or_should_not_have_are_found(folder, target):
    run(folder, target, **KINDS["routed"][0])
    with closing(QdrantSink(target)) as sink:
        records = list(sink.records())
        long = next(one for one in records if "long" in one.vectors)
        short = next(one for one in records if "dense" in one.vectors)
        swapped = {
            "dense": short.vectors["dense"],
            **{name: vector for name, vector in long.vectors.items() if name != "long"},
        }
        sink.upsert([replace(long, vectors=swapped)])
    flaws = {flaw.vector: flaw.fault for flaw in audited(folder, target).flaws}
    assert flaws == {"long": "is missing", "dense": "is one that the model does not give"}


def test_late_chunks_of_a_file_that_changed_are_stale_and_not_computed_anew(folder, target):
    rows = folder / "rows.jsonl"
    rows.write_text('{"text": "Two dogs"}\n{"text": "Wool is shorn"}\n')
    run(folder, target, **KINDS["late"][0])
    (folder / "long.txt").write_text(SENTENCES * 3)
    found = audited(folder, target)
    assert found.differing == ["long.txt"]
    assert found.sampled == 3  # the other files'
    assert found.unsampled == found.points - 3
    assert found.flaws == []


def test_late_vectors_of_standard_input_are_computed_anew_too(folder, target, monkeypatch):
    def pipe():
        piped = io.TextIOWrapper(io.BytesIO((SENTENCES * 5).encode()))
        monkeypatch.setattr(sys, "stdin", piped)
        return {"paths": [folder, STDIN]}

    run(folder, target, **pipe(), **KINDS["late"][0])
    found = audited(folder, target, **pipe())
    assert found.ok
    assert found.sampled == found.points
    with closing(QdrantSink(target)) as sink:
        piped = next(
            one for one in sink.records() if one.payload["metadata"]["source"] == str(STDIN)
        )
        wrong = {**piped.vectors, "dense": tampered(piped.vectors["dense"])}
        sink.upsert([replace(piped, vectors=wrong)])
    assert [flaw.id for flaw in audited(folder, target, **pipe()).flaws] == [piped.id]


def test_heads_and_a_second_model_that_moved_are_named(folder, target, tmp_path):
    run(folder, target, multi=True)
    heads = (tmp_path / "heads.safetensors").rename(tmp_path / "moved.safetensors")
    with pytest.raises(UsageError, match=r"no heads file .*heads\.safetensors; .*--heads FILE"):
        audited(folder, target)
    assert audited(folder, target, heads=str(heads)).ok
    far = tmp_path / "far.gguf"
    far.write_bytes(FAR.path.read_bytes())
    other = replace(target, collection="routed")
    run(folder, other, model=str(NEAR.path), long_model=str(far))
    far.unlink()
    with pytest.raises(ModelError, match=r"far\.gguf"):
        audited(folder, other)
    assert audited(folder, other, long_model=str(FAR.path)).ok


def test_a_vector_of_zeros_or_of_nan_is_like_no_other():
    similarity = audit_module._similarity
    zeros = SparseVector(indices=np.array([1]), values=np.zeros(1, np.float32))
    with np.errstate(all="ignore"):
        assert similarity(zeros, zeros) == 0
        assert similarity(np.full(3, np.nan, np.float32), np.ones(3, np.float32)) == 0
    assert similarity(zeros, np.ones(3, np.float32)) == 0
    assert similarity(np.ones((2, 3), np.float32), np.ones((1, 3), np.float32)) == 0
