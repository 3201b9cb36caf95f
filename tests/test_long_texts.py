"""Texts of every length: at a limit, over it, over several decodes, larger than all budgets."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tiny_models
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_models import Shape

from corral import GGUFEmbeddings
from corral.errors import InputTooLongError

BERT = tiny_models.bert()
N_CTX = BERT.shape.n_ctx_train
CAUSAL = [
    *(tiny_models.qwen3(pooling=pooling) for pooling in ("last", "mean", "none", "rank")),
    *(tiny_models.llama(pooling=pooling) for pooling in ("last", "mean", "none")),
]


def opened(model, **options):
    return GGUFEmbeddings(model.path, **options)


def digits(n, seed=0):
    """Make a text of n tokens of its own for every model here: a token a digit."""
    return "".join(np.random.default_rng((seed, n)).choice(list("0123456789"), n))


def least_cosine(a, b):
    a, b = np.atleast_2d(a).astype(np.float64), np.atleast_2d(b).astype(np.float64)
    assert a.shape == b.shape
    return ((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min()


# Over several decodes


@pytest.mark.parametrize("n_ubatch", [33, 64, 256, 300])
@pytest.mark.parametrize("model", CAUSAL, ids=lambda model: f"{model.architecture} {model.pooling}")
def test_documents_over_several_decodes_equal_one_pass(model, n_ubatch):
    with opened(model, n_ubatch=N_CTX) as whole, opened(model, n_ubatch=n_ubatch) as split:
        n_round = whole.sequences("").count("7") - 1
        lengths = (N_CTX - n_round, N_CTX - n_round - 1, 300, 257, 64, 33, 34, 2, 1)
        texts = [digits(n) for n in lengths]
        expected = [whole.embed([text])[0] for text in texts]
        found, infos = split.embed(texts, return_info=True)
    assert infos[0].n_tokens == N_CTX
    assert not any(info.truncated for info in infos)
    assert min(map(least_cosine, found, expected)) >= 0.99999
    if model.pooling == "rank":
        np.testing.assert_allclose(found, expected, atol=1e-3)
    elif model.pooling != "none":
        assert least_cosine(found[0], found[1]) < 0.99999


def test_a_token_more_than_was_trained_is_too_long():
    model = CAUSAL[0]
    with opened(model, n_ubatch=64, over_length="error") as embeddings:
        assert embeddings.embed([digits(N_CTX - 1)]).shape == (1, 64)
        with pytest.raises(InputTooLongError, match=f"has {N_CTX + 1} tokens.*takes {N_CTX} "):
            embeddings.embed([digits(N_CTX)])


def test_a_long_text_has_the_vector_that_another_binding_gives_in_one_decode():
    model = tiny_models.qwen3(shape=Shape(n_ctx_train=4096))
    text = " ".join(digits(1500))
    code = """
import json, sys
from llama_cpp import Llama
sizes = dict.fromkeys(("n_ctx", "n_batch", "n_ubatch"), 4096)
llama = Llama(sys.argv[1], embedding=True, verbose=False, **sizes)
text = sys.stdin.read()
print(json.dumps([len(llama.tokenize(text.encode())), llama.embed(text, normalize=True)]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, model.path],
        input=text, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    n_tokens, expected = json.loads(done.stdout)
    with opened(model, n_ubatch=512) as embeddings:
        (row,), (info,) = embeddings.embed([text], return_info=True)
    assert info.n_tokens == n_tokens > 2 * 512
    assert least_cosine(row, np.array(expected)) > 0.9999
    assert np.linalg.norm(row.astype(np.float64)) == pytest.approx(1, abs=1e-6)


def test_memory_follows_n_ubatch_and_not_the_document():
    model = tiny_models.qwen3(shape=Shape(n_ctx_train=8192))
    code = """
import json, resource, sys
from corral import GGUFEmbeddings
peaks = []
with GGUFEmbeddings(sys.argv[1], n_ubatch=128, n_contexts=1, n_threads=1) as embeddings:
    for n in (500, 2000, 8000):
        assert not embeddings.embed(["7" * n], return_info=True)[1][0].truncated
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
print(json.dumps(peaks))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, model.path],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    _, short, long = json.loads(done.stdout)
    kept = 8192 * 2 * 2 * model.shape.n_head_kv * model.shape.n_embd_head * model.shape.n_layer
    masks = 3 * 8192 * 256 * 4
    assert long - short < kept + masks + 16 * 2**20
    assert long < 1.2 * short


# At and over the limit


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(n=st.integers(1, N_CTX + 3), n_ubatch=st.sampled_from([None, 64, 511, 512, 513]))
def test_every_length_of_an_encoders_text_is_counted_and_cut_at_its_limit(n, n_ubatch):
    with opened(BERT, n_ubatch=n_ubatch) as embeddings:
        (row,), (info,) = embeddings.embed(["a " * n], return_info=True)
        limit = embeddings.max_tokens
    assert limit == min(n_ubatch or N_CTX, N_CTX)
    assert (info.n_tokens, info.truncated) == (n + 2, n + 2 > limit)
    assert np.linalg.norm(row.astype(np.float64)) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_limits_are_limits_not_off_by_one(over):
    with opened(BERT, over_length="error") as embeddings:
        text = "a " * (N_CTX - 2 + over)
        if over > 0:
            with pytest.raises(InputTooLongError, match=f"text 0 has {N_CTX + over} tokens"):
                embeddings.embed([text])
        else:
            assert embeddings.embed([text], return_info=True)[1][0].n_tokens == N_CTX + over


@pytest.mark.parametrize("model", [BERT, *CAUSAL[:2]], ids=["bert", "last", "mean"])
@pytest.mark.parametrize(
    "text", ["a " * 513, "Hello world" * 1000, "1 234.56 -7e8 | " * 300, "x" * 20_000]
)
def test_texts_larger_than_all_budgets_are_cut_told_and_leave_others_alone(model, text):
    with opened(model, pack_tokens=64) as embeddings:
        (first, cut, last), infos = embeddings.embed(["a b", text, "c"], return_info=True)
        alone = embeddings.embed(["a b", "c"])
    np.testing.assert_allclose([first, last], alone, atol=2e-3)
    assert np.linalg.norm(cut.astype(np.float64)) == pytest.approx(1, abs=1e-6)
    assert infos[1].truncated == (infos[1].n_tokens > N_CTX)
    assert not infos[0].truncated


@pytest.mark.parametrize("model", [BERT, *CAUSAL[:2]], ids=["bert", "last", "mean"])
def test_a_text_differs_from_its_beginning_unless_it_is_told_to_be_cut(model):
    with opened(model) as embeddings:
        whole, start = embeddings.embed(["a b c " * 150, "a b c " * 50])
        (_, info) = embeddings.embed(["a b c " * 150], return_info=True)
    assert info[0].truncated or least_cosine(whole, start) < 0.9999


@pytest.mark.parametrize("n", [63, 64, 65, 66])
@pytest.mark.parametrize("model", [BERT, *CAUSAL[:2]], ids=["bert", "last", "mean"])
def test_rows_round_flash_attentions_tile_of_64_are_as_without_it(model, n):
    text = "a b " * (n // 2) + "c" * (n % 2)
    with opened(model) as on, opened(model, flash_attn=False) as off:
        assert least_cosine(on.embed([text]), off.embed([text])) > 0.9999


# Text that broke others


@pytest.mark.parametrize(
    "model",
    [
        BERT,
        tiny_models.bert(tokenizer="unigram", pooling="cls"),
        tiny_models.qwen3(),
        tiny_models.llama(tokenizer="spm"),
    ],
    ids=["wordpiece", "unigram", "bpe", "spm"],
)
def test_every_unicode_plane_and_known_breakers_embed_alone_and_together(model):
    draw = np.random.default_rng(0)
    planes = [
        "".join(chr(c) for c in draw.integers(p << 16, (p << 16) + 0x10000, 60) if c >> 11 != 0x1B)
        for p in range(17)
    ]
    breakers = [
        "Die Grundlagen der Quantentheorie",
        "Die Grundlagen der",
        "An introduction to Quantentheorie und Relativitätstheorie, 1927",
        "\x00", "\xf5", "👨\u200d👩\u200d👧", "שלום \u202e", "".join(map(chr, range(1, 256))),
    ]  # fmt: skip
    texts = planes + breakers
    with opened(model) as embeddings:
        rows = embeddings.embed(texts)
        alone = [embeddings.embed([text])[0] for text in texts[::3]]
    assert np.isfinite(rows).all()
    np.testing.assert_allclose(np.linalg.norm(rows.astype(np.float64), axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(rows[::3], alone, atol=3e-3)


@pytest.mark.parametrize("n", [2, 16, 64, 256])
def test_a_vector_does_not_depend_on_how_many_are_embedded_with_it(n):
    texts = [digits(1 + 7 * i % 90, seed=i) + " a b" for i in range(n)]
    with opened(BERT) as embeddings:
        together = embeddings.embed(texts)
        for i in (0, n // 2, n - 1):
            assert least_cosine(together[i], embeddings.embed([texts[i]])[0]) > 0.9999
