"""Read, chunk, embed and store side by side, with bounded queues between.

One thread reads and chunks; two hand batches to the engine, so that one batch is in it while the
other is taken apart; the thread that called writes, and it alone knows which files are done.
Memory is bounded by the queues, not by the corpus.
"""

import contextlib
import logging
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from corral.embedders import ChunkVectors
from corral.prepare import FileLeft, FileRead, Pending, payload
from corral.report import FileReport, LostChunk, Report
from corral_sinks import Record, Sink

__all__ = ["Progress", "Writer", "run_pipeline"]

log = logging.getLogger(__name__)

_BATCH_CHUNKS: Final = 64
_QUEUED: Final = 2
_EMBED_THREADS: Final = 2
_FLUSH_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.2
_LOCK_SECONDS: Final = 5.0


class Progress(Protocol):
    """Who wants to know how far a run is."""

    def __call__(self, report: Report, *, files_done: int, bytes_done: int) -> None:
        """Take note; called often, from the thread that runs the pipeline."""
        ...


@dataclass(frozen=True, slots=True)
class _BatchEmbedded:
    batch: Sequence[Pending]
    results: Sequence[ChunkVectors]


@dataclass(frozen=True, slots=True)
class _Failed:
    error: BaseException


_Event = _BatchEmbedded | FileRead | FileLeft | _Failed | None


class _StoppedError(Exception):
    """The run ends; the thread that meets this goes home."""


class _Threads:
    """The reading and embedding threads and the queues that join them to the writing one."""

    def __init__(
        self,
        prepared: Iterator[Pending | FileRead | FileLeft],
        embed: Callable[[Sequence[Pending]], Sequence[ChunkVectors]],
    ) -> None:
        self._prepared = prepared
        self._embed = embed
        self._batches: queue.Queue[list[Pending] | None] = queue.Queue(_QUEUED)
        self._events: queue.Queue[_Event] = queue.Queue(_QUEUED)
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True)
            for name, work in [
                ("corral-read", self._read),
                *[(f"corral-embed-{i}", self._embed_batches) for i in range(_EMBED_THREADS)],
            ]
        ]

    def events(self) -> Iterator[_BatchEmbedded | FileRead | FileLeft]:
        """Yield what happens until all is embedded; raise what a thread raised."""
        for thread in self._threads:
            thread.start()
        running = _EMBED_THREADS
        while running:
            event = self._events.get()
            if isinstance(event, _Failed):
                raise event.error
            if event is None:
                running -= 1
            else:
                yield event

    def stop(self) -> None:
        """Let the threads end as soon as they can, and wait a moment for the reading one."""
        self._stop.set()
        if self._threads[0].is_alive():  # else an interrupt came before it was started
            self._threads[0].join(timeout=1.0)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except _StoppedError:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again in the writing thread
            with contextlib.suppress(_StoppedError):
                self._put(self._events, _Failed(error))

    def _put(self, target: "queue.Queue[Any]", item: object) -> None:
        while not self._stop.is_set():
            try:
                target.put(item, timeout=_POLL_SECONDS)
            except queue.Full:
                continue
            return
        raise _StoppedError

    def _get(self, source: "queue.Queue[Any]") -> Any:  # noqa: ANN401 - of either queue
        while not self._stop.is_set():
            try:
                return source.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
        raise _StoppedError

    def _read(self) -> None:
        batch: list[Pending] = []
        for item in self._prepared:
            if not isinstance(item, Pending):
                self._put(self._events, item)
                continue
            batch.append(item)
            if len(batch) == _BATCH_CHUNKS:
                self._put(self._batches, batch)
                batch = []
        if batch:
            self._put(self._batches, batch)
        for _ in range(_EMBED_THREADS):
            self._put(self._batches, None)

    def _embed_batches(self) -> None:
        while (batch := self._get(self._batches)) is not None:
            self._put(self._events, _BatchEmbedded(batch, self._embed(batch)))
        self._put(self._events, None)


@dataclass(slots=True)
class _Tally:
    """What came back so far of a file's chunks that want a vector."""

    settled: int = 0
    tokens: int = 0
    truncated: int = 0
    lost: list[LostChunk] = field(default_factory=list)


class Writer:
    """Stores what comes, and counts."""

    def __init__(
        self,
        sink: Sink,
        lock: threading.Lock,
        report: Report,
        *,
        sizes: Mapping[str, int],
    ) -> None:
        """Write records to the sink, holding the lock meanwhile.

        `sizes` are the files' bytes by source, for the progress.
        """
        self._sizes = sizes
        self._sink = sink
        self._lock = lock
        self.report = report
        self._open: dict[str, FileRead] = {}
        self._tallies: defaultdict[str, _Tally] = defaultdict(_Tally)
        self._flushed_at = time.monotonic()
        self.files_done = 0
        self.bytes_done = 0

    def write(self, event: _BatchEmbedded | FileRead | FileLeft) -> None:
        """Store a batch, or finish a file."""
        with self._lock:
            self._write(event)
            if time.monotonic() - self._flushed_at > _FLUSH_SECONDS:
                self._flush()

    def flush(self) -> None:
        """Make safe against power loss what was written.

        An interrupt may leave the lock with who waits for the store, or for nothing any more. A run
        that ends does not wait for it for long: what was acknowledged survives the process anyway.
        """
        if not self._lock.acquire(timeout=_LOCK_SECONDS):
            log.warning("not flushed: the store is busy; what it acknowledged is stored")
            return
        try:
            self._flush()
        finally:
            self._lock.release()

    def _flush(self) -> None:
        self._sink.flush()
        self._flushed_at = time.monotonic()

    def _write(self, event: _BatchEmbedded | FileRead | FileLeft) -> None:
        if isinstance(event, _BatchEmbedded):
            self._store(event.batch, event.results)
            touched = {pending.file.source for pending in event.batch}
        elif isinstance(event, FileRead):
            self._open[event.file.source] = event
            touched = {event.file.source}
        else:
            self._count(event.entry())
            touched = set()
        for source in touched:
            read = self._open.get(source)
            if read and self._tallies[source].settled == read.n_pending:
                self._finish(self._open.pop(source), self._tallies.pop(source))

    def _store(self, batch: Sequence[Pending], results: Sequence[ChunkVectors]) -> None:
        records = []
        for pending, result in zip(batch, results, strict=True):
            tally = self._tallies[pending.file.source]
            tally.settled += 1
            if result.defect is not None:
                self.report.quarantined += 1
                tally.lost.append(_lost(pending, result.defect))
                continue
            records.append(_record(pending, result))
            tally.tokens += result.n_tokens
            tally.truncated += result.truncated
            self.report.tokens += result.n_tokens
            self.report.truncated += result.truncated
        self._sink.upsert(records)
        self.report.embedded += len(records)

    def _finish(self, read: FileRead, tally: _Tally) -> None:
        self.report.reused += read.n_reused
        if read.moved:
            self._sink.set_payload(read.moved)
            self.report.moved += len(read.moved)
        if read.stale and not tally.lost:  # the old stays until all of the new is stored
            self._sink.delete(read.stale)
            self.report.deleted += len(read.stale)
        self._count(
            FileReport(
                source=read.file.source,
                status="failed" if tally.lost else read.status,
                chunks=read.n_chunks,
                tokens=tally.tokens,
                truncated=tally.truncated,
                seconds=time.monotonic() - read.began,
                error=_words(tally.lost) if tally.lost else read.reason,
                quarantined=tally.lost,
            )
        )

    def _count(self, entry: FileReport) -> None:
        self.report.add(entry)
        self.files_done += 1
        self.bytes_done += self._sizes[entry.source]
        if entry.error is not None:
            log.warning("%s %s: %s", entry.status, entry.source, entry.error)
        else:
            log.info("%s %s: %d chunks", entry.status, entry.source, entry.chunks)


def _record(pending: Pending, result: ChunkVectors) -> Record:
    metadata = {**pending.metadata, "truncated": result.truncated, **result.metadata}
    return Record(
        id=pending.id,
        vectors=result.vectors,
        payload=payload(pending.chunk.text, metadata),
    )


def _lost(pending: Pending, found: str) -> LostChunk:
    start, end = pending.chunk.start, pending.chunk.end
    log.warning(
        "no vector for characters %d to %d of %s: %s", start, end, pending.file.source, found
    )
    return LostChunk(start=start, end=end, error=found)


def _words(lost: Sequence[LostChunk]) -> str:
    first = lost[0]
    more = f"; nor for {len(lost) - 1} other chunks" if len(lost) > 1 else ""
    return (
        f"the model gave no vector for characters {first.start} to {first.end}: {first.error}{more}"
    )


def run_pipeline(
    prepared: Iterator[Pending | FileRead | FileLeft],
    *,
    embed: Callable[[Sequence[Pending]], Sequence[ChunkVectors]],
    writer: Writer,
    progress: Progress,
) -> None:
    """Embed and store what was prepared; return when all of it is durable.

    Args:
        prepared: is iterated in a thread of its own.
        embed: computes the vectors of chunks; called from several threads.
        writer: stores and counts, also where this raises.
        progress: is told after every event.

    Raises:
        Whatever reading, embedding or storing raises; what was acknowledged before stays.
    """
    threads = _Threads(prepared, embed)
    try:
        for event in threads.events():
            writer.write(event)
            progress(writer.report, files_done=writer.files_done, bytes_done=writer.bytes_done)
    finally:
        threads.stop()
        writer.flush()
