"""A context and the thread that drives it."""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Final

import numpy as np
from numpy.typing import NDArray

from corral.engine import _llama
from corral.engine.batching import Job, Pack, Part, prefix_decodes
from corral.engine.latch import Latch
from corral.engine.options import EngineOptions, Sizes
from corral.engine.pooling import PoolingType, SplitRule, combine
from corral.engine.vectors import defect, sound
from corral.errors import EngineError

__all__ = ["Call", "Driver", "Row", "Shared"]

Row = NDArray[np.float32]

_FILLER_ID: Final = _llama.N_SEQ_MAX - 1


class Call:
    """One request: its sequences, their rows as they come, and who waits for them."""

    def __init__(self, sequences: Sequence[NDArray[np.int32]], n_prefix: int, n_jobs: int) -> None:
        """Expect `n_jobs` calls of `finish_job`; `n_prefix` tokens begin every sequence."""
        self.sequences = sequences
        self.n_prefix = n_prefix
        self.rows: list[Row | None] = [None] * len(sequences)
        self.defects: dict[int, str] = {}
        self.error: BaseException | None = None
        self._jobs_left = n_jobs
        self._lock = threading.Lock()
        self.done = Latch()

    def fail(self, error: BaseException) -> None:
        """Let the jobs that have not begun be passed over."""
        with self._lock:
            self.error = self.error or error

    def finish_job(self) -> None:
        """Count a job as done, whatever became of it."""
        with self._lock:
            self._jobs_left -= 1
            if not self._jobs_left:
                self.done.open()


@dataclass(slots=True)
class Shared:
    """What the drivers of an engine have in common."""

    model: _llama.Model
    options: EngineOptions
    sizes: Sizes
    queue: "SimpleQueue[tuple[Call, Job] | None]" = field(default_factory=SimpleQueue)
    closed: threading.Event = field(default_factory=threading.Event)
    tuning: threading.Lock = field(default_factory=threading.Lock)  # drivers come and go under it

    def open_context(self, *, n_ctx: int, n_ubatch: int) -> _llama.Context:
        """Make a context with room for this much and something over."""
        return _llama.Context(
            self.model,
            _llama.ContextParams(
                pooling_type=self.options.pooling_type,
                causal=self.options.causal,
                n_ctx=n_ctx,
                n_ubatch=n_ubatch,
                n_threads=self.options.n_threads,
                flash_attn=self.options.flash_attn,
            ),
        )


class Driver(threading.Thread):
    """Takes jobs from the queue until it finds None there, then frees its context."""

    def __init__(self, shared: Shared, number: int) -> None:
        """Make the thread; its context is made when the first job is there."""
        super().__init__(name=f"corral-context-{number}", daemon=True)
        self._shared = shared
        self._context: _llama.Context | None = None
        self._busy_with: Call | None = None
        self._lock = threading.Lock()  # over the two above, for `cancel`
        self.busy_seconds = 0.0
        self.n_decodes = 0
        self._prefix_of: Call | None = None  # whose prefix is sequence 0 of the context's memory
        self._prefix_rows: list[tuple[Row, int]] = []

    def run(self) -> None:
        """Work."""
        while (item := self._shared.queue.get()) is not None:
            call, job = item
            try:
                self._attempt(call, job)
            except Exception as error:  # noqa: BLE001 - raised again in the thread that waits
                self._prefix_of = None
                call.fail(error)
            finally:
                call.finish_job()
            del item, call, job
        self._close_context()

    def cancel(self, call: Call) -> None:
        """Stop the decode that runs for this call, if one does; from any thread."""
        with self._lock:
            if self._busy_with is call and self._context:
                self._context.abort()

    def stop(self) -> None:
        """Stop the decode that runs now; from any thread."""
        with self._lock:
            if self._context:
                self._context.abort()

    def _attempt(self, call: Call, job: Job) -> None:
        if call.error is not None:
            return
        with self._lock:
            self._busy_with = call
        started = time.monotonic()
        try:
            self._refuse_if_over(call)
            self._perform(call, job)
        finally:
            self.busy_seconds += time.monotonic() - started
            with self._lock:
                self._busy_with = None
                if self._context:
                    self._context.resume()

    def _perform(self, call: Call, job: Job) -> None:
        ranks = self._shared.options.pooling_type is PoolingType.RANK
        rows = self._decode(call, job)
        if sound(list(rows.values()), may_be_zero=ranks):
            for index, row in rows.items():
                call.rows[index] = row
            return
        for index, row in rows.items():
            found = defect(row, may_be_zero=ranks)
            if found:
                call.rows[index], found = self._retry(call, index, may_be_zero=ranks)
            else:
                call.rows[index] = row
            if found:
                call.defects[index] = found

    def _retry(self, call: Call, index: int, *, may_be_zero: bool) -> tuple[Row, str | None]:
        """Decode one sequence alone, on a fresh context."""
        self._close_context()
        (job,) = self._shared.sizes.plan({index: len(call.sequences[index])})
        row = self._decode(call, job)[index]
        return row, defect(row, may_be_zero=may_be_zero)

    def _decode(self, call: Call, job: Job) -> dict[int, Row]:
        context = self._ready_context(job)
        ids = {index: number for number, index in enumerate(job.indexes, 1 if job.n_prefix else 0)}
        if job.n_prefix:
            self._hold_prefix(context, call)
            for sequence in ids.values():
                context.copy_sequence(0, sequence)
        else:
            self._prefix_of = None
            context.clear()
        before = self._prefix_rows if job.n_prefix else []
        parts = {index: list(before) for index in ids}
        for decode in job.decodes:
            for part, row in self._run_decode(context, call, decode, ids):
                parts[part.index].append((row, len(part)))
        if job.n_prefix:
            for sequence in ids.values():
                context.remove_sequence(sequence)
        return {index: self._join(rows) for index, rows in parts.items()}

    def _refuse_if_over(self, call: Call) -> None:
        """See whether an abort came when no context was there to take it."""
        if self._shared.closed.is_set():
            raise EngineError("the model was closed while it was in use")
        if call.error is not None:
            raise _llama.DecodeAbortedError("the call was interrupted")

    def _join(self, parts: list[tuple[Row, int]]) -> Row:
        if len(parts) == 1:
            return parts[0][0]
        return combine(
            self._shared.sizes.rule, [row for row, _ in parts], [n_tokens for _, n_tokens in parts]
        )

    def _hold_prefix(self, context: _llama.Context, call: Call) -> None:
        """Have the call's prefix, and nothing else, in memory, as sequence 0."""
        if self._prefix_of is call:
            return
        context.clear()
        self._prefix_rows = [
            (row, len(part))
            for decode in prefix_decodes(call.n_prefix, self._shared.sizes.limits.n_ubatch)
            for part, row in self._run_decode(context, call, decode, {0: 0})
        ]
        self._prefix_of = call

    def _run_decode(
        self,
        context: _llama.Context,
        call: Call,
        decode: Pack,
        ids: Mapping[int, int],
    ) -> list[tuple[Part, Row]]:
        """Decode parts of sequences, `ids` by their numbers, and give the rows that count."""
        self._refuse_if_over(call)
        sequences = call.sequences
        lengths = [len(part) for part in decode]
        filler = np.arange(self._filler_tokens(sum(lengths)), dtype=np.int32)
        wants_rows = self._shared.sizes.rule is not SplitRule.LAST_PART or any(
            part.stop == len(sequences[part.index]) for part in decode
        )
        in_memory = [ids[part.index] for part in decode]
        context.decode(
            np.concatenate([*(sequences[p.index][p.start : p.stop] for p in decode), 0 * filler]),
            np.concatenate([*(np.arange(p.start, p.stop, dtype=np.int32) for p in decode), filler]),
            np.repeat(
                np.asarray([*in_memory, _FILLER_ID], dtype=np.int32), [*lengths, len(filler)]
            ),
            wants_rows=wants_rows,
        )
        self.n_decodes += 1
        if len(filler) and context.has_memory:
            context.remove_sequence(_FILLER_ID)
        if not wants_rows:
            return []
        if context.pooling_type is not PoolingType.NONE:
            rows = [context.pooled_row(sequence) for sequence in in_memory]
        else:
            stops = np.cumsum(lengths).tolist()
            rows = [
                context.token_rows(stop - n, stop) for stop, n in zip(stops, lengths, strict=True)
            ]
        return list(zip(decode, rows, strict=True))

    def _filler_tokens(self, n_tokens: int) -> int:
        """Count the tokens that a decode lacks to be computed as larger ones are."""
        sizes = self._shared.sizes
        lacks = max(0, sizes.limits.full_tokens - n_tokens)
        return min(lacks, self._shared.model.n_ctx_train) if sizes.limits.fills_up else 0

    def _ready_context(self, job: Job) -> _llama.Context:
        """Give a context with room for the job: the one at hand, or a larger one."""
        context = self._context
        limits = self._shared.sizes.limits
        n_cells = job.n_cells + limits.full_tokens
        if context and context.n_ubatch >= job.widest and context.n_ctx >= n_cells:
            return context
        room = limits.pack_tokens if self._shared.sizes.rule is SplitRule.WHOLE else limits.n_ubatch
        self._close_context()
        context = self._shared.open_context(
            n_ubatch=max(job.widest, room), n_ctx=max(n_cells, room)
        )
        with self._lock:
            self._context = context
        return context

    def _close_context(self) -> None:
        self._prefix_of = None
        with self._lock:
            context, self._context = self._context, None
        if context:
            context.close()
