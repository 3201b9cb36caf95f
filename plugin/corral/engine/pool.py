"""Contexts over one set of weights, each driven by its own long-lived thread.

A call plans its jobs, puts them into the one queue that all drivers read, and waits. Contexts grow
when a sequence needs more room, so memory follows what is embedded, not what could be. Contexts
are freed by the threads that drive them, before the model is.
"""

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from corral.closing import Closing
from corral.engine import _llama
from corral.engine.batching import Job, common_prefix
from corral.engine.driver import Call, Driver, Row, Shared
from corral.engine.options import EngineOptions, Sizes
from corral.engine.pooling import SplitRule, split_rule
from corral.errors import EngineError, GGUFError

__all__ = ["Engine", "Rows"]

_MIN_SHARED_PREFIX: Final = 16
_PROBE_TOKENS: Final = 32


@dataclass(frozen=True, slots=True)
class Rows:
    """What a call gave.

    Args:
        rows: one a sequence, in input order: (width,) float32, or with pooling NONE
            (n_tokens, width).
        defects: why a row cannot be used, by the number of its sequence; it was tried twice, the
            second time alone and on a fresh context.
    """

    rows: list[Row]
    defects: dict[int, str]


class Engine(Closing):
    """A model, ready to turn token ids into rows; usable from many threads at once."""

    def __init__(self, path: Path, options: EngineOptions) -> None:
        """Load the model.

        Raises:
            GGUFError: llama.cpp cannot load it, or it is of a kind that cannot run here.
        """
        model = _llama.Model(path, n_gpu_layers=options.n_gpu_layers)
        if model.needs_encode:
            model.close()
            raise GGUFError(
                f"{path} is an encoder-decoder model; corral runs encoders and causal models"
            )
        self.causal, self.rule = _examine(model, options)
        shared = Shared(model, options, _sizes(model, options, self.rule))
        self._shared = shared
        self._pid = os.getpid()
        self._busy_before = 0.0
        self._drivers: list[Driver] = []
        _start(shared, self._drivers)
        self._close = weakref.finalize(self, _shut_down, shared, self._drivers)
        self.tokenize: Callable[[str], NDArray[np.int32]] = model.tokenize
        self.n_embd_out = model.n_embd_out
        self.n_cls_out = model.n_cls_out
        self.max_tokens = shared.sizes.max_tokens

    def run(self, sequences: Sequence[NDArray[np.int32]]) -> Rows:
        """Run the model.

        Args:
            sequences: token ids, each (n_tokens,) int32 with 1 <= n_tokens <= max_tokens.

        Raises:
            EngineError: the engine is closed, or llama.cpp failed.
        """
        self._refuse_if_unusable()
        for index, sequence in enumerate(sequences):
            if not 1 <= len(sequence) <= self.max_tokens:
                raise EngineError(
                    f"sequence {index} has {len(sequence)} tokens; 1 to {self.max_tokens} fit"
                )
        if not sequences:
            return Rows([], {})
        n_prefix = self._shared_prefix(sequences)
        jobs = self._shared.sizes.plan(dict(enumerate(map(len, sequences))), n_prefix)
        call = Call(sequences, n_prefix, len(jobs))
        self._perform(call, jobs)
        try:
            if call.error is not None:
                raise call.error
            return Rows([row for row in call.rows if row is not None], call.defects)
        finally:
            del call  # an error refers to this frame, which would keep all rows in memory

    def retune(self, *, n_contexts: int, n_threads: int, pack_tokens: int) -> None:
        """Work with other contexts from now on; calls under way are finished first.

        Raises:
            EngineError: the engine is closed.
            UsageError: a number is under 1.
        """
        shared = self._shared
        options = replace(
            shared.options, n_contexts=n_contexts, n_threads=n_threads, pack_tokens=pack_tokens
        )
        with shared.tuning:
            self._refuse_if_unusable()
            _finish(shared, self._drivers)
            self._busy_before += sum(driver.busy_seconds for driver in self._drivers)
            shared.options = options
            shared.sizes = _sizes(shared.model, options, self.rule)
            _start(shared, self._drivers)

    @property
    def options(self) -> EngineOptions:
        """How the model runs."""
        return self._shared.options

    @property
    def n_contexts(self) -> int:
        """Contexts that can work side by side."""
        return len(self._drivers)

    @property
    def busy_seconds(self) -> float:
        """Seconds that contexts have worked, all together."""
        return self._busy_before + sum(driver.busy_seconds for driver in self._drivers)

    @property
    def n_decodes(self) -> int:
        """Decodes that the contexts of now have ended."""
        return sum(driver.n_decodes for driver in self._drivers)

    def close(self) -> None:
        """Free contexts and weights; calls under way end with an error. Twice is harmless."""
        self._close()

    def _refuse_if_unusable(self) -> None:
        if self._shared.closed.is_set():
            raise EngineError("the model is closed; make a new object to use it again")
        if os.getpid() != self._pid:
            raise EngineError(
                "the model was loaded before this process was forked, and its threads stayed in "
                'the parent; load it in the child, or use the start method "spawn"'
            )

    def _shared_prefix(self, sequences: Sequence[NDArray[np.int32]]) -> int:
        may_share = self._shared.options.share_prefix and self.rule is not SplitRule.WHOLE
        return common_prefix(sequences, at_least=_MIN_SHARED_PREFIX) if may_share else 0

    def _perform(self, call: Call, jobs: Sequence[Job]) -> None:
        try:
            for job in jobs:
                self._shared.queue.put((call, job))
            call.done.wait()
        except BaseException as interrupt:  # KeyboardInterrupt above all
            call.fail(interrupt)
            for driver in self._drivers:
                driver.cancel(call)
            raise


def _examine(model: _llama.Model, options: EngineOptions) -> tuple[bool, SplitRule]:
    """Ask a small context what the model's attention and memory are."""
    probe = _llama.Context(
        model,
        _llama.ContextParams(
            pooling_type=options.pooling_type,
            causal=options.causal,
            n_ctx=_PROBE_TOKENS,
            n_ubatch=_PROBE_TOKENS,
        ),
    )
    rule = split_rule(options.pooling_type, causal=probe.causal, has_memory=probe.has_memory)
    probe.close()
    return probe.causal, rule


def _sizes(model: _llama.Model, options: EngineOptions, rule: SplitRule) -> Sizes:
    # A shared prefix takes a sequence, and what fills a decode up another one.
    return Sizes.derive(options, model, rule=rule, n_seq_max=_llama.N_SEQ_MAX - 2)


def _start(shared: Shared, drivers: list[Driver]) -> None:
    drivers[:] = [Driver(shared, number) for number in range(shared.options.n_contexts)]
    for driver in drivers:
        driver.start()


def _finish(shared: Shared, drivers: Sequence[Driver]) -> None:
    """Let drivers end after the jobs that are queued by now."""
    for _ in drivers:
        shared.queue.put(None)
    for driver in drivers:
        driver.join()


def _shut_down(shared: Shared, drivers: Sequence[Driver]) -> None:
    if threading.current_thread() in drivers:  # where the garbage collector ran; it can't join us
        threading.Thread(target=_shut_down, args=(shared, drivers), daemon=True).start()
        return
    with shared.tuning:
        shared.closed.set()
        for driver in drivers:
            driver.stop()
        _finish(shared, drivers)
        shared.model.close()
