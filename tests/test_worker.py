"""A model in a process of its own, which dies in every way: what is lost, told and left behind."""

import contextlib
import io
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest
import tiny_models

from corral import GGUFEmbeddings
from corral.engine import child as child_module
from corral.engine import serving, worker
from corral.engine.frames import Outbox, receive
from corral.engine.latch import Latch, Turns
from corral.engine.options import EngineOptions
from corral.engine.pool import Engine
from corral.engine.pooling import PoolingType
from corral.engine.spawn import child_command, child_environment
from corral.engine.worker import WorkerEngine
from corral.errors import EngineError, GGUFError, UsageError

BERT = tiny_models.bert()
QWEN3 = tiny_models.qwen3()
DOUBLE = [sys.executable, str(Path(__file__).with_name("poisoned_worker.py"))]
ABORT, ASSERTION, SEGFAULT, MEMORY, EXIT, HANG, SLOW = range(40, 47)
POISON = {
    ABORT: "abort", ASSERTION: "assertion", SEGFAULT: "segfault", MEMORY: "memory", EXIT: "exit",
    HANG: "hang", SLOW: "slow",
}  # fmt: skip
DIED = {
    ABORT: "died of SIGABRT",
    ASSERTION: "died of SIGABRT; its last words: .*GGML_ASSERT",
    SEGFAULT: "died of SIGSEGV",
    MEMORY: "died of SIGKILL .as the system does where memory is short",
    EXIT: "ended with exit code 3",
}


def options(pooling=PoolingType.MEAN, **more):
    return EngineOptions(pooling_type=pooling, **more)


def ids(*tokens):
    return np.asarray(tokens, np.int32)


@pytest.fixture
def poison(monkeypatch):
    """Let workers that are started from here on die of poison."""
    monkeypatch.setenv("TEST_POISON", json.dumps(POISON))
    monkeypatch.setattr(child_module, "child_command", lambda _: DOUBLE)


@pytest.fixture
def starts(monkeypatch):
    """The processes that were started."""
    started = []
    start = subprocess.Popen

    def noted(*arguments, **keywords):
        started.append(start(*arguments, **keywords))
        return started[-1]

    monkeypatch.setattr(child_module.subprocess, "Popen", noted)
    return started


def descendants():
    return psutil.Process().children(recursive=True)


@pytest.fixture(autouse=True)
def _nothing_is_left_behind():
    before = set(descendants())
    yield
    ends = time.monotonic() + 20
    while set(descendants()) - before and time.monotonic() < ends:
        time.sleep(0.01)
    assert set(descendants()) <= before


# The same as an engine in this process


@pytest.mark.parametrize(
    ("model", "pooling"),
    [(BERT, PoolingType.MEAN), (BERT, PoolingType.NONE), (QWEN3, PoolingType.LAST)],
)
def test_it_gives_what_an_engine_in_this_process_gives(model, pooling):
    sequences = [ids(*range(5, 5 + n)) for n in (3, 200, 1, 40)]
    with (
        Engine(model.path, options(pooling)) as near,
        WorkerEngine(model.path, options(pooling)) as far,
    ):
        for name in ("causal", "n_embd_out", "n_cls_out", "max_tokens", "options", "n_contexts"):
            assert getattr(far, name) == getattr(near, name)
        expected, found = near.run(sequences), far.run(sequences)
        assert far.busy_seconds > 0 == far.deaths
        for text in ("The flock.", "", "a\udce9b"):
            np.testing.assert_array_equal(far.tokenize(text), near.tokenize(text))
    assert found.defects == {}
    for row, same in zip(found.rows, expected.rows, strict=True):
        assert row.dtype == np.float32
        np.testing.assert_allclose(row, same, atol=2e-3)
        row[:] = 0  # and may be written to


def test_many_threads_may_use_it_and_each_gets_its_own():
    sequences = [[ids(*range(5 + n, 9 + n))] for n in range(24)]
    with WorkerEngine(BERT.path, options(n_contexts=2)) as far:
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(far.run, sequences))
        for one, rows in zip(sequences, found, strict=True):
            np.testing.assert_allclose(rows.rows[0], far.run(one).rows[0], atol=2e-3)
        assert far.run([]).rows == []


def test_errors_of_the_engine_are_raised_here():
    with WorkerEngine(BERT.path, options()) as far:
        with pytest.raises(EngineError, match="sequence 1 has 0 tokens"):
            far.run([ids(7), ids()])
        with pytest.raises(UsageError, match="pack_tokens is 0"):
            far.retune(n_contexts=1, n_threads=1, pack_tokens=0)
        far.retune(n_contexts=2, n_threads=1, pack_tokens=256)
        assert (far.n_contexts, far.options.pack_tokens) == (2, 256)
        assert far.run([ids(7)]).defects == {}


def test_a_file_that_is_no_model_is_an_error(tmp_path):
    (tmp_path / "no.gguf").write_bytes(b"GGUF")
    with (
        WorkerEngine(tmp_path / "no.gguf", options()) as far,
        pytest.raises(GGUFError, match=r"no\.gguf"),
    ):
        assert far.max_tokens


def test_a_bug_in_the_child_is_told_with_its_place_and_ends_nothing():
    requests, replies = os.pipe(), os.pipe()
    read, write = os.fdopen(requests[0], "rb"), os.fdopen(replies[1], "wb")
    server = threading.Thread(
        target=serving.serve, args=(read, write), kwargs={"make_engine": Engine}
    )
    server.start()
    with os.fdopen(requests[1], "wb") as asking, os.fdopen(replies[0], "rb") as answers:
        outbox = Outbox(asking)
        outbox.send(
            {
                "id": 0,
                "path": str(BERT.path),
                "options": {"pooling_type": 1},
                "log_level": 30,
            }
        )
        assert receive(answers).head["max_tokens"] == 512
        outbox.send({"id": 1, "what": "dance"})
        name, words = receive(answers).head["error"]
        assert name == "EngineError"
        assert "KeyError: 'dance'" in words
        outbox.send({"id": 2, "what": "run"}, serving.joined([ids(7, 8)]))
        answer = receive(answers)
        assert answer.head["defects"] == []
        assert answer.head["busy"] > 0
        asking.close()
        server.join()
    read.close()
    write.close()


# Deaths


@pytest.mark.parametrize("token", DIED, ids=POISON.get)
@pytest.mark.usefixtures("poison")
def test_of_all_sequences_only_the_one_that_it_dies_of_gets_no_row(token):
    sequences = [ids(*range(5, 8 + n)) for n in range(5)]
    with Engine(BERT.path, options()) as near:
        expected = near.run(sequences).rows
    sequences[3] = ids(5, token, 6)
    with WorkerEngine(BERT.path, options()) as far:
        found = far.run(sequences)
        assert far.deaths == 5
        assert far.run(sequences[:3]).defects == {}
    assert found.defects.keys() == {3}
    with pytest.raises(AssertionError, match=f"^the model's process {DIED[token]}"):
        raise AssertionError(found.defects[3])
    assert np.isnan(found.rows[3]).all()
    assert found.rows[3].shape == (64,)
    for number in set(range(5)) - {3}:
        np.testing.assert_allclose(found.rows[number], expected[number], atol=2e-3)


@pytest.mark.usefixtures("poison")
def test_a_call_beside_one_that_is_deadly_gets_all_its_rows():
    with WorkerEngine(BERT.path, options(n_contexts=2)) as far:
        calls = [[ids(5, 6 + n)] * 3 for n in range(6)]
        calls[2] = [ids(5), ids(ABORT), ids(6)]
        with ThreadPoolExecutor(6) as threads:
            found = list(threads.map(far.run, calls))
    assert [set(rows.defects) for rows in found] == [set(), set(), {1}, set(), set(), set()]


@pytest.mark.usefixtures("poison")
def test_rows_of_tokens_that_it_dies_of_have_the_shape_of_the_others():
    with WorkerEngine(BERT.path, options(PoolingType.NONE)) as far:
        found = far.run([ids(5, 6), ids(5, ABORT, 6)])
    assert [row.shape for row in found.rows] == [(2, 64), (3, 64)]
    assert np.isnan(found.rows[1]).all()


@pytest.mark.usefixtures("poison")
def test_one_that_dies_of_everything_is_an_error_and_no_endless_labour(monkeypatch):
    monkeypatch.setattr(worker, "_MOST_DEATHS", 4)
    with WorkerEngine(BERT.path, options()) as far:
        with pytest.raises(EngineError, match="started anew 4 times .* it died of SIGABRT"):
            far.run([ids(ABORT)] * 8)
        assert far.deaths == 4
        assert far.run([ids(7)]).defects == {}


def test_one_that_dies_while_it_loads_is_an_error(monkeypatch):
    command = [sys.executable, "-c", "import sys; sys.exit('no room')"]
    monkeypatch.setattr(child_module, "child_command", lambda _: command)
    monkeypatch.setattr(worker, "_MOST_DEATHS", 2)
    with WorkerEngine(BERT.path, options()) as far:
        with pytest.raises(EngineError, match="exit code 1; its last words: no room while it load"):
            assert far.max_tokens
        with pytest.raises(EngineError, match="started anew 2 times"):
            far.run([ids(7)])


def test_no_process_at_all_is_an_error(monkeypatch):
    monkeypatch.setattr(child_module, "child_command", lambda _: ["/no/such/python"])
    with pytest.raises(EngineError, match="no process can be started for the model: .*No such"):
        WorkerEngine(BERT.path, options())


def test_one_that_died_while_nobody_used_it_is_started_anew(starts):
    with WorkerEngine(BERT.path, options()) as far:
        before = far.run([ids(7)]).rows[0]
        starts[0].kill()
        starts[0].wait()
        np.testing.assert_allclose(far.run([ids(7)]).rows[0], before, atol=2e-3)
        assert (far.deaths, len(starts)) == (1, 2)
        starts[1].kill()
        starts[1].wait()
        far.retune(n_contexts=2, n_threads=1, pack_tokens=128)
        assert far.run([ids(7)]).defects == {}
        assert far.options.pack_tokens == 128
        assert far.busy_seconds > 0


@pytest.mark.usefixtures("poison")
def test_one_that_is_stuck_is_ended_and_one_that_is_slow_is_not(monkeypatch):
    with WorkerEngine(BERT.path, options()) as far:
        assert far.max_tokens == 512
        monkeypatch.setattr(child_module, "_TICK_SECONDS", 0.1)
        monkeypatch.setattr(child_module, "_SILENT_TICKS", 25)
        assert far.run([ids(SLOW)]).defects == {}  # four seconds, a beat in each
        assert far.deaths == 0
        found = far.run([ids(HANG)])
        assert found.defects == {0: "the model's process was stuck: no decode ended in 2.5 s"}


@pytest.mark.usefixtures("poison")
def test_a_tokenizer_that_it_dies_of_is_an_error(starts):
    with WorkerEngine(BERT.path, options()) as far:
        assert far.max_tokens
        starts[0].send_signal(signal.SIGSTOP)
        killer = threading.Timer(0.2, starts[0].kill)
        killer.start()
        with pytest.raises(EngineError, match="died of SIGKILL.* while it tokenised a text"):
            far.tokenize("a")
        assert len(far.tokenize("a"))
        killer.join()


# Ends


def test_it_is_closed_once_and_for_all():
    far = WorkerEngine(BERT.path, options())
    assert far.max_tokens == 512
    far.close()
    far.close()
    for call in (lambda: far.run([ids(7)]), lambda: far.tokenize("a")):
        with pytest.raises(EngineError, match="the model is closed"):
            call()
    never_asked = WorkerEngine(BERT.path, options())
    never_asked.close()
    with pytest.raises(EngineError, match="the model is closed"):
        assert never_asked.max_tokens


@pytest.mark.usefixtures("poison")
def test_calls_under_way_end_with_an_error_when_it_is_closed():
    with WorkerEngine(BERT.path, options()) as far, ThreadPoolExecutor(2) as threads:
        assert far.max_tokens
        calls = [threads.submit(far.run, [ids(HANG)]) for _ in range(2)]
        time.sleep(0.2)
        far.close()
        for call in calls:
            with pytest.raises(EngineError, match="the model is closed"):
                call.result(timeout=60)


@pytest.mark.usefixtures("poison")
def test_an_interrupted_call_is_not_waited_for_by_the_next(monkeypatch):
    with WorkerEngine(BERT.path, options()) as far:
        assert far.max_tokens

        def interrupted(latch, _seconds):
            if not latch.is_open:
                raise KeyboardInterrupt
            return True

        with monkeypatch.context() as patch:
            patch.setattr(Latch, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                far.run([ids(HANG)])
        assert far.run([ids(7)]).defects == {}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_of_this_process_neither_uses_nor_ends_it():
    with WorkerEngine(BERT.path, options()) as far:
        before = far.run([ids(7)]).rows[0]
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                far.run([ids(7)])
                os._exit(1)
            far.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        np.testing.assert_allclose(far.run([ids(7)]).rows[0], before, atol=2e-3)


PARENT = """
import sys, threading, time
import numpy as np
from pathlib import Path
from corral.engine.options import EngineOptions
from corral.engine.pooling import PoolingType
from corral.engine.worker import WorkerEngine
far = WorkerEngine(Path(sys.argv[1]), EngineOptions(pooling_type=PoolingType.MEAN))
rows = [np.arange(5, 300, dtype=np.int32)] * 9000
threading.Thread(target=far.run, args=(rows,), daemon=True).start()
while not far.busy_seconds:
    time.sleep(0.01)
print("busy", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["ends", "SIGKILL", "SIGTERM", "SIGINT"])
def test_no_process_outlives_its_parent_however_that_ends(how):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(BERT.path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    with parent:
        assert parent.stdout.readline() == b"busy\n"
        (child,) = psutil.Process(parent.pid).children()
        if how == "ends":
            parent.stdin.close()
        else:
            parent.send_signal(signal.Signals[how])
        parent.wait(60)
        child.wait(60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_a_terminal_sends_to_the_whole_group_is_for_the_parent(number, starts):
    with WorkerEngine(BERT.path, options()) as far:
        before = far.run([ids(7)]).rows[0]
        starts[0].send_signal(number)
        np.testing.assert_array_equal(far.run([ids(7)]).rows[0], before)
        assert far.deaths == 0


# What is told


def test_what_llama_cpp_says_is_logged_here_on_demand(caplog):
    caplog.set_level(logging.DEBUG, logger="corral")
    with WorkerEngine(BERT.path, options()) as far:
        far.run([ids(7)])
    assert "corral.engine._llama" in {record.name for record in caplog.records}


@pytest.mark.usefixtures("poison")
def test_a_death_is_told_once_with_its_last_words(caplog):
    with WorkerEngine(BERT.path, options()) as far:
        far.run([ids(7), ids(ASSERTION)])
    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "the model's process died of SIGABRT; its last words: " in told
    assert "GGML_ASSERT" in told


# The parts


def test_a_message_that_is_cut_off_is_the_end():
    stream = io.BytesIO()
    Outbox(stream).send({"a": "\ud800é"}, [ids(1, 2), np.zeros((2, 3), np.float32), ids()])
    sent = stream.getvalue()
    head, arrays = receive(io.BytesIO(sent))
    assert head == {"a": "\ud800é"}
    assert [array.shape for array in arrays] == [(2,), (2, 3), (0,)]
    np.testing.assert_array_equal(arrays[0], [1, 2])
    for length in range(len(sent)):
        assert receive(io.BytesIO(sent[:length])) is None


def test_one_that_is_alone_lets_nobody_in():
    turns, inside, seen = Turns(), set(), []

    def beside(name):
        with (turn := threading.Lock()):
            turns.enter(turn)
            inside.add(name)
            time.sleep(0.002)
            inside.discard(name)

    def alone(name):
        with turns.door:
            turns.wait_for_others()
            inside.add(name)
            time.sleep(0.002)
            seen.append(set(inside))
            inside.discard(name)

    with ThreadPoolExecutor(8) as threads:
        for number in range(40):
            threads.submit(alone if number % 4 == 0 else beside, number)
    assert sorted(map(len, seen)) == [1] * 10


def test_a_child_imports_nothing_from_the_folder_it_is_in_and_gets_no_keys(tmp_path, monkeypatch):
    (tmp_path / "numpy.py").write_text("raise SystemExit('a stranger was run')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QDRANT_API_KEY", "a secret")
    assert "QDRANT_API_KEY" not in child_environment()
    with GGUFEmbeddings(BERT.path, isolate=True) as embeddings:
        assert embeddings.embed(["a"]).shape == (1, 64)
    done = subprocess.run(
        child_command("corral.vetting", "no.gguf", "MEAN"),
        env=child_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


# Embeddings over it


@pytest.mark.usefixtures("poison")
def test_embeddings_survive_a_text_that_the_model_dies_of(monkeypatch):
    with GGUFEmbeddings(BERT.path) as near:
        deadly = "flock"
        (token,) = near.tokenizer.encode_batch([deadly])[0].tolist()[:1]
        expected = near.embed(["hill", "rain"])
    monkeypatch.setenv("TEST_POISON", json.dumps({token: "abort"}))
    with GGUFEmbeddings(BERT.path, isolate=True) as far:
        embedded = far.embed_checked(["hill", deadly, "rain"])
        assert set(embedded.defects) == {1}
        assert far.deaths > 0
        for number, row in ((0, expected[0]), (2, expected[1])):
            np.testing.assert_allclose(embedded.vectors[number], row, atol=2e-3)
        with pytest.raises(EngineError, match="text 1: the model's process died of SIGABRT"):
            far.embed(["hill", deadly])
