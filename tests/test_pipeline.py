"""The pipeline when it is interrupted at a bad moment: it ends, and says nothing but that."""

import threading

import pytest

from corral import pipeline
from corral.pipeline import Writer, run_pipeline
from corral.report import Report


class Store:
    """Counts what makes it safe."""

    flushed = 0

    def flush(self):
        self.flushed += 1


def run(store, lock, prepared=()):
    writer = Writer(store, lock, Report(), sizes={})
    run_pipeline(iter(prepared), embed=lambda _: (), writer=writer, progress=lambda *_, **__: None)


def interrupted():
    raise KeyboardInterrupt
    yield


@pytest.mark.parametrize("name", ["corral-read", "corral-embed-0", "corral-embed-1"])
@pytest.mark.parametrize("started", [True, False])
def test_an_interrupt_while_the_threads_are_started_is_raised(monkeypatch, name, started):
    start = threading.Thread.start

    def interrupting(thread):
        if thread.name != name or started:
            start(thread)
        if thread.name == name:
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupting)
    store = Store()
    with pytest.raises(KeyboardInterrupt):
        run(store, threading.Lock())
    assert store.flushed == 1


def test_an_interrupted_run_does_not_wait_for_a_lock_that_nobody_gives_back(monkeypatch, caplog):
    monkeypatch.setattr(pipeline, "_LOCK_SECONDS", 0.05)
    lock, store = threading.Lock(), Store()
    lock.acquire()
    with pytest.raises(KeyboardInterrupt):
        run(store, lock, interrupted())
    assert store.flushed == 0
    assert "not flushed: the store is busy" in caplog.text
