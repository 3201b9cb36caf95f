"""A collection of other settings: built beside the one in force, which it then replaces.

The collection stands under its name, a dash and a key of its settings, and the name is an alias
for it. Whatever ends the run, the old one is in force until all of the new one is stored and
counted, and the next run goes on with the new one where it was.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

from corral.errors import CollectionError, UsageError
from corral.fingerprint import Fingerprint
from corral.report import Report
from corral_sinks import Schema, Sink, SinkOptions

__all__ = ["Replacement"]

log = logging.getLogger(__name__)


@runtime_checkable
class _Replaceable(Sink, Protocol):
    """A sink whose collection can be replaced by one beside it; as QdrantSink."""

    @property
    def is_plain(self) -> bool: ...

    @property
    def can_set_apart(self) -> bool: ...

    def beside(self, key: str) -> Sink: ...

    def switch(self, key: str, *, old_key: str) -> None: ...

    def drop_replaced(self) -> list[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """What a run with `reindex` writes to, and what it replaces.

    Args:
        old: the collection in force.
        sink: to write to: the one beside it, or `old` where that is of these settings already.
        collection: its name.
        key: of this run's settings.
        old_key: of the settings in force; None where there is no collection, or it is of this
            run's.
    """

    old: _Replaceable
    sink: Sink
    collection: str
    key: str
    old_key: str | None

    @classmethod
    def of(
        cls, sink: Sink, existing: Schema | None, target: SinkOptions, wanted: Fingerprint
    ) -> Self:
        """Look at what there is.

        Raises:
            UsageError: this kind of store cannot do it, or the collection has tenants.
            CollectionError: the collection was not written by corral.
        """
        if not isinstance(sink, _Replaceable):
            raise UsageError("--reindex needs a store that has aliases, as qdrant; this has none")
        if target.tenant is not None:
            raise UsageError(
                "--reindex builds a whole collection anew, and --tenant names one of several "
                "tenants; take another --collection for the new settings"
            )
        name, old_key = target.collection, None
        if existing is not None:
            held = Fingerprint.from_metadata(existing.metadata, collection=name)
            held.require_tenant(None, collection=name)
            old_key = held.key if held.differences(wanted) else None
        same = old_key is None and existing is not None
        return cls(
            old=sink,
            sink=sink if same else sink.beside(wanted.key),
            collection=name,
            key=wanted.key,
            old_key=old_key,
        )

    def require_place(self, *, drop_old: bool) -> None:
        """Refuse, before anything is read, what could not be put in force in the end.

        Raises:
            CollectionError: a server's collection has the very name, and may not be dropped.
        """
        if self.old_key and self.old.is_plain and not self.old.can_set_apart and not drop_old:
            raise CollectionError(
                f"{self.collection!r} is a collection and no alias, and a server lets no alias "
                "have a collection's name: the new one can take its place only where the old is "
                "deleted. Add --drop-old, which does so once the new one is whole; or take another "
                "--collection, which will be an alias"
            )

    def finish(self, report: Report, *, gone: Collection[str], drop_old: bool) -> None:
        """Put the new collection in force if it is whole.

        Args:
            report: of the run; is told what was done.
            gone: sources that the new collection need not have.
            drop_old: delete what was replaced.
        """
        if not report.all_stored:
            log.warning("%s stays as it was: the new collection is not whole", self.collection)
            return
        if self.sink is not self.old:
            if not self._is_whole(report, gone):
                return
            self.old.switch(self.key, old_key=self.old_key or self.key)
            report.switched_to = f"{self.collection}-{self.key}"
        if drop_old:
            report.dropped = self.old.drop_replaced()

    def _is_whole(self, report: Report, gone: Collection[str]) -> bool:
        expected = sum(entry.chunks for entry in report.entries)
        found = self.sink.count()
        if found != expected:
            report.missing += max(0, expected - found)
            report.surplus += max(0, found - expected)
            log.warning(
                "%s stays as it was: the new collection has %d points, and the files %d chunks; "
                "where files are gone since it was begun, add --prune",
                self.collection,
                found,
                expected,
            )
            return False
        old = [] if self.old_key is None else self.old.sources()
        lost = sorted(set(old) - set(self.sink.sources()) - set(gone))
        report.lost = len(lost)
        if lost:
            log.warning(
                "%s stays as it was: %d sources, such as %r, are only in it; give all PATHS that "
                "it was made from, and where their files are gone, add --prune",
                self.collection,
                len(lost),
                lost[0],
            )
        return not lost
