"""An engine in a child process, which may die without taking this one along.

A GGML assertion, a segmentation fault, a kill for want of memory, a decode that never ends: each
takes down the child alone. It is started again, the call is run again with nobody else's beside it,
in halves where it dies again, until what is left is the one sequence that it dies of. That one gets
no row, all others theirs.
"""

import contextlib
import dataclasses
import logging
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from corral.closing import Closing
from corral.engine.child import Child, DiedError
from corral.engine.frames import Message
from corral.engine.latch import Turns
from corral.engine.options import EngineOptions
from corral.engine.pool import Rows
from corral.engine.pooling import PoolingType
from corral.engine.serving import joined, parted
from corral.errors import CorralError, EngineError

__all__ = ["WorkerEngine"]

log = logging.getLogger(__name__)

_MOST_DEATHS: Final = 20
"""In a row: a bisection of thousands of sequences, whose first is the bad one, takes half of it."""


class _Nursery:
    """Sees to it that there is a child, and counts those that died."""

    def __init__(self, path: Path, options: EngineOptions) -> None:
        self.options = options
        self.deaths = 0
        self._path = path
        self._lock = threading.RLock()
        self._in_a_row = 0
        self._busy_before = 0.0
        self._closed = False
        self._pid = os.getpid()
        self._child: Child | None = Child(path, options)

    @property
    def busy_seconds(self) -> float:
        with self._lock:
            return self._busy_before + (self._child.busy_seconds if self._child else 0.0)

    def child(self) -> Child:
        """Give the child; start one where it died."""
        with self._lock:
            self._refuse_if_unusable()
            if self._child is not None and self._child.is_dead:
                self.bury(self._child)
            if self._child is None:
                self._child = Child(self._path, self.options)
            return self._child

    def ask(self, head: Mapping[str, Any], arrays: Sequence[NDArray[Any]] = ()) -> Message:
        """Have a request answered by the child.

        Raises:
            EngineError: the engine is closed, or failed, or its process dies of everything.
            DiedError: the child died of it, or beside it.
        """
        child = self.child()
        try:
            child.facts()
            answer = child.ask(head, arrays)
        except DiedError as death:
            with self._lock:
                self._refuse_if_unusable()
                self.bury(child)
                self._refuse_if_hopeless(death)
            raise
        except CorralError:
            raise
        except BaseException:  # KeyboardInterrupt above all: nobody waits for the answer any more
            child.kill("was interrupted")
            raise
        with self._lock:
            self._in_a_row = 0
        return answer

    def bury(self, child: Child) -> None:
        """Count a death, once."""
        with self._lock:
            if self._child is child:
                self._busy_before += child.busy_seconds
                self._child = None
                self.deaths += 1
                self._in_a_row += 1

    def close(self) -> None:
        with self._lock:
            self._closed = True
            child = self._child
        if child is not None and os.getpid() == self._pid:  # a fork of ours leaves it alone
            child.kill("was closed")
            child.join()

    def _refuse_if_unusable(self) -> None:
        if self._closed:
            raise EngineError("the model is closed; make a new object to use it again")
        if os.getpid() != self._pid:
            raise EngineError(
                "the model was opened before this process was forked, and its own process answers "
                "the parent; open it in the child"
            )

    def _refuse_if_hopeless(self, death: DiedError) -> None:
        if self._in_a_row < _MOST_DEATHS:
            return
        self._in_a_row = 0
        raise EngineError(
            f"the model's process was started anew {_MOST_DEATHS} times and gave not one vector: "
            f"it {death}. It is not one text that it dies of; is there memory enough for the "
            "model, and does it run elsewhere?"
        )


class WorkerEngine(Closing):
    """An Engine in a process of its own; usable from many threads at once.

    Args:
        path: the model.
        options: how it runs.

    Raises:
        EngineError: no process can be started.
    """

    def __init__(self, path: Path, options: EngineOptions) -> None:
        """Start the process; what it says of the model is waited for when it is asked for."""
        self._nursery = _Nursery(path, options)
        self._turns = Turns()
        self._close = weakref.finalize(self, self._nursery.close)

    @cached_property
    def _facts(self) -> Mapping[str, Any]:
        child = self._nursery.child()
        try:
            return child.facts()
        except DiedError as death:
            raise EngineError(f"the model's process {death} while it loaded the model") from None

    @property
    def causal(self) -> bool:
        """Whether tokens look only back."""
        return bool(self._facts["causal"])

    @property
    def n_embd_out(self) -> int:
        """Length of a row, unless the pooling is RANK."""
        return int(self._facts["n_embd_out"])

    @property
    def n_cls_out(self) -> int:
        """Length of a row with pooling RANK."""
        return int(self._facts["n_cls_out"])

    @property
    def max_tokens(self) -> int:
        """Longest sequence."""
        return int(self._facts["max_tokens"])

    @property
    def options(self) -> EngineOptions:
        """How the model runs."""
        return self._nursery.options

    @property
    def n_contexts(self) -> int:
        """Contexts that can work side by side."""
        return self._nursery.options.n_contexts

    @property
    def busy_seconds(self) -> float:
        """Seconds that contexts have worked, all together; news of it come with every answer."""
        return self._nursery.busy_seconds

    @property
    def deaths(self) -> int:
        """How often the process died and was started anew."""
        return self._nursery.deaths

    def run(self, sequences: Sequence[NDArray[np.int32]]) -> Rows:
        """Run the model, as Engine does.

        A sequence that the process dies of, even alone, has a row of NaN, and a defect that says
        what it died of.

        Args:
            sequences: token ids, each (n_tokens,) int32 with 1 <= n_tokens <= max_tokens.

        Raises:
            EngineError: the engine is closed, llama.cpp failed, or the process dies of everything.
        """
        if not sequences:
            return Rows([], {})
        try:
            with (turn := threading.Lock()):
                self._turns.enter(turn)
                return self._ask(sequences)
        except DiedError as death:
            log.warning("the model's process %s; it is started anew", death)
        with self._turns.door:
            self._turns.wait_for_others()
            return self._bisect(sequences)

    def tokenize(self, text: str) -> NDArray[np.int32]:
        """Tokenise as llama.cpp does, without special tokens.

        Raises:
            EngineError: the process dies of it.
        """
        try:
            return self._nursery.ask({"what": "tokenize", "text": text}).arrays[0]
        except DiedError as death:
            raise EngineError(f"the model's process {death} while it tokenised a text") from None

    def retune(self, *, n_contexts: int, n_threads: int, pack_tokens: int) -> None:
        """Work with other contexts from now on.

        Raises:
            EngineError: the engine is closed.
            UsageError: a number is under 1.
        """
        setting: dict[str, Any] = {
            "n_contexts": n_contexts,
            "n_threads": n_threads,
            "pack_tokens": pack_tokens,
        }
        with self._turns.door:
            self._turns.wait_for_others()
            self._nursery.options = dataclasses.replace(self._nursery.options, **setting)
            # A child that dies meanwhile is followed by one with these options.
            with contextlib.suppress(DiedError):
                self._nursery.ask({"what": "retune", "setting": setting})

    def close(self) -> None:
        """End the process; calls under way end with an error. Twice is harmless."""
        self._close()

    def _ask(self, sequences: Sequence[NDArray[np.int32]]) -> Rows:
        head, arrays = self._nursery.ask({"what": "run"}, joined(sequences))
        return Rows(parted(arrays), dict(head["defects"]))

    def _bisect(self, sequences: Sequence[NDArray[np.int32]]) -> Rows:
        """Run sequences alone; in halves where the process dies of them, down to a single one."""
        rows: dict[int, NDArray[np.float32]] = {}
        defects: dict[int, str] = {}
        parts = [range(len(sequences))]
        while parts:
            part = parts.pop()
            try:
                found = self._ask([sequences[number] for number in part])
            except DiedError as death:
                if len(part) > 1:
                    middle = len(part) // 2
                    parts += [part[middle:], part[:middle]]
                    continue
                defects[part[0]] = f"the model's process {death}"
                rows[part[0]] = self._no_row(len(sequences[part[0]]))
                continue
            rows.update(zip(part, found.rows, strict=True))
            defects |= {part[number]: found for number, found in found.defects.items()}
        return Rows([rows[number] for number in range(len(sequences))], defects)

    def _no_row(self, n_tokens: int) -> NDArray[np.float32]:
        pooling = self.options.pooling_type
        width = self.n_cls_out if pooling is PoolingType.RANK else self.n_embd_out
        shape = (n_tokens, width) if pooling is PoolingType.NONE else (width,)
        return np.full(shape, np.nan, dtype=np.float32)
