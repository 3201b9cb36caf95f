"""What a run did: counted as it goes, told at its end."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from corral_sinks import Building

__all__ = ["FileReport", "FileStatus", "LostChunk", "Report"]

FileStatus = Literal["stored", "unchanged", "skipped", "failed"]
_STATUSES: tuple[FileStatus, ...] = ("stored", "unchanged", "skipped", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class LostChunk:
    """A chunk that the model gave no usable vector for.

    Args:
        start: of the chunk, in code points of its file.
        end: where it ends.
        error: what the model gave instead.
    """

    start: int
    end: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """What became of one file.

    Args:
        source: of the file, as in the collection.
        status: how it ended.
        chunks: that it now has.
        tokens: of its chunks that were embedded, prefix and special tokens included.
        truncated: its chunks of which the model read less than all.
        seconds: from when it was opened until all of it was stored; files overlap.
        error: why it was skipped or failed.
        quarantined: its chunks that were not stored.
    """

    source: str
    status: FileStatus
    chunks: int = 0
    tokens: int = 0
    truncated: int = 0
    seconds: float = 0.0
    error: str | None = None
    quarantined: Sequence[LostChunk] = ()


@dataclass(slots=True)
class Report:
    """Totals of an ingest, and what became of each file; of a dry run, what it would come to.

    Attributes:
        strict: whether a file that was skipped or a chunk that was cut is a failure, too.
        dry_run: whether nothing was embedded, written or deleted.
        began: whether everything was settled, so that files were looked at.
        error: why the run ended before its end.
        files_total: files that were found.
        bytes_total: their size.
        files: how many files came to which end.
        entries: what became of each file that came to its end.
        embedded: chunks embedded and stored in this run.
        reused: chunks that were stored already, by the same settings.
        moved: reused chunks whose payload was mended.
        deleted: stored chunks that their files no longer have, or whose files are gone.
        pruned: sources of files that are gone, whose chunks were deleted.
        truncated: chunks of which the model read less than all.
        quarantined: chunks the model gave no usable vector for; not stored.
        lost: sources that only the collection has that a reindex was to replace.
        points: that the collection has after the run; None where they were not counted.
        points_expected: that it should have if nobody else wrote to it.
        switched_to: the collection that the given name leads to since this run; of a reindex.
        dropped: collections that were replaced and are deleted now.
        missing: chunks of this run's files that the collection does not have in the end.
        surplus: points of this run's files that it has and should not.
        tokens: embedded, prefix and special tokens included.
        seconds: from the first file to the last write.
        busy_seconds: that contexts spent computing, all together.
        n_contexts: contexts that could compute.
        building: how far the store's indexes are; None before they are waited for.
        model_deaths: times that the model's process died and was started anew.
        bytes_to_write: vectors and payloads; of a dry run.
        expected_seconds: of embedding, by the model's calibration; of a dry run, None if unknown.
        routed: documents that went to a second model.
        routed_to: which of them, why and where to; None without a second model.
    """

    strict: bool = False
    dry_run: bool = False
    began: bool = False
    error: str | None = None
    files_total: int = 0
    bytes_total: int = 0
    files: Counter[FileStatus] = field(default_factory=Counter)
    entries: list[FileReport] = field(default_factory=list)
    embedded: int = 0
    reused: int = 0
    moved: int = 0
    deleted: int = 0
    pruned: list[str] = field(default_factory=list)
    truncated: int = 0
    quarantined: int = 0
    lost: int = 0
    points: int | None = None
    points_expected: int = 0
    switched_to: str | None = None
    dropped: list[str] = field(default_factory=list)
    missing: int = 0
    surplus: int = 0
    tokens: int = 0
    seconds: float = 0.0
    busy_seconds: float = 0.0
    n_contexts: int = 1
    building: Building | None = None
    model_deaths: int = 0
    bytes_to_write: int = 0
    expected_seconds: float | None = None
    routed: int = 0
    routed_to: str | None = None

    def add(self, entry: FileReport) -> None:
        """Take note of a file that came to its end."""
        self.files[entry.status] += 1
        self.entries.append(entry)

    @property
    def chunks(self) -> int:
        """Chunks that the files now have, those without a usable vector among them."""
        return self.embedded + self.reused + self.quarantined

    @property
    def reasons(self) -> list[tuple[str, str]]:
        """(source, reason) of each file that was skipped or failed."""
        return [(entry.source, entry.error) for entry in self.entries if entry.error is not None]

    @property
    def tokens_per_second(self) -> float:
        """Tokens embedded in a second."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def model_busy(self) -> float:
        """Share of the run that the model was at work, 0 to 1."""
        possible = self.seconds * self.n_contexts
        return min(1.0, self.busy_seconds / possible) if possible else 0.0

    @property
    def failures(self) -> list[str]:
        """What keeps the run from being a success; the summary and the exit code both go by it."""
        points = f" (it has {self.points or 0:,} points, {self.points_expected:,} expected)"
        counted = [
            (self.files["failed"], "files failed"),
            (self.quarantined, "chunks without a usable vector"),
            (self.missing, f"chunks were acknowledged and are not in the collection{points}"),
            (self.surplus, f"points of these files are in the collection beside theirs{points}"),
            (self.lost, "sources are only in the collection in force, which therefore stays so"),
        ]
        if self.strict:
            counted += [
                (self.files["skipped"], "files skipped (--strict)"),
                (self.truncated, "chunks truncated (--strict)"),
                (self.model_deaths, "deaths of the model's process (--strict)"),
            ]
        early = ["the run ended before its end"] if self.error is not None else []
        return early + [f"{number:,} {what}" for number, what in counted if number]

    @property
    def all_stored(self) -> bool:
        """Whether nothing that was to be stored is missing."""
        return not self.failures

    def totals(self) -> dict[str, Any]:
        """Give the totals as JSON; `files` of all kinds, then how many came to which end."""
        counted = ("chunks", "embedded", "reused", "moved", "deleted", "truncated", "quarantined")
        totals: dict[str, Any] = {
            "files": self.files.total(),
            **{status: self.files[status] for status in _STATUSES},
            **{name: getattr(self, name) for name in counted},
            "pruned": len(self.pruned),
            "points": self.points,
            "switched_to": self.switched_to,
            "dropped": list(self.dropped),
            "tokens": self.tokens,
            "seconds": round(self.seconds, 3),
            "model_busy": round(self.model_busy, 4),
            "model_deaths": self.model_deaths,
        }
        if self.routed_to is not None:
            totals["routed"] = self.routed
        if self.dry_run:
            totals["bytes_to_write"] = self.bytes_to_write
            totals["expected_seconds"] = self.expected_seconds
        return totals

    def summary(self) -> dict[str, Any]:
        """Give all but the single files as JSON."""
        return {
            "ok": self.all_stored,
            "dry_run": self.dry_run,
            "error": self.error,
            "failures": self.failures,
            "totals": self.totals(),
        }

    def as_dict(self) -> dict[str, Any]:
        """Give all of it as JSON."""
        files = [asdict(entry) for entry in self.entries]
        return {**self.summary(), "files": files, "pruned": self.pruned}
