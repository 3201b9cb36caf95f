"""Which pooling is chosen, what is refused before llama.cpp sees it, and what it dies of."""

import struct
import subprocess

import numpy as np
import pytest
import tiny_models

from corral import GGUFEmbeddings
from corral.engine.pooling import PoolingType
from corral.errors import GGUFError, InputTooLongError, ModelNotFoundError, PoolingError, UsageError


@pytest.fixture(autouse=True)
def _own_stamps(empty_cache):
    """Let no stamp of an earlier run speak for a model."""


def opened(model, **options):
    return GGUFEmbeddings(getattr(model, "path", model), **options)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (tiny_models.bert(pooling="mean"), "MEAN"),
        (tiny_models.bert(pooling="cls"), "CLS"),
        (tiny_models.qwen3(pooling="last"), "LAST"),
        (tiny_models.qwen3(pooling="rank"), "RANK"),
        (tiny_models.llama(pooling="mean"), "MEAN"),
    ],
)
def test_the_pooling_type_is_the_files_own(model, expected):
    with opened(model) as embeddings:
        assert embeddings.pooling_type.name == expected


def test_a_chat_model_without_pooling_is_refused_with_the_choices():
    chat = tiny_models.qwen3(pooling=None, chat=True)
    with pytest.raises(PoolingError, match=r'qwen3.pooling_type.*"mean", "cls" or "last"'):
        opened(chat)
    with opened(chat, pooling_type="last") as embeddings:
        assert embeddings.embed(["a"]).shape == (1, embeddings.dim)


def test_another_pooling_than_the_files_own_warns():
    with (
        pytest.warns(UserWarning, match="mean overrides last"),
        opened(tiny_models.qwen3(pooling="last"), pooling_type="mean") as embeddings,
    ):
        assert embeddings.pooling_type is PoolingType.MEAN


def test_an_unknown_pooling_type_is_refused():
    with pytest.raises(PoolingError, match="'median' is unknown"):
        opened(tiny_models.bert(), pooling_type="median")


def test_rank_without_a_head_is_refused():
    with pytest.raises(PoolingError, match=r"no tensor cls.output.weight:"):
        opened(tiny_models.rank_without_head(tiny_models.bert(pooling="rank", labels=("score",))))


def test_a_vocabulary_is_no_model():
    with pytest.raises(GGUFError, match="vocabulary-only"):
        opened(tiny_models.vocabulary_only(tiny_models.bert()))


def test_a_truncated_file_is_refused_with_the_numbers():
    with pytest.raises(GGUFError, match="truncated"):
        opened(tiny_models.truncated(tiny_models.bert()))


def test_a_vocabulary_with_a_token_twice_is_refused():
    with pytest.raises(GGUFError, match="twice|duplicate"):
        opened(tiny_models.duplicate_token(tiny_models.bert()))


def test_no_such_model_and_no_gguf(tmp_path):
    with pytest.raises(ModelNotFoundError, match="minilm"):
        opened("no-such-model")
    text = tmp_path / "model.gguf"
    text.write_text("not a model")
    with pytest.raises(GGUFError, match="not a GGUF"):
        opened(text)


def test_what_llama_cpp_aborts_on_is_an_error_with_its_last_words():
    with pytest.raises(GGUFError, match=r"dies of SIG(ABRT|SEGV|FPE)|llama.cpp cannot load"):
        opened(tiny_models.no_layers(tiny_models.bert()))


def with_u32(model, key: str, value: int, path):
    """Copy a GGUF with one u32 of its metadata changed."""
    raw = model.path.read_bytes()
    name = key.encode()
    at = raw.index(struct.pack("<Q", len(name)) + name + struct.pack("<I", 4)) + 8 + len(name) + 4
    path.write_bytes(raw[:at] + struct.pack("<I", value) + raw[at + 4 :])
    return path


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("qwen3.attention.head_count", 3),
        ("qwen3.attention.head_count", 0),
        ("qwen3.attention.key_length", 7),
        ("qwen3.block_count", 0),
        ("qwen3.block_count", 100_000),
        ("qwen3.embedding_length", 1),
    ],
)
def test_hyperparameters_that_do_not_fit_are_an_error_in_this_process(tmp_path, key, value):
    broken = with_u32(tiny_models.qwen3(pooling="last"), key, value, tmp_path / "model.gguf")
    with pytest.raises(GGUFError):
        opened(broken)


def test_a_model_is_vetted_once(monkeypatch):
    children = []
    run = subprocess.run
    monkeypatch.setattr(
        subprocess, "run", lambda *args, **rest: children.append(args) or run(*args, **rest)
    )
    for _ in range(2):
        opened(tiny_models.bert()).close()
    assert len(children) == 1


def test_attention_can_be_overridden_and_only_by_name():
    model = tiny_models.qwen3(pooling="last")
    with pytest.warns(UserWarning, match="attention non-causal overrides causal"):
        both_ways = opened(model, attention="non-causal")
    with opened(model, attention="causal") as causal, both_ways:
        assert causal.settings["causal"] is True
        assert both_ways.settings["causal"] is False
        similarity = float(
            causal.embed(["one two three"])[0] @ both_ways.embed(["one two three"])[0]
        )
        assert similarity < 0.999
    with pytest.raises(UsageError, match="attention 'sideways' is unknown"):
        opened(model, attention="sideways")


def test_n_ubatch_bounds_an_encoders_texts_and_is_named_as_the_limit():
    with opened(tiny_models.bert(), n_ubatch=16, over_length="error") as embeddings:
        assert embeddings.max_tokens == 16
        with pytest.raises(InputTooLongError, match=r"the model takes 16 \(n_ubatch\)"):
            embeddings.embed(["word " * 50])


def test_a_profile_bounds_texts_and_is_named_as_the_limit(minilm_path):
    with GGUFEmbeddings(minilm_path, over_length="error") as embeddings:
        assert embeddings.max_tokens == 256
        with pytest.raises(InputTooLongError, match=r"the model takes 256 \(profile .*minilm"):
            embeddings.embed(["word " * 500])


def test_the_file_bounds_a_causal_models_texts():
    with opened(tiny_models.qwen3(pooling="last"), over_length="error") as embeddings:
        with pytest.raises(InputTooLongError, match=r"\(qwen3.context_length\)"):
            embeddings.embed(["word " * 5000])
        assert np.isfinite(embeddings.embed(["word"])).all()
