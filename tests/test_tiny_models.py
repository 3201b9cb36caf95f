"""The tiny models are what they say, and the engine gives what numpy gives for the same weights."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest
import reference_models
import tiny_models
from tiny_models import Shape, TinyModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHILD = Path(__file__).with_name("engine_child.py")
N_TOKENS = (150, 1, 17, 2, 63, 40, 17, 3)
PREFIX = 24


def child(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, CHILD, *arguments], capture_output=True, text=True, check=False
    )


# The engine against numpy


@dataclass(frozen=True)
class Case:
    """One model run in one way.

    Args:
        name: of the test.
        model: what to run.
        pooling: of the run.
        options: other EngineOptions.
        prefix: whether the sequences begin alike.
    """

    name: str
    model: TinyModel
    pooling: tiny_models.Pooling
    options: dict[str, Any] = field(default_factory=dict)
    prefix: bool = False

    @property
    def sequences(self) -> list[NDArray[np.int32]]:
        prefix = self.model.random_ids(PREFIX if self.prefix else 0, seed=99)
        drawn = [self.model.random_ids(n, seed=i) for i, n in enumerate(N_TOKENS)]
        return [np.concatenate([prefix, ids]) for ids in drawn]

    def expected(self) -> list[NDArray[np.float64]]:
        causal = self.options.get("causal")
        return [
            reference_models.row(self.model, ids, self.pooling, causal=causal)
            for ids in self.sequences
        ]

    def request(self, *, flash_attn: bool | None) -> dict[str, Any]:
        return {
            "path": str(self.model.path),
            "sequences": [ids.tolist() for ids in self.sequences],
            "options": {"flash_attn": flash_attn, "pooling_type": self.pooling, **self.options},
        }


BERT = tiny_models.bert()
BERT_RANK = tiny_models.bert(pooling="rank", labels=("score",), pooler=True)
BERT_RANK_3 = tiny_models.bert(pooling="rank", labels=("no", "maybe", "yes"))
QWEN3 = tiny_models.qwen3()
QWEN3_RANK = tiny_models.qwen3(pooling="rank")
QWEN3_BOTH_WAYS = tiny_models.qwen3(pooling="mean", causal=False)
LLAMA = tiny_models.llama()
LARGE = Shape(n_embd=128, n_layer=4, n_head=8, n_head_kv=2, n_embd_head=16, n_ff=320)

CASES = [
    *(Case(f"bert {how}", BERT, how) for how in ("none", "mean", "cls")),
    Case("bert with four layers", tiny_models.bert(shape=LARGE, seed=1), "mean"),
    Case("bert with XLM-R's tokenizer", tiny_models.bert(tokenizer="unigram"), "cls"),
    Case("bert without a pooling key", tiny_models.bert(pooling=None), "none"),
    Case("bert rank with a pooler", BERT_RANK, "rank"),
    Case("bert rank with three labels", BERT_RANK_3, "rank"),
    *(Case(f"qwen3 {how}", QWEN3, how) for how in ("none", "mean", "cls", "last")),
    Case("qwen3 rank", QWEN3_RANK, "rank"),
    Case("qwen3 with four layers", tiny_models.qwen3(shape=LARGE, seed=1), "last"),
    Case("qwen3 of 40,000 tokens", tiny_models.qwen3(shape=Shape(n_vocab=40_000)), "last"),
    Case("qwen3 that looks both ways", QWEN3_BOTH_WAYS, "mean"),
    Case("qwen3 made to look both ways", QWEN3, "mean", {"causal": False}),
    *(Case(f"llama {how}", LLAMA, how) for how in ("none", "mean", "last")),
    Case("llama with four layers", tiny_models.llama(shape=LARGE, seed=1), "mean"),
    Case("llama with SPM", tiny_models.llama(tokenizer="spm"), "last"),
    *(
        Case(f"qwen3 {how} over several decodes", QWEN3, how, {"n_ubatch": 64})
        for how in ("none", "mean", "last")
    ),
    Case("qwen3 rank over several decodes", QWEN3_RANK, "rank", {"n_ubatch": 64}),
    *(
        Case(f"llama {how} with a shared prefix", LLAMA, how, prefix=True)
        for how in ("none", "mean", "last")
    ),
    Case("qwen3 rank with a shared prefix", QWEN3_RANK, "rank", prefix=True),
    Case("bert in several contexts", BERT, "mean", {"n_contexts": 3, "pack_tokens": 64}),
]


@pytest.fixture(scope="module", params=[False, None], ids=["flash_attn off", "flash_attn auto"])
def engine_rows(request, tmp_path_factory) -> dict[str, list[NDArray[np.float32]]]:
    """Rows of every case, all from one child."""
    folder = tmp_path_factory.mktemp("rows")
    asked, result = folder / "request.json", folder / "result.npz"
    asked.write_text(
        json.dumps([case.request(flash_attn=request.param) for case in CASES]), "utf-8"
    )
    done = child("rows", asked, result)
    assert done.returncode == 0, done.stderr
    with np.load(result) as rows:
        return {
            case.name: [rows[f"{i}-{j}"] for j in range(len(N_TOKENS))]
            for i, case in enumerate(CASES)
        }


def cosine(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    return (a * b).sum(axis=-1) / lengths


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.pooling != "rank"], ids=lambda case: case.name
)
def test_the_engine_gives_numpys_rows(case, engine_rows):
    expected = case.expected()
    for ours, reference in zip(engine_rows[case.name], expected, strict=True):
        assert ours.shape == reference.shape
        assert cosine(ours, reference).min() >= 0.99999
        lengths = np.linalg.norm(ours, axis=-1) / np.linalg.norm(reference, axis=-1)
        np.testing.assert_allclose(lengths, 1, atol=0.002)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.pooling == "rank"], ids=lambda case: case.name
)
def test_the_engine_gives_numpys_scores(case, engine_rows):
    ours, expected = np.stack(engine_rows[case.name]), np.stack(case.expected())
    assert ours.shape == expected.shape == (len(N_TOKENS), len(case.model.labels))
    np.testing.assert_allclose(ours, expected, atol=0.003)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_rows_of_other_sequences_would_be_noticed(case):
    rows = case.expected()
    if case.pooling == "rank":
        assert np.ptp(np.stack(rows), axis=0).min() > 0.3
        return
    lasts = [row[-1] if case.pooling == "none" else row for row in rows]
    for i, row in enumerate(lasts):
        assert all(cosine(row, other) < 0.998 for other in lasts[i + 1 :])


# Vocabularies


@pytest.mark.parametrize(
    ("model", "pieces"),
    [
        (BERT, ["the", "fish", "##ing", "harbour", "x", "##y", "##z", "!"]),
        (tiny_models.bert(tokenizer="unigram"), ["▁the", "▁f", "is", "h", "ing", "▁h"]),
        (QWEN3, ["t", "he", "Ġf", "is", "h", "ing", "Ġh", "ar", "b", "ou", "r"]),
        (LLAMA, ["t", "he", "Ġf", "is", "h", "ing", "Ġh", "ar", "b", "ou", "r"]),
        (tiny_models.llama(tokenizer="spm"), ["▁the", "▁f", "is", "h", "ing", "▁h", "ar"]),
    ],
    ids=["WordPiece", "Unigram", "qwen2 BPE", "llama BPE", "SPM"],
)
def test_text_becomes_pieces(model, pieces):
    done = child("tokenize", model.path, "the fishing harbour xyz!")
    assert done.returncode == 0, done.stderr
    tokens = [model.vocabulary.tokens[i] for i in json.loads(done.stdout)]
    assert tokens[: len(pieces)] == pieces


def test_special_ids_stand_in_the_file():
    fields = gguf.GGUFReader(BERT.path).fields
    keys = {"bos": "bos", "sep": "seperator", "unk": "unknown", "pad": "padding", "eos": "eos"}
    for name, key in keys.items():
        written = fields[f"tokenizer.ggml.{key}_token_id"].contents()
        assert written == BERT.vocabulary.special[name]
    assert BERT.vocabulary.tokens[BERT.vocabulary.special["sep"]] == "[SEP]"


# Files


def test_the_same_arguments_give_the_same_file():
    assert tiny_models.bert() is BERT
    assert tiny_models.bert(seed=7).path.read_bytes() != BERT.path.read_bytes()


def test_the_rerank_template_stands_in_the_file():
    field = gguf.GGUFReader(QWEN3_RANK.path).fields["tokenizer.chat_template.rerank"]
    assert field.contents() == tiny_models.RERANK_TEMPLATE


def test_a_chat_model_says_nothing_of_pooling():
    chat = tiny_models.qwen3(pooling=None, chat=True, eos="<|im_end|>", add_eos=None)
    fields = gguf.GGUFReader(chat.path).fields
    assert "tokenizer.chat_template" in fields
    assert "qwen3.pooling_type" not in fields
    assert "tokenizer.ggml.add_eos_token" not in fields


def test_a_vocabulary_too_small_for_its_tokenizer_is_refused():
    with pytest.raises(ValueError, match="n_vocab is 100; the tokenizer alone has"):
        tiny_models.bert(shape=Shape(n_vocab=100))


@pytest.mark.parametrize("make", [tiny_models.duplicate_token, tiny_models.no_layers])
@pytest.mark.parametrize("model", [BERT, LLAMA], ids=["bert", "llama"])
def test_llama_cpp_aborts_on_a_deadly_file(make, model):
    done = child("load", make(model))
    assert done.returncode == -signal.SIGABRT, done.stderr


@pytest.mark.parametrize("make", [tiny_models.vocabulary_only, tiny_models.truncated])
@pytest.mark.parametrize("model", [BERT, QWEN3], ids=["bert", "qwen3"])
def test_llama_cpp_refuses_a_file_that_is_not_whole(make, model):
    done = child("load", make(model))
    assert done.returncode == 1
    assert "GGUFError: llama.cpp cannot load" in done.stderr


def test_llama_cpp_loads_a_ranker_without_a_head():
    path = tiny_models.rank_without_head(BERT_RANK)
    names = {tensor.name for tensor in gguf.GGUFReader(path).tensors}
    assert not any(name.startswith("cls") for name in names)
    assert child("load", path).returncode == 0
