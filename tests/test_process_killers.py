"""What makes llama.cpp end the process it runs in is our error there, and the process lives on.

A row of `ROWS` is a way to die, with the number that llama.cpp's traps have in this project's notes
where it has one. Its code runs in a child through GGUFEmbeddings; where users cannot get at it, one
floor down, and `below` says why. `UNCHECKED` shows that the traps are real: there the child dies,
because the check is taken away.
"""

import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass, replace

import numpy as np
import pytest
import tiny_models
from tiny_models import Shape, TinyModel

PRELUDE = """
import dataclasses, json, os, sys
from pathlib import Path
import numpy as np
from corral import GGUFEmbeddings
from corral.engine import _llama
from corral.engine._llama import Context, ContextParams, Model, llama
from corral.engine.options import EngineOptions
from corral.engine.pool import Engine
from corral.engine.pooling import PoolingType
from corral.errors import *

MODELS = json.loads(sys.argv[1])

def opened(name, **options):
    return GGUFEmbeddings(MODELS[name], **options)

def context(name="bert", pooling=PoolingType.MEAN, **params):
    return Context(Model(Path(MODELS[name])), ContextParams(pooling_type=pooling, **params))

def decode(context, tokens, positions, sequences):
    context.decode(*(np.array(values, np.int32) for values in (tokens, positions, sequences)))

def refused(kind, says, call, *args, **options):
    try:
        call(*args, **options)
    except kind as error:
        assert says in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__}")

def short(n):
    # Two tokens each, up to 676 texts, no two alike: equal ones would be read once.
    return [chr(97 + i % 26) + " " + chr(97 + i // 26) for i in range(n)]

def sound(rows):
    return all(np.isfinite(row).all() and np.abs(row).max() > 0 for row in rows)
"""


def t5_encoder() -> TinyModel:
    """Make the one kind of model that needs llama_encode."""
    shape, draw = Shape(n_head_kv=4, n_embd_head=16), np.random.default_rng(0)
    n, n_ff = shape.n_embd, shape.n_ff
    sizes = {"token_embd": (shape.n_vocab, n), "enc.output_norm": (n,)}
    for block in (f"enc.blk.{i}" for i in range(shape.n_layer)):
        sizes |= {f"{block}.{norm}_norm": (n,) for norm in ("attn", "ffn")}
        sizes |= {f"{block}.attn_{part}": (n, n) for part in "qkvo"}
        sizes |= {f"{block}.ffn_up": (n_ff, n), f"{block}.ffn_down": (n, n_ff)}
    weights = {
        f"{key}.weight": draw.standard_normal(size, np.float32) for key, size in sizes.items()
    }
    return tiny_models.variant(
        tiny_models.bert(tokenizer="unigram"),
        architecture="t5encoder",
        shape=shape,
        weights=weights,
        numbers={"attention.relative_buckets_count": 32},
    )


def without_ids(model: TinyModel) -> TinyModel:
    """Let a vocabulary's special tokens have ids that do not exist, as -1 in a u32."""
    special = dict.fromkeys(model.vocabulary.special, 2**32 - 1)
    return tiny_models.variant(model, vocabulary=replace(model.vocabulary, special=special))


BERT = tiny_models.bert()
QWEN3 = tiny_models.qwen3()
MODELS = {
    "bert": BERT.path,
    "bert_rank": tiny_models.bert(pooling="rank", labels=("score",)).path,
    "qwen3": QWEN3.path,
    "qwen3_mean": tiny_models.qwen3(pooling="mean").path,
    "qwen3_both_ways": tiny_models.qwen3(pooling="mean", causal=False).path,
    "pooling_9": tiny_models.variant(BERT, numbers={"pooling_type": 9}, pooling=None).path,
    "t5": t5_encoder().path,
    "duplicate": tiny_models.duplicate_token(BERT),
    "no_layers": tiny_models.no_layers(QWEN3),
    "bert_without_ids": without_ids(BERT).path,
    "llama_without_ids": without_ids(tiny_models.llama(tokenizer="spm")).path,
    "xlmr_without_ids": without_ids(tiny_models.bert(tokenizer="unigram")).path,
    "no_head": tiny_models.rank_without_head(tiny_models.bert(pooling="rank", labels=("score",))),
    "many_tokens": tiny_models.bert(shape=Shape(n_vocab=60_000)).path,
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A way to die.

    Args:
        number: in the notes; None for what is not fatal in every version, or another's report.
        what: llama.cpp aborts on.
        code: what the child does after PRELUDE.
        below: why users cannot get there, so that the code works below GGUFEmbeddings.
    """

    number: int | None
    what: str
    code: str
    below: str = ""

    def __str__(self) -> str:
        """Name the row in pytest's output."""
        return f"{self.number or 'other'}: {self.what}"


ROWS = [
    Row(
        number=1,
        what="an encoder's text of more tokens than n_ubatch",
        code="""
        for n_ubatch in (64, 511, 512, None):
            with opened("bert", n_ubatch=n_ubatch) as embeddings:
                assert embeddings.max_tokens == (n_ubatch or 512)
                for n in (510, 511, 512, 513, 1024, 2048, 5000):
                    rows, (info,) = embeddings.embed(["a " * n], return_info=True)
                    assert sound(rows)
                    assert info.truncated == (n + 2 > embeddings.max_tokens), (n, info)
            strict = opened("bert", n_ubatch=n_ubatch, over_length="error")
            refused(InputTooLongError, "tokens; the model takes", strict.embed, ["a " * 513])
            assert sound(strict.embed(["a"]))
        """,
    ),
    Row(
        number=2,
        what="non-causal attention over more tokens than n_ubatch",
        code="""
        import warnings
        warnings.simplefilter("ignore")  # of attention that is not the model's own
        both = ("qwen3", {"attention": "non-causal"}), ("qwen3_both_ways", {})
        for name, options in both:
            with opened(name, n_ubatch=64, over_length="error", **options) as embeddings:
                assert embeddings.max_tokens == 64
                refused(InputTooLongError, "the model takes 64 (n_ubatch)", embeddings.embed,
                        ["a " * 65])
            with opened(name, n_ubatch=64, **options) as embeddings:
                assert sound(embeddings.embed(["a " * 300, "b"]))
        """,
    ),
    Row(
        number=3,
        what="a causal model's text of more tokens than n_batch",
        code="""
        for n_ubatch in (1, 16, 255, 256, 300):
            with opened("qwen3", n_ubatch=n_ubatch) as embeddings:
                assert sound(embeddings.embed(["a " * 400, "b", "c " * 1000]))
        tokens = [7] * 257
        refused(EngineError, "n_ubatch allows 1 to 256", decode,
                context("qwen3", PoolingType.LAST, n_ubatch=1), tokens, range(257), [0] * 257)
        """,
    ),
    Row(
        number=4,
        what="more sequences than n_batch",
        code="""
        for name in ("bert", "qwen3"):
            for n_ubatch in (3, 8, 31):
                with opened(name, n_ubatch=n_ubatch, n_contexts=4) as embeddings:
                    assert sound(embeddings.embed(short(400)))
        """,
    ),
    Row(
        number=5,
        what="MEAN with an n_ubatch that n_seq_max does not divide",
        code="""
        for name in ("bert", "qwen3_mean", "qwen3_both_ways"):
            for n_ubatch in (3, 96, 100, 128, 255, 257, 500, 513, 4096):
                with opened(name, n_ubatch=n_ubatch, pack_tokens=n_ubatch) as embeddings:
                    assert sound(embeddings.embed(["a", "b " * 200]))
        """,
    ),
    Row(
        number=6,
        what="n_outputs_max under n_ubatch",
        below="no option sets it",
        code="""
        seen = []
        init = llama.llama_init_from_model
        llama.llama_init_from_model = lambda model, params: (
            seen.append(getattr(params, "n_outputs_max", 0)) or init(model, params)
        )
        with opened("bert", n_ubatch=64) as embeddings:
            assert sound(embeddings.embed(["a"]))
        assert len(seen) > 1 and set(seen) == {0}, seen
        """,
    ),
    Row(
        number=7,
        what="a position behind the last that was trained",
        code="""
        with opened("bert", n_ubatch=4096, over_length="error") as embeddings:
            assert embeddings.max_tokens == 512
            assert sound(embeddings.embed(["a " * 510]))
            refused(InputTooLongError, "(bert.context_length)", embeddings.embed, ["a " * 511])
        engine = Engine(Path(MODELS["bert"]), EngineOptions(pooling_type=PoolingType.MEAN))
        refused(EngineError, "1 to 512 fit", engine.run, [np.full(513, 7, np.int32)])
        refused(EngineError, "n_ctx_train allows 0 to 511", decode, context(), [7], [512], [0])
        """,
    ),
    Row(
        number=8,
        what="a pooling_type that llama.h does not name",
        code="""
        for number in (-2, -1, 5, 9, "median"):
            refused(PoolingError, "is unknown; it is one of", opened, "bert", pooling_type=number)
        refused(PoolingError, "bert.pooling_type is 9, none of llama.h's", opened, "pooling_9")
        """,
    ),
    Row(
        number=9,
        what="llama_encode of a causal model",
        code="""
        llama.llama_encode = lambda *_: os.abort()
        for name in ("bert", "qwen3"):
            assert sound(opened(name).embed(["a", "b"]))
        refused(GGUFError, "encoder-decoder", opened, "t5", pooling_type="mean")
        """,
    ),
    Row(
        number=10,
        what="a batch with no position or no sequence id for a token",
        below="Context.decode alone makes batches",
        code="""
        run, seen = llama.llama_decode, []
        def looked_at(context, batch):
            seen.append(batch.n_tokens)
            assert batch.pos and all(batch.n_seq_id[i] == 1 for i in range(batch.n_tokens))
            assert all(0 <= batch.seq_id[i][0] < 256 for i in range(batch.n_tokens))
            return run(context, batch)
        llama.llama_decode = looked_at
        for name in ("bert", "qwen3"):
            assert sound(opened(name).embed(["a b c", "d"]))
        assert sum(seen) > 8
        refused(EngineError, "2 tokens with 1 positions", decode, context(), [7, 7], [0], [0, 0])
        """,
    ),
    Row(
        number=11,
        what="a token twice in the vocabulary",
        code='refused(GGUFError, "", opened, "duplicate")',
    ),
    Row(
        number=12,
        what="hyperparameters that do not fit",
        code="""
        refused(GGUFError, "", opened, "no_layers")
        assert sound(opened("bert").embed(["a"]))
        """,
    ),
    Row(
        number=13,
        what="special tokens without ids",
        code="""
        for name in ("bert_without_ids", "llama_without_ids", "xlmr_without_ids"):
            try:
                embeddings = opened(name)
            except GGUFError as error:
                assert "token_id" in str(error), error
            else:
                assert sound(embeddings.embed(["a", "", "b c"]))
        """,
    ),
    Row(
        number=14,
        what="RANK without a head",
        code="""
        refused(PoolingError, "no tensor cls.output.weight", opened, "no_head")
        refused(PoolingError, "no tensor cls.output.weight", opened, "bert", pooling_type="rank")
        assert opened("bert_rank").embed(["a"]).shape == (1, 1)
        """,
    ),
    Row(
        number=15,
        what="a row that is not there, NULL",
        below="the engine asks for the rows of what it decoded",
        code="""
        pooled, none = context(), context(pooling=PoolingType.NONE)
        for one in (pooled, none):
            decode(one, [7], [0], [0])
        refused(EngineError, "no row number 3", pooled.pooled_row, 3)
        refused(EngineError, "no row number 3", none.token_rows, 3, 4)
        """,
    ),
    Row(
        number=None,
        what="batches that are refused with a code, and position -1",
        below="Context.decode alone makes batches",
        code="""
        assert opened("bert").embed([]).shape == (0, 64)
        for name, pooling in (("bert", PoolingType.MEAN), ("qwen3", PoolingType.LAST)):
            one = context(name, pooling)
            for tokens, positions, sequences in (
                ([], [], []), ([-1], [0], [0]), ([10**6], [0], [0]),
                ([7], [-1], [0]), ([7], [-2], [0]), ([7], [0], [-1]), ([7], [0], [256]),
            ):
                refused(EngineError, "allows", decode, one, tokens, positions, sequences)
            decode(one, [7], [0], [0])
            assert sound([one.pooled_row(0)])
        """,
    ),
    Row(
        number=None,
        what="sizes that no machine has room for",
        code="""
        for name in ("bert", "qwen3", "qwen3_mean"):
            with opened(name, n_ubatch=2**40, pack_tokens=2**40) as embeddings:
                assert sound(embeddings.embed([*short(20), *(x + " a" * 400 for x in short(20))]))
        refused(UsageError, "GGML_MAX_N_THREADS", opened, "bert", n_threads=10**6)
        for option in ("n_threads", "n_contexts", "n_ubatch", "pack_tokens"):
            refused(UsageError, f"{option} is 0", opened, "bert", **{option: 0})
        """,
    ),
    Row(
        number=None,
        what="a large vocabulary, whose logits fill memory",
        code="""
        with opened("many_tokens") as embeddings:
            assert sound(embeddings.embed(["a " * 600, *short(500)]))
        """,
    ),
    Row(
        number=None,
        what="many texts of a token or two in many contexts",
        code="""
        for n_contexts in (4, 16, 64):
            with opened("bert", n_contexts=n_contexts, n_threads=1) as embeddings:
                rows = embeddings.embed(short(400))
                alone = np.concatenate([embeddings.embed([text]) for text in short(4)])
                assert np.allclose(rows[:4], alone, atol=2e-3)
        """,
    ),
    Row(
        number=None,
        what="every pooling type on every kind of model and attention",
        code="""
        import warnings
        warnings.simplefilter("ignore")  # most of them override the model's own
        texts = ["a", "b c " * 200, "", "d"]
        for name in ("bert", "qwen3", "qwen3_both_ways", "bert_rank"):
            for pooling in PoolingType:
                for attention in (None, "causal", "non-causal"):
                    for n_ubatch in (None, 100):
                        try:
                            embeddings = opened(name, pooling_type=pooling, attention=attention,
                                                n_ubatch=n_ubatch)
                        except (PoolingError, UsageError):
                            headless = pooling is PoolingType.RANK and name != "bert_rank"
                            assert headless or attention == "causal" and "bert" in name
                            continue
                        with embeddings:
                            rows = embeddings.embed(texts)
                            assert len(rows) == 4 and sound(rows)
                            assert {row.shape[-1] for row in rows} == {embeddings.dim}
                            if pooling is not PoolingType.NONE:
                                lists = embeddings.embed_documents(texts)
                                assert [len(one) for one in lists] == [embeddings.dim] * 4
        """,
    ),
]


def run_child(code: str, cache) -> subprocess.CompletedProcess[str]:
    models = json.dumps({name: str(path) for name, path in MODELS.items()})
    program = f"{PRELUDE}\n{textwrap.dedent(code)}\nprint('alive')"
    return subprocess.run(
        [sys.executable, "-X", "faulthandler=0", "-c", program, models],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "CORRAL_CACHE": str(cache)},
    )


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Stamps and calibrations of this module alone: models that are vetted once stay so."""
    return tmp_path_factory.mktemp("cache")


def test_every_row_of_the_notes_has_its_child():
    assert [row.number for row in ROWS if row.number] == list(range(1, 16))


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_what_would_end_the_process_is_survived(row, cache):
    done = run_child(row.code, cache)
    assert (done.returncode, done.stdout, done.stderr) == (0, "alive\n", "")


UNCHECKED = {
    "1, 3: too many tokens": "decode(context(n_ubatch=1), [7] * 257, range(257), [0] * 257)",
    "4: n_seq_max over n_batch": """
        _llama._shape = lambda params: (128, 128)
        context(pooling=PoolingType.CLS)
        """,
    "5: MEAN and 384 by 256": """
        _llama._shape = lambda params: (512, 384)
        context()
        """,
    "7: position 512 of 512": "decode(context(), [7], [512], [0])",
    "8: pooling_type 9": "context(pooling=9)",
    "9: llama_encode of a causal model": """
        llama.llama_decode = llama.llama_encode
        decode(context("qwen3", PoolingType.LAST), [7], [0], [0])
        """,
    "11: a token twice": 'Model(Path(MODELS["duplicate"]))',
    "12: no layers": 'context("no_layers", PoolingType.LAST)',
    "position -1": "decode(context(), [7], [-1], [0])",
}


@pytest.mark.parametrize("code", UNCHECKED.values(), ids=UNCHECKED)
def test_without_the_check_the_process_dies(code, cache):
    done = run_child(f"Context._check = lambda *_: None\n{textwrap.dedent(code)}", cache)
    assert done.returncode in {-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGFPE}, done.stderr
