"""One run of an ingest: from files to stored chunks, or to what that would be."""

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from corral.calibration import recall
from corral.discovery import SkippedFile, SourceFile
from corral.errors import CorralError, IncompleteRunError
from corral.ingest_options import IngestOptions
from corral.pipeline import Progress, Writer, run_pipeline
from corral.plan import plan
from corral.prepare import FileLeft, FileRead, Pending, Stored, prepare
from corral.readers.files import Readers
from corral.report import Report
from corral.run_models import RunModels
from corral.verify import verify
from corral_chunkers import ChunkerError
from corral_sinks import Building, Sink, SinkError, TellBuilding

__all__ = ["Run"]

log = logging.getLogger(__name__)

_Event = Pending | FileRead | FileLeft
_WORTH_CALIBRATING: Final = 2**19
"""Bytes whose embedding takes a small model many times a calibration's two seconds."""


@dataclass(frozen=True, slots=True)
class Run:
    """Everything is settled, and nothing is read yet.

    Args:
        options: of the run.
        files: to read, and those that are left out already.
        readers: read them.
        sink: takes the chunks; its collection is there.
        models: cut and embed.
        report: is told everything.
        gone: sources to prune.
        is_new: whether the collection was made by this run.
    """

    options: IngestOptions
    files: Sequence[SourceFile | SkippedFile]
    readers: Readers
    sink: Sink
    models: RunModels
    report: Report
    gone: Sequence[str]
    is_new: bool
    lock: threading.Lock = field(default_factory=threading.Lock)

    def go(self, progress: Progress) -> None:
        """Read, chunk, embed and store all of it; or, in a dry run, see what that would be.

        Raises:
            IncompleteRunError: the store or the model failed on the way.
        """
        report = self.report
        sizes = {file.source: _size(file.path) for file in self.files}
        report.began = True
        report.files_total, report.bytes_total = len(self.files), sum(sizes.values())
        started, busy = time.monotonic(), self.models.busy_seconds
        try:
            if self.options.dry_run:
                self._plan(sizes, progress)
            else:
                self._update(sizes, progress)
        except (CorralError, ChunkerError, SinkError) as error:
            report.error = str(error)
            raise IncompleteRunError(
                f"{error}\n{report.embedded:,} chunks are stored; run the same command again to go "
                "on from there."
            ) from error
        except KeyboardInterrupt:
            report.error = "interrupted"
            raise
        except BaseException as error:
            report.error = str(error) or type(error).__name__
            raise
        finally:
            report.seconds = time.monotonic() - started
            report.busy_seconds = self.models.busy_seconds - busy
            self.models.tell(report)

    def _update(self, sizes: Mapping[str, int], progress: Progress) -> None:
        before = self.sink.count()
        if self.is_new:
            self.sink.defer_indexing()
        self._store(sizes, progress)
        self._prune()
        self.sink.optimize(self._tells_building(progress))
        verify(self.sink, self.report, before=before)

    def _tells_building(self, progress: Progress) -> TellBuilding:
        report = self.report

        def tell(building: Building) -> None:
            report.building = building
            progress(report, files_done=report.files_total, bytes_done=report.bytes_total)

        return tell

    def _store(self, sizes: Mapping[str, int], progress: Progress) -> None:
        writer = Writer(self.sink, self.lock, self.report, sizes=sizes)
        run_pipeline(
            self._made_ready(self._prepared()),
            embed=self.models.embedder.embed,
            writer=writer,
            progress=progress,
        )

    def _made_ready(self, prepared: Iterator[_Event]) -> Iterator[_Event]:
        """Pass on what is prepared; before the first chunk, when nobody embeds yet, try the models.

        A run that finds nothing to embed leaves them alone. Where the collection is new, they were
        asked for vectors before it was made.
        """
        ready = False
        for event in prepared:
            if not ready and isinstance(event, Pending):
                if not self.is_new:
                    self.models.require_vectors()
                if self.report.bytes_total >= _WORTH_CALIBRATING:
                    self.models.calibrate()
                ready = True
            yield event

    def _prune(self) -> None:
        """Delete what is of files that are gone, once all of the others is stored."""
        report = self.report
        if self.gone and (report.files["failed"] or report.quarantined):
            log.warning(
                "not pruned: %d files are gone, and what could not be stored may be theirs",
                len(self.gone),
            )
            return
        for source in self.gone:
            ids = list(self._stored(source))
            if not self.options.dry_run:
                self.sink.delete(ids)
                log.info("pruned %s: %d chunks", source, len(ids))
            report.deleted += len(ids)
            report.pruned.append(source)
        if self.gone and not self.options.dry_run:
            self.sink.flush()

    def _plan(self, sizes: Mapping[str, int], progress: Progress) -> None:
        plan(
            self._prepared(),
            self.report,
            vector_bytes=self.models.embedder.specs.n_bytes,
            sizes=sizes,
            progress=progress,
        )
        self._prune()
        known = recall(str(self.models.embeddings.settings["model_sha256"]))
        if known is not None:
            self.report.expected_seconds = self.report.tokens / known.trials[known.setting]

    def _prepared(self) -> Iterator[_Event]:
        return prepare(
            self.files,
            readers=self.readers,
            chunker=self.models.chunker,
            model_of=self.models.model_of,
            whole_document=self.models.embedder.whole_document,
            stored=self._stored,
            tenant=self.options.target.tenant,
        )

    def _stored(self, source: str) -> Stored:
        with self.lock:
            return {} if self.is_new else self.sink.stored(source)


def _size(path: Path) -> int:
    """Size in bytes, for the progress; a file that cannot be asked counts nothing."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
