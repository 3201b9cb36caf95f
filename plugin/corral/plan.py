"""What a run would do: everything is read and compared, nothing embedded, written or deleted."""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from corral.pipeline import Progress
from corral.prepare import FileLeft, FileRead, Pending, payload
from corral.report import FileReport, Report

__all__ = ["plan"]


def plan(
    prepared: Iterator[Pending | FileRead | FileLeft],
    report: Report,
    *,
    vector_bytes: int,
    sizes: Mapping[str, int],
    progress: Progress,
) -> None:
    """Count what a run would do.

    Args:
        prepared: the chunks of each file, then what else the store must do for it.
        report: to count in.
        vector_bytes: that a chunk's vectors take.
        sizes: the files' bytes by source, for the progress.
        progress: is told after every file.
    """
    tokens = files_done = bytes_done = 0
    for event in prepared:
        if isinstance(event, Pending):
            tokens += event.chunk.n_tokens
            content = payload(event.chunk.text, event.metadata)
            report.bytes_to_write += vector_bytes + _n_bytes(content)
            continue
        if isinstance(event, FileRead):
            _read(event, tokens, report)
        else:
            report.add(event.entry())
        tokens = 0
        files_done += 1
        bytes_done += sizes[event.file.source]
        progress(report, files_done=files_done, bytes_done=bytes_done)


def _read(read: FileRead, tokens: int, report: Report) -> None:
    report.embedded += read.n_pending
    report.reused += read.n_reused
    report.moved += len(read.moved)
    report.deleted += len(read.stale)
    report.tokens += tokens
    report.bytes_to_write += sum(map(_n_bytes, read.moved.values()))
    report.add(
        FileReport(
            source=read.file.source,
            status=read.status,
            chunks=read.n_chunks,
            tokens=tokens,
            seconds=time.monotonic() - read.began,
            error=read.reason,
        )
    )


def _n_bytes(content: Mapping[str, Any]) -> int:
    return len(json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass"))
