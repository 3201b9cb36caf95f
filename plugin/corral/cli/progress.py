"""How far a run is, on a terminal and elsewhere, and what it came to."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from corral.pipeline import Progress as ProgressProtocol
from corral.report import Report

__all__ = ["summary_lines", "watch"]

_LINE_SECONDS: Final = 10.0
_SHOWN_REASONS: Final = 20


@contextmanager
def watch(stream: TextIO) -> Iterator[ProgressProtocol]:
    """Show progress while the block runs: a bar on a terminal, a line now and then elsewhere."""
    if not stream.isatty():
        yield _Lines(stream)
        return
    columns = (
        TextColumn("{task.fields[done]}"),
        BarColumn(),
        TextColumn("{task.fields[chunks]} chunks, {task.fields[rate]:,.0f} tokens/s"),
        TimeRemainingColumn(),
    )
    progress = Progress(*columns, console=Console(file=stream), transient=True)
    task = progress.add_task("", total=None, done="0 files", chunks=0, rate=0.0)
    try:
        yield _Bar(progress, task)
    finally:
        progress.stop()


class _Bar:
    """A bar by bytes of the files; drawn from the first news on, since there may be a question."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task
        self._started = time.monotonic()

    def __call__(self, report: Report, *, files_done: int, bytes_done: int) -> None:
        seconds = time.monotonic() - self._started
        building = report.building
        self._progress.start()
        self._progress.update(
            self._task,
            total=_total(report),
            completed=bytes_done if building is None else building.indexed or 0,
            done=building or f"{files_done}/{report.files_total} files",
            chunks=report.embedded + report.reused,
            rate=report.tokens / seconds if seconds else 0.0,
        )


class _Lines:
    """A line every ten seconds."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._started = self._said = time.monotonic()

    def __call__(self, report: Report, *, files_done: int, bytes_done: int) -> None:
        now = time.monotonic()
        if now - self._said < _LINE_SECONDS:
            return
        self._said = now
        if report.building is not None:
            click.echo(report.building, file=self._stream)
            return
        share = bytes_done / report.bytes_total if report.bytes_total else 0.0
        click.echo(
            f"{files_done} of {report.files_total} files ({share:.0%} of the bytes), "
            f"{report.embedded} chunks embedded, "
            f"{report.tokens / (now - self._started):,.0f} tokens/s",
            file=self._stream,
        )


def _total(report: Report) -> int | None:
    """Say at how much the bar is full; None where nobody knows, so that it only moves."""
    building = report.building
    if building is None:
        return report.bytes_total
    return None if building.indexed is None else building.points


def summary_lines(report: Report) -> list[str]:
    """Say what a run came to."""
    files = report.files
    chunks = (
        f"{report.chunks:,}: {report.embedded:,} embedded, {report.reused:,} reused "
        f"({report.moved:,} moved), {report.deleted:,} old ones deleted, "
        f"{report.truncated:,} truncated, {report.quarantined:,} without a usable vector"
    )
    rows = {
        "files": (
            f"{files.total():,}: {files['stored']:,} stored, "
            f"{files['unchanged']:,} unchanged, {files['skipped']:,} skipped, "
            f"{files['failed']:,} failed"
        ),
        "chunks": chunks,
        **({"pruned": f"{len(report.pruned):,} files that are gone"} if report.pruned else {}),
        **(_planned(report) if report.dry_run else _measured(report)),
    }
    if report.routed_to is not None:
        rows["long"] = f"{report.routed:,} documents {report.routed_to}"
    if report.model_deaths:
        rows["model"] = f"its process died {report.model_deaths:,} times and was started anew"
    if report.switched_to:
        rows["reindex"] = f"in force is {report.switched_to} now"
    if report.dropped:
        rows["dropped"] = ", ".join(report.dropped)
    if report.failures:
        rows["failed"] = ", ".join(report.failures)
    lines = [f"{name:<8} {row}" for name, row in rows.items()]
    for source, reason in report.reasons[:_SHOWN_REASONS]:
        lines.append(f"  {source}: {_printable(reason)}")
    if len(report.reasons) > _SHOWN_REASONS:
        lines.append(f"  and {len(report.reasons) - _SHOWN_REASONS:,} more")
    return lines


def _measured(report: Report) -> dict[str, str]:
    busy = f"the model at work for {report.model_busy:.0%} of them"
    return {
        "tokens": f"{report.tokens:,} at {report.tokens_per_second:,.0f} tokens/s",
        "points": "not counted, since the run ended early"
        if report.points is None
        else f"{report.points:,} in the collection",
        "seconds": f"{report.seconds:,.1f}, {busy}",
    }


def _planned(report: Report) -> dict[str, str]:
    expected = report.expected_seconds
    seconds = (
        "unknown: this model was not calibrated on this machine yet"
        if expected is None
        else f"about {expected:,.0f} to embed them"
    )
    return {
        "tokens": f"{report.tokens:,} to embed",
        "bytes": f"{report.bytes_to_write:,} to write, vectors and payloads",
        "seconds": seconds,
        "dry run": "nothing was embedded, written or deleted",
    }


def _printable(text: str) -> str:
    """Return a text on one line: a file's name must not steer the terminal."""
    return text if text.isprintable() else json.dumps(text)
