"""The engine with real models: many threads, errors, interrupts, bad rows, closing."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import tiny_models

from corral.engine import _llama
from corral.engine.options import EngineOptions
from corral.engine.pool import Engine
from corral.engine.pooling import PoolingType
from corral.errors import EngineError, GGUFError, UsageError

BERT = tiny_models.bert()
QWEN3 = tiny_models.qwen3()


def engine(model=BERT, pooling_type=PoolingType.MEAN, **options):
    return Engine(model.path, EngineOptions(pooling_type=pooling_type, **options))


def sequences(model, *lengths):
    return [model.random_ids(n, seed=seed) for seed, n in enumerate(lengths)]


def test_no_sequences_give_no_rows():
    with engine() as opened:
        assert opened.run([]).rows == []


def test_rows_come_in_input_order_whatever_the_packs():
    several = sequences(BERT, 3, 90, 1, 40, 90, 2)
    with engine(n_contexts=2, pack_tokens=64) as opened:
        together = opened.run(several).rows
        for ids, row in zip(several, together, strict=True):
            np.testing.assert_allclose(row, opened.run([ids]).rows[0], atol=1e-3)


def test_a_thousand_sequences_of_one_token_fit_in_one_call():
    with engine() as opened:
        (first,) = opened.run(sequences(BERT, 1)).rows
        rows = opened.run([sequences(BERT, 1)[0]] * 1000).rows
    assert len(rows) == 1000
    np.testing.assert_allclose(rows, np.tile(first, (1000, 1)), atol=1e-3)


@pytest.mark.parametrize("n", [0, 513])
def test_a_sequence_of_no_or_too_many_tokens_is_refused_and_the_engine_stays_usable(n):
    with engine() as opened:
        with pytest.raises(EngineError, match=f"sequence 1 has {n} tokens; 1 to 512 fit"):
            opened.run([*sequences(BERT, 5), np.full(n, 7, np.int32)])
        assert len(opened.run(sequences(BERT, 5)).rows) == 1


def test_a_token_outside_the_vocabulary_is_refused_and_the_engine_stays_usable():
    with engine() as opened:
        with pytest.raises(EngineError, match="token ids: .* the vocabulary allows 0 to"):
            opened.run([np.array([7, 10**6], np.int32)])
        assert len(opened.run(sequences(BERT, 5)).rows) == 1


@pytest.mark.parametrize("model", [BERT, QWEN3], ids=["encoder", "causal"])
def test_eight_threads_on_one_engine_give_what_one_gives(model):
    pooling = PoolingType.MEAN if model is BERT else PoolingType.LAST
    calls = [sequences(model, 5, 30 + i, 60, 9) for i in range(16)]
    with engine(model, pooling, n_contexts=2) as opened:
        serial = [opened.run(call).rows for call in calls]
        with ThreadPoolExecutor(8) as threads:
            parallel = list(threads.map(lambda call: opened.run(call).rows, calls))
    np.testing.assert_allclose(np.array(parallel), np.array(serial), atol=1e-3)


def test_an_interrupt_in_a_long_call_returns_at_once_and_leaves_the_engine_usable():
    long = sequences(QWEN3, *[500] * 400)
    with engine(QWEN3, PoolingType.LAST) as opened:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            opened.run(long)
        waited = time.monotonic() - started
        assert len(opened.run(sequences(QWEN3, 5)).rows) == 1
        assert waited < 30  # of minutes, were it not for the interrupt


def test_closing_ends_a_call_that_runs_in_another_thread():
    opened = engine(QWEN3, PoolingType.LAST)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(opened.run, sequences(QWEN3, *[500] * 400))
        while not opened.busy_seconds:
            time.sleep(0.01)
        opened.close()
        with pytest.raises(EngineError, match="closed|aborted"):
            running.result(timeout=60)


def test_a_closed_engine_says_so_and_closing_twice_is_harmless():
    opened = engine()
    opened.close()
    opened.close()
    with pytest.raises(EngineError, match="closed"):
        opened.run(sequences(BERT, 3))
    with pytest.raises(EngineError, match="closed"):
        opened.tokenize("text")


def test_an_engine_that_goes_takes_its_threads_along():
    opened = engine(n_contexts=2)
    opened.run(sequences(BERT, 3))
    assert any(thread.name.startswith("corral-context") for thread in threading.enumerate())
    del opened
    gc.collect()
    assert not [t for t in threading.enumerate() if t.name.startswith("corral-context")]


def test_a_child_that_was_forked_is_told_so():
    code = textwrap.dedent(
        """
        import os, sys
        from pathlib import Path
        import numpy as np
        from corral.engine.options import EngineOptions
        from corral.engine.pool import Engine
        from corral.engine.pooling import PoolingType
        engine = Engine(Path(sys.argv[1]), EngineOptions(pooling_type=PoolingType.MEAN))
        if os.fork() == 0:
            try:
                engine.run([np.array([7], np.int32)])
            except Exception as error:
                print(error, flush=True)
            os._exit(0)
        os.wait()
        """
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, BERT.path],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "before this process was forked" in done.stdout


def test_an_engine_left_open_at_exit_is_closed_quietly():
    code = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        import numpy as np
        from corral.engine.options import EngineOptions
        from corral.engine.pool import Engine
        from corral.engine.pooling import PoolingType
        engine = Engine(Path(sys.argv[1]), EngineOptions(pooling_type=PoolingType.MEAN))
        print(len(engine.run([np.array([7], np.int32)]).rows))
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", code, BERT.path],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


class _Spoiled(_llama.Context):
    """A context that gives chosen sequences rows that are none, as a faulty GPU does."""

    spoiled_length = 17
    still_bad_when_alone = False

    def decode(self, tokens, positions, sequences, **options):
        super().decode(tokens, positions, sequences, **options)
        self._lengths = np.bincount(sequences)

    def pooled_row(self, sequence):
        row = super().pooled_row(sequence)
        bad = self._lengths[sequence] == self.spoiled_length
        alone = len(self._lengths) == 1
        if bad and (self.still_bad_when_alone or not alone):
            row[0] = np.nan
        return row


def test_a_bad_row_is_tried_again_alone_and_its_neighbours_keep_theirs(monkeypatch):
    several = sequences(BERT, 9, 17, 30)
    with engine() as opened:
        expected = opened.run(several).rows
    monkeypatch.setattr(_llama, "Context", _Spoiled)
    with engine() as opened:
        result = opened.run(several)
    assert result.defects == {}
    np.testing.assert_allclose(result.rows, expected, atol=1e-3)


def test_a_row_that_stays_bad_is_reported_and_its_neighbours_keep_theirs(monkeypatch):
    several = sequences(BERT, 9, 17, 30)
    with engine() as opened:
        expected = opened.run(several).rows
    monkeypatch.setattr(_llama, "Context", _Spoiled)
    monkeypatch.setattr(_Spoiled, "still_bad_when_alone", True)
    with engine() as opened:
        result = opened.run(several)
        assert result.defects == {1: "it holds values that are not finite"}
        np.testing.assert_allclose(result.rows[0], expected[0], atol=1e-3)
        np.testing.assert_allclose(result.rows[2], expected[2], atol=1e-3)


class _Wedged(_llama.Context):
    """A context that gives nothing but NaN from the first sequence of a certain length on."""

    is_wedged = False

    def decode(self, tokens, positions, sequences, **options):
        super().decode(tokens, positions, sequences, **options)
        ends = positions[np.flatnonzero(np.diff(sequences, append=-1))]
        self.is_wedged |= 17 - 1 in ends

    def pooled_row(self, sequence):
        return super().pooled_row(sequence) * (np.nan if self.is_wedged else 1)


@pytest.mark.parametrize("model", [BERT, QWEN3], ids=["encoder", "causal"])
def test_a_context_that_gives_nothing_but_nan_any_more_is_not_used_again(model, monkeypatch):
    pooling = PoolingType.MEAN if model is BERT else PoolingType.LAST
    several, others = sequences(model, 9, 17, 30), sequences(model, 5, 40)
    with engine(model, pooling) as opened:
        expected, expected_others = opened.run(several).rows, opened.run(others).rows
    monkeypatch.setattr(_llama, "Context", _Wedged)
    with engine(model, pooling, n_contexts=1) as opened:
        result, after = opened.run(several), opened.run(others)
    assert result.defects == {1: "it holds values that are not finite"}
    np.testing.assert_allclose(result.rows[0], expected[0], atol=1e-3)
    np.testing.assert_allclose(result.rows[2], expected[2], atol=1e-3)
    assert after.defects == {}
    np.testing.assert_allclose(after.rows, expected_others, atol=1e-3)


QWEN3_RANK = tiny_models.qwen3(pooling="rank")


@pytest.mark.parametrize("n_prefix", [0, 70])
@pytest.mark.parametrize("pooling", [PoolingType.LAST, PoolingType.RANK])
def test_rows_of_a_few_last_tokens_are_those_of_one_pass(pooling, n_prefix, decodes):
    model = QWEN3_RANK if pooling is PoolingType.RANK else QWEN3
    begin = model.random_ids(n_prefix, seed=99)
    several = [np.concatenate([begin, ids]) for ids in sequences(model, *[90] * 20, 400, 3)]
    with engine(model, pooling, n_contexts=1, n_ubatch=200) as opened:
        sizes = opened._shared.sizes
        opened._shared.sizes = replace(sizes, limits=replace(sizes.limits, job_tokens=10_000))
        rows = opened.run(several).rows
        of_tails = list(decodes)
        decodes.clear()
        opened._shared.sizes = replace(sizes, limits=replace(sizes.limits, tails=False))
        np.testing.assert_allclose(rows, opened.run(several).rows, atol=1e-4)
    n_tokens = sum(map(len, several)) - n_prefix * (len(several) - 1)
    assert sum(n for n, _ in of_tails) == n_tokens
    assert sum(n for n, wanted in of_tails if wanted) <= 64 + len(several)
    assert sum(n for n, wanted in decodes if wanted) > 0.7 * n_tokens


@pytest.mark.parametrize("pooling", [PoolingType.MEAN, PoolingType.NONE])
def test_where_every_token_counts_rows_are_wanted_of_every_decode(pooling, decodes):
    with engine(QWEN3, pooling, n_ubatch=200) as opened:
        opened.run(sequences(QWEN3, *[90] * 20, 400))
    assert all(wanted for _, wanted in decodes)


def test_a_decode_without_rows_has_none():
    model = _llama.Model(QWEN3.path)
    context = _llama.Context(model, _llama.ContextParams(pooling_type=PoolingType.LAST))
    zeros, positions = np.zeros(3, np.int32), np.arange(3, dtype=np.int32)
    context.decode(zeros, positions, zeros, wants_rows=False)
    with pytest.raises(EngineError, match="no row number 0"):
        context.pooled_row(0)
    context.close()
    model.close()


def test_what_llama_cpp_cannot_load_is_refused_with_its_words(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(GGUFError, match="llama.cpp cannot load .*model.gguf: .+"):
        Engine(path, EngineOptions(pooling_type=PoolingType.MEAN))


def test_the_build_says_what_it_uses():
    assert "CPU" in _llama.system_info()


def test_a_model_with_open_contexts_is_not_freed():
    model = _llama.Model(BERT.path)
    context = _llama.Context(model, _llama.ContextParams(pooling_type=PoolingType.MEAN))
    with pytest.raises(EngineError, match="1 open contexts"):
        model.close()
    context.close()
    with pytest.raises(EngineError, match="the context is closed"):
        context.decode(*[np.zeros(1, np.int32)] * 3)
    model.close()


@pytest.mark.parametrize(
    ("tokens", "positions", "ids", "complaint"),
    [
        ([], [], [], "tokens in the batch: 0"),
        ([7] * 257, list(range(257)), [0] * 257, "tokens in the batch: 257"),
        ([-1], [0], [0], "token ids: -1"),
        ([7], [-1], [0], "positions: -1"),
        ([7], [512], [0], "positions: 0 to 512"),
        ([7], [0], [256], "sequence ids: 0 to 256"),
        ([7, 7], [0], [0], "2 tokens with 1 positions"),
    ],
)
def test_what_would_abort_the_process_is_refused_before_the_call(tokens, positions, ids, complaint):
    model = _llama.Model(BERT.path)
    params = _llama.ContextParams(pooling_type=PoolingType.MEAN, n_ubatch=1)
    context = _llama.Context(model, params)
    arrays = [np.array(values, np.int32) for values in (tokens, positions, ids)]
    with pytest.raises(EngineError, match=complaint):
        context.decode(*arrays)
    context.close()
    model.close()


def test_a_row_that_llama_cpp_does_not_hold_is_an_error_not_memory():
    model = _llama.Model(BERT.path)
    context = _llama.Context(model, _llama.ContextParams(pooling_type=PoolingType.MEAN))
    context.decode(*[np.array([value], np.int32) for value in (7, 0, 0)])
    with pytest.raises(EngineError, match="no row number 3"):
        context.pooled_row(3)
    context.close()
    model.close()


def test_a_batch_that_llama_cpp_refuses_is_an_error_and_the_context_stays_usable():
    model = _llama.Model(QWEN3.path)
    context = _llama.Context(model, _llama.ContextParams(pooling_type=PoolingType.LAST))
    gap = [np.array(values, np.int32) for values in ([7, 7], [0, 2], [0, 0])]
    with pytest.raises(EngineError, match=r"llama_decode returned -1 \(the batch is invalid\)"):
        context.decode(*gap)
    context.decode(*[np.array([value], np.int32) for value in (7, 0, 0)])
    assert np.isfinite(context.pooled_row(0)).all()
    context.close()
    model.close()


def test_a_retuned_engine_gives_the_same_rows_by_other_contexts():
    several = sequences(BERT, 3, 90, 1, 40)
    with engine() as opened:
        before = opened.run(several).rows
        opened.retune(n_contexts=2, n_threads=1, pack_tokens=64)
        assert (opened.n_contexts, opened.options.pack_tokens) == (2, 64)
        np.testing.assert_allclose(opened.run(several).rows, before, atol=1e-3)


def test_retuning_waits_for_calls_and_keeps_count_of_the_work_done():
    with engine(QWEN3, PoolingType.LAST) as opened, ThreadPoolExecutor(1) as threads:
        running = threads.submit(opened.run, sequences(QWEN3, *[300] * 40))
        while not opened.busy_seconds:
            time.sleep(0.01)
        opened.retune(n_contexts=2, n_threads=1, pack_tokens=384)
        assert len(running.result(timeout=60).rows) == 40
        assert opened.busy_seconds > 0


def test_a_closed_engine_is_not_retuned():
    opened = engine()
    opened.close()
    with pytest.raises(EngineError, match="closed"):
        opened.retune(n_contexts=1, n_threads=1, pack_tokens=64)


def test_retuning_refuses_what_opening_refuses_and_leaves_the_engine_as_it_was():
    with engine() as opened:
        with pytest.raises(UsageError, match="n_contexts is 0"):
            opened.retune(n_contexts=0, n_threads=1, pack_tokens=64)
        assert len(opened.run(sequences(BERT, 5)).rows) == 1
