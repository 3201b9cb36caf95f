"""Hugging Face folders become GGUFs that give what transformers gives for the folders."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
import tiny_folders
from commands import corral
from golden import folder as golden
from reranking import laid_out
from tiny_folders import EMBEDDING, KINDS, PAIRS, RERANKING, TEXTS

from corral import GGUFEmbeddings, GGUFReranker
from corral.engine.tokenizer import _pretokenizers
from corral.gguf_header import read_header
from corral.models import describe, resolve
from corral.models.convert import bpe, causal, convert

LEAST_COSINE = 0.99999
MOST_ERROR = {"f32": 1e-3, "f16": 5e-3}
N_VOCAB = 416
BERTS = ("bert-reranker", "bert-classifier")


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """Give the GGUF of a folder and a type, made once."""
    parent, made = tmp_path_factory.mktemp("converted"), {}

    def give(name, weights="f32"):
        if (name, weights) not in made:
            folder = parent / name
            if not folder.exists():
                tiny_folders.write(name, parent)
            made[name, weights] = parent / f"{name}-{weights}.gguf"
            convert(folder, made[name, weights], weights=weights)
        return made[name, weights]

    return give


def reference_ids(model, ids):
    """Ids without the offset of the second segment."""
    offset = model._parts.layout.second_offset if hasattr(model._parts.layout, "limit") else 0
    return [int(i) - offset if offset and i >= offset else int(i) for i in ids]


def score_all(model):
    """Raw scores and token ids of PAIRS, each query's documents in one call."""
    numbers = defaultdict(list)
    for number, (query, _) in enumerate(PAIRS):
        numbers[query].append(number)
    scores, ids = np.empty(len(PAIRS)), [None] * len(PAIRS)
    for query, those in numbers.items():
        documents = [PAIRS[number][1] for number in those]
        scores[those] = model.rerank(query, documents)
        for number, found in zip(those, laid_out(model, query, documents), strict=True):
            ids[number] = reference_ids(model, found)
    return scores, ids


@pytest.mark.parametrize("name", KINDS)
def test_the_golden_values_are_those_of_these_weights(name):
    assert golden(name).weights == tiny_folders.weights_sha256(name)


@pytest.mark.parametrize("weights", ["f32", "f16"])
@pytest.mark.parametrize("name", EMBEDDING)
def test_an_embedding_model_gives_transformers_vectors(name, weights, converted):
    reference = golden(name)
    with GGUFEmbeddings(converted(name, weights), normalize="none") as model:
        rows = model.embed(TEXTS)
        built = model.sequences("").build(TEXTS)
    assert [text.pieces[0].ids.tolist() for text in built] == reference.ids
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(reference.values, axis=1)
    assert ((rows * reference.values).sum(axis=1) / lengths).min() >= LEAST_COSINE
    np.testing.assert_allclose(rows, reference.values, atol=0.01)


@pytest.mark.parametrize("weights", ["f32", "f16"])
@pytest.mark.parametrize("name", RERANKING)
def test_a_reranker_gives_transformers_scores(name, weights, converted):
    reference = golden(name)
    label = "good" if name == "bert-classifier" else None
    with GGUFReranker(converted(name, weights), score="raw", label=label) as model:
        scores, ids = score_all(model)
    assert ids == reference.ids
    np.testing.assert_allclose(scores, reference.values[:, -1], atol=MOST_ERROR[weights])
    assert np.ptp(reference.values[:, -1]) > 100 * MOST_ERROR["f32"]


def test_every_label_of_a_classifier_is_transformers(converted):
    reference = golden("bert-classifier").values
    for number, label in enumerate(["bad", "fair", "good"]):
        with GGUFReranker(converted("bert-classifier"), score="raw", label=label) as model:
            scores, _ = score_all(model)
        np.testing.assert_allclose(scores, reference[:, number], atol=MOST_ERROR["f32"])


@pytest.mark.parametrize("name", BERTS)
def test_without_the_second_segments_rows_scores_would_be_far_off(name, converted):
    reference = golden(name).values[:, -1]
    with GGUFReranker(
        converted(name), score="raw", label=len(KINDS[name].config["id2label"]) - 1
    ) as m:
        layout = m._parts.layout
        assert layout.second_offset == N_VOCAB
        m._parts = replace(m._parts, layout=replace(layout, second_offset=0))
        scores, _ = score_all(m)
    assert np.abs(scores - reference).max() > 20 * MOST_ERROR["f32"]


def test_probabilities_of_a_yes_no_model_are_its_own(converted):
    reference = golden("qwen3-reranker").values[:, 0]
    with GGUFReranker(converted("qwen3-reranker")) as model:
        probabilities, _ = score_all(model)
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-reference)), atol=1e-3)


# What the files say


def test_a_sentence_transformers_limit_is_kept_and_honoured(converted):
    header = read_header(converted("bert"))
    assert header.metadata["corral.max_tokens"] == 32
    facts = describe(resolve(str(converted("bert"))))
    assert (facts["max_tokens"], facts["max_tokens_from"]) == (32, "corral.max_tokens")
    with GGUFEmbeddings(converted("bert")) as model:
        _, (info,) = model.embed(["fish " * 60], return_info=True)
    assert info.truncated


@pytest.mark.parametrize(
    ("name", "pooling"),
    [("bert", 1), ("xlm-roberta", 2), ("qwen3", 3), ("llama", 1)]
    + [(name, 4) for name in RERANKING],
)
def test_the_pooling_stands_in_the_file(name, pooling, converted):
    assert read_header(converted(name)).arch("pooling_type") == pooling


@pytest.mark.parametrize("name", ["qwen3-reranker", "qwen3-reranker-untied", "qwen3-seq-cls"])
def test_a_qwen3_reranker_has_two_rows_its_labels_and_its_template(name, converted):
    header = read_header(converted(name))
    assert header.tensors["cls.output.weight"].shape == (2, 32)
    assert header.arch("classifier.output_labels") == ["yes", "no"]
    assert header.metadata["tokenizer.chat_template.rerank"] == causal.RERANK_TEMPLATE


def test_the_language_models_head_is_left_out(converted):
    assert "output.weight" not in read_header(converted("qwen3-reranker-untied")).tensors


def test_roberta_s_positions_begin_behind_the_padding(converted):
    header = read_header(converted("xlm-roberta"))
    assert header.arch("context_length") == 64
    assert header.tensors["position_embd.weight"].shape == (64, 32)


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("bert-reranker", (True, False, True)),
        ("xlm-roberta", (True, True, True)),
        ("roberta-reranker", (True, True, True)),
        ("qwen3", (False, True, False)),
        ("qwen3-reranker", (False, False, False)),
        ("llama", (True, False, False)),
    ],
)
def test_the_flags_of_special_tokens_are_the_tokenizers(name, flags, converted):
    metadata = read_header(converted(name)).metadata
    assert tuple(metadata[f"tokenizer.ggml.add_{n}_token"] for n in ("bos", "eos", "sep")) == flags


def test_rows_of_the_second_segment_can_never_come_out_of_a_text(converted):
    metadata = read_header(converted("bert-reranker")).metadata
    assert metadata["corral.second_segment_offset"] == N_VOCAB
    assert metadata["tokenizer.ggml.token_type"][N_VOCAB:] == [5] * N_VOCAB  # UNUSED
    with GGUFReranker(converted("bert-reranker")) as model:
        tokenizer = model._parts.opened.tokenizer
        ids = tokenizer.encode(
            "[SEGMENT_2_5] the fish " + metadata["tokenizer.ggml.tokens"][-1]
        ).ids
    assert ids.max() < N_VOCAB


def test_half_the_type_is_half_the_size(converted):
    whole, half = (read_header(converted("llama", kind)) for kind in ("f32", "f16"))
    assert whole.tensors["blk.0.attn_q.weight"].type == "F32"
    assert half.tensors["blk.0.attn_q.weight"].type == "F16"
    assert half.tensors["blk.0.attn_norm.weight"].type == "F32"
    assert half.file_size < 0.8 * whole.file_size


def test_what_the_head_reads_stays_exact(converted):
    tensors = read_header(converted("bert-reranker", "f16")).tensors
    exact = ["cls.weight", "cls.output.weight", "position_embd.weight", "token_types.weight"]
    assert {tensors[name].type for name in exact} == {"F32"}


def test_the_same_folder_gives_the_same_bytes(converted, tmp_path):
    folder = tiny_folders.write("bert-reranker", tmp_path)
    convert(folder, tmp_path / "again.gguf")
    assert (tmp_path / "again.gguf").read_bytes() == converted("bert-reranker").read_bytes()


def test_converter_and_tokenizer_know_the_same_ways_to_cut():
    for cut, name in bpe._NAMES.items():
        known = _pretokenizers.PRE_TOKENIZERS[name]
        if cut.pattern:
            assert (cut.pattern,) == known.patterns
        assert (cut.nfc, cut.ignore_merges) == (known.nfc, known.ignore_merges)


# The command line


def test_the_command_writes_beside_the_caller_and_prints_where(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tiny_folders.write("llama", tmp_path)
    done = corral("model", "convert", folder, "--type", "f16")
    assert (done.returncode, done.stdout) == (0, "llama-f16.gguf\n"), done.stderr
    assert read_header(tmp_path / "llama-f16.gguf").metadata["general.name"] == "llama"


def test_the_command_takes_a_target_and_a_pooling(tmp_path):
    folder = tiny_folders.write("llama", tmp_path)
    target = tmp_path / "made" / "x.gguf"
    done = corral("model", "convert", folder, "--out", target, "--pooling", "last")
    assert done.returncode == 0, done.stderr
    assert read_header(target).arch("pooling_type") == 3


def test_the_command_says_in_one_line_what_cannot_be_converted(tmp_path):
    done = corral("model", "convert", tmp_path / "nothing")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_target_that_cannot_be_written_is_said(tmp_path):
    folder = tiny_folders.write("llama", tmp_path)
    (tmp_path / "file").write_text("no folder")
    done = corral("model", "convert", folder, "--out", tmp_path / "file" / "x.gguf")
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
