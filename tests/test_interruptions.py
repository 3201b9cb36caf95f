"""Calls that are interrupted, and models that are closed, at any moment: nothing hangs or dies."""

import gc
import itertools
import json
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tiny_models
from tiny_models import Shape

from corral import GGUFEmbeddings
from corral.engine import _llama
from corral.engine.driver import Shared
from corral.engine.latch import Latch
from corral.engine.options import EngineOptions
from corral.engine.pool import Engine
from corral.engine.pooling import PoolingType
from corral.errors import EngineError

LARGE = tiny_models.qwen3(shape=Shape(n_layer=8, n_embd=256, n_ff=1024, n_ctx_train=8192))
QWEN3 = tiny_models.qwen3()
BERT = tiny_models.bert()
REBORN = "the model's process was interrupted; it is started anew\n"
SECONDS = 20
"""For what takes well under one on a machine that has nothing else to do."""


def engine(model=QWEN3, **options):
    return Engine(model.path, EngineOptions(pooling_type=PoolingType.LAST, **options))


def corral_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("corral-context")]


def child(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


# Interrupts

INTERRUPTED = """
import json, os, signal, sys, threading, time
from corral import GGUFEmbeddings
n_texts, n_tokens = map(int, sys.argv[2:])
texts = [f"{number} " + "7" * (n_tokens - 10) for number in range(n_texts)]
with GGUFEmbeddings(sys.argv[1]) as embeddings:
    before = embeddings.embed(["7"])
    sent = []
    def send():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    threading.Timer(0.5, send).start()
    try:
        embeddings.embed(texts)
    except KeyboardInterrupt:
        waited = time.monotonic() - sent[0]
    again = time.monotonic()
    after = embeddings.embed(["7"])
    print(json.dumps([waited, time.monotonic() - again, float(abs(before - after).max())]))
"""


@pytest.mark.parametrize(("n_texts", "n_tokens"), [(3000, 400), (8, 8000)])
def test_an_interrupt_in_a_long_call_returns_and_the_next_call_does_not_wait_for_it(
    n_texts, n_tokens
):
    done = child(INTERRUPTED, LARGE.path, n_texts, n_tokens)
    assert (done.returncode, done.stderr) == (0, "")
    waited, again, changed = json.loads(done.stdout)
    assert waited < SECONDS
    assert again < SECONDS
    assert changed < 1e-3


def test_an_interrupt_while_jobs_are_queued_leaves_none_of_them_behind(monkeypatch, decodes):
    with engine(n_contexts=1) as opened:
        opened.run([np.array([7], np.int32)])

        class Interrupted:
            def __init__(self, queue):
                self.queue, self.count = queue, itertools.count()

            def put(self, item):
                if next(self.count) == 2:
                    raise KeyboardInterrupt
                self.queue.put(item)

            def get(self):
                return self.queue.get()

        real = opened._shared.queue
        monkeypatch.setattr(opened._shared, "queue", Interrupted(real))
        with pytest.raises(KeyboardInterrupt):
            opened.run([np.full(400, 7 + n, np.int32) for n in range(80)])
        opened._shared.queue = real
        begun = len(decodes)
        assert opened.run([np.array([7], np.int32)]).rows
        assert len(decodes) <= begun + 2


def test_an_interrupt_while_a_context_is_made_stops_the_decode_that_it_is_made_for(
    monkeypatch, decodes
):
    making, go_on = threading.Event(), threading.Event()
    make = Shared.open_context

    def slow(shared, **sizes):
        making.set()
        assert go_on.wait(60)
        return make(shared, **sizes)

    with engine(n_contexts=1) as opened:
        monkeypatch.setattr(Shared, "open_context", slow)

        def interrupted(*_):
            assert making.wait(60)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(Latch, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                opened.run([np.full(400, 7, np.int32)])
        go_on.set()
        assert opened.run([np.array([7], np.int32)]).rows
    assert [n_tokens for n_tokens, _ in decodes] == [1]


INTERRUPTED_ANYWHERE = """
import faulthandler, itertools, sys, threading
import numpy as np
from corral import GGUFEmbeddings
from corral.engine.latch import Turns

def interrupt_at(number):
    seen = itertools.count()
    def look(frame, event, _):
        # Where Python looks for signals: as a function begins, and behind a call.
        if event in ("call", "return", "c_return") and next(seen) == number:
            sys.setprofile(None)
            raise KeyboardInterrupt
    sys.setprofile(look)

def at_every_moment(act, check):
    for number in itertools.count():
        try:
            try:
                interrupt_at(number)
                act()
                return number
            finally:
                sys.setprofile(None)
        except KeyboardInterrupt:
            check()

def of_turns():
    turns = Turns()
    def act():
        with (turn := threading.Lock()):
            turns.enter(turn)
        with turns.door:
            turns.wait_for_others()
    return at_every_moment(act, act)

def of_a_model(isolate):
    texts = ["Rain came in the night!", "Who closed the gate? " * 4, "x"]
    with GGUFEmbeddings(sys.argv[1], n_contexts=2, isolate=isolate) as embeddings:
        expected = embeddings.embed(texts)
        def check():
            assert np.allclose(embeddings.embed(texts), expected, atol=1e-4)
        return at_every_moment(lambda: embeddings.embed(texts), check)

faulthandler.dump_traceback_later(110, exit=True)
made = {"turns": of_turns, "here": lambda: of_a_model(False), "isolated": lambda: of_a_model(True)}
print(made[sys.argv[2]]())
"""


@pytest.mark.parametrize(
    ("where", "moments"),
    [("turns", 10), ("here", 200), pytest.param("isolated", 200, marks=pytest.mark.slow)],
)
def test_an_interrupt_at_any_moment_of_a_call_leaves_all_usable(where, moments):
    done = child(INTERRUPTED_ANYWHERE, BERT.path, where)
    assert (done.returncode, done.stderr.replace(REBORN, "")) == (0, "")
    assert int(done.stdout) > moments


def test_an_error_does_not_keep_the_calls_rows_in_memory(monkeypatch):
    kept = []

    def broken(*_, **__):
        raise EngineError("broken")

    monkeypatch.setattr(_llama.Context, "decode", broken)
    with engine(n_contexts=1) as opened:
        try:
            opened.run([np.array([7], np.int32)])
        except EngineError as error:
            frame = error.__traceback__.tb_next
            while frame:
                kept += [name for name in frame.tb_frame.f_locals if name == "call"]
                frame = frame.tb_next if frame.tb_frame.f_code.co_name != "run" else None
    assert kept == []


# Closing


def test_models_close_in_any_order_from_any_thread():
    for order in itertools.permutations(range(3)):
        far = GGUFEmbeddings(QWEN3.path)
        near = GGUFEmbeddings(BERT.path, n_ubatch=20, long_model=far)
        other = GGUFEmbeddings(BERT.path)
        several = [far, near, other]
        near.embed(["a", "a " * 100])
        for number in order:
            several[number].close()
        for one in several:
            with pytest.raises(EngineError, match="closed"):
                one.embed(["a", "a " * 100])
    embeddings = GGUFEmbeddings(BERT.path)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: embeddings.close(), range(8)))
    gc.collect()
    assert corral_threads() == []


def test_a_model_may_be_closed_by_the_thread_that_drives_it(monkeypatch):
    """As when the garbage collector runs there."""
    opened = engine(n_contexts=2)
    decode = _llama.Context.decode

    def closing(context, *batch, **options):
        opened.close()
        decode(context, *batch, **options)

    monkeypatch.setattr(_llama.Context, "decode", closing)
    call = [np.full(n, 7, np.int32) for n in (400, 399, 398)]
    with pytest.raises(EngineError, match="closed|aborted"):
        opened.run(call)
    ends = time.monotonic() + SECONDS
    while corral_threads() and time.monotonic() < ends:
        time.sleep(0.01)
    assert corral_threads() == []
    with pytest.raises(EngineError, match="closed"):
        opened.run(call)


AT_EXIT = """
import sys, threading, time
from corral import GGUFEmbeddings
embeddings = GGUFEmbeddings(sys.argv[1], long_model=sys.argv[1])
began = threading.Event()
def work():
    try:
        while True:
            began.set()
            embeddings.embed([str(i) + "12345678" * 50 for i in range(200)])
    except Exception:
        pass
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
began.wait()
while not embeddings.busy_seconds:
    time.sleep(0.01)
{end}
"""


@pytest.mark.parametrize("end", ["", "sys.exit(0)", "embeddings.close()", "del embeddings"])
def test_the_interpreter_ends_quietly_while_models_work(end):
    done = child(AT_EXIT.format(end=end), LARGE.path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_interrupted_program_ends_as_interrupted_programs_do():
    code = """
import os, signal, sys, threading
from corral import GGUFEmbeddings
embeddings = GGUFEmbeddings(sys.argv[1])
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
embeddings.embed([f"{n} " + "12345678" * 50 for n in range(3000)])
"""
    done = child(code, LARGE.path)
    assert done.returncode == -signal.SIGINT
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")
