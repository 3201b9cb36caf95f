"""What a run did: counted as it goes, told at its end."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["FileStatus", "Report"]

FileStatus = Literal["stored", "unchanged", "skipped", "failed"]


@dataclass(slots=True)
class Report:
    """Totals of an ingest.

    Attributes:
        files_total: files that were found.
        bytes_total: their size.
        files: how many files came to which end.
        reasons: (source, reason) of each file that was skipped or failed.
        chunks: chunks that the files now have.
        embedded: chunks embedded and stored in this run.
        reused: chunks that were stored already, by the same settings.
        moved: reused chunks whose payload was mended.
        deleted: stored chunks that their files no longer have.
        truncated: chunks of which the model read less than all.
        quarantined: chunks the model gave no usable vector for; not stored.
        tokens: embedded, prefix and special tokens included.
        seconds: from the first file to the last write.
        busy_seconds: that contexts spent computing, all together.
        n_contexts: contexts that could compute.
    """

    files_total: int = 0
    bytes_total: int = 0
    files: Counter[FileStatus] = field(default_factory=Counter)
    reasons: list[tuple[str, str]] = field(default_factory=list)
    chunks: int = 0
    embedded: int = 0
    reused: int = 0
    moved: int = 0
    deleted: int = 0
    truncated: int = 0
    quarantined: int = 0
    tokens: int = 0
    seconds: float = 0.0
    busy_seconds: float = 0.0
    n_contexts: int = 1

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
    def all_stored(self) -> bool:
        """Whether nothing that was to be stored is missing."""
        return not (self.files["failed"] or self.quarantined)
