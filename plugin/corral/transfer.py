"""A whole collection elsewhere: from a folder to a server and back, into a file and out of it.

Vectors, payloads, ids, schema and fingerprint stay as they are, and nothing is embedded. What was
broken off goes on where it was.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Final, Protocol

from corral.errors import CollectionError, IncompleteRunError, UsageError
from corral_sinks import (
    JSON,
    Record,
    Schema,
    SinkError,
    SinkOptions,
    Tell,
    TellBuilding,
    without_storage,
)
from corral_sinks.jsonl import UnfinishedJsonl, read_jsonl
from corral_sinks.qdrant import QdrantSink
from corral_sinks.unfinished import Unfinished

__all__ = ["FORMATS", "Exported", "Moved", "copy", "export", "restore"]

log = logging.getLogger(__name__)

_BATCH: Final = 256


@dataclass(frozen=True, slots=True)
class Moved:
    """What a transfer came to.

    Args:
        records: that were to be moved.
        written: that were written now.
        present: that were there already, with the same payload.
        points: that the target has in the end.
    """

    records: int
    written: int
    present: int
    points: int


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export came to.

    Args:
        records: that the file holds.
        resumed: of them those that a run before this one, which was broken off, had written.
    """

    records: int
    resumed: int


class _Format(Protocol):
    """A form of file."""

    def unfinished(self, file: Path, schema: Schema) -> Unfinished: ...

    def read(self, file: Path) -> AbstractContextManager[tuple[Schema, Iterator[Record], int]]: ...


class _Jsonl:
    unfinished = staticmethod(UnfinishedJsonl)
    read = staticmethod(read_jsonl)


class _Parquet:
    """Needs pyarrow, which is imported when it is used."""

    @staticmethod
    def unfinished(file: Path, schema: Schema) -> Unfinished:
        from corral_sinks.parquet import UnfinishedParquet  # noqa: PLC0415 - an extra

        return UnfinishedParquet(file, schema)

    @staticmethod
    def read(file: Path) -> AbstractContextManager[tuple[Schema, Iterator[Record], int]]:
        from corral_sinks.parquet import read_parquet  # noqa: PLC0415 - an extra

        return read_parquet(file)


_FORMATS: Final[dict[str, _Format]] = {".jsonl": _Jsonl(), ".parquet": _Parquet()}
FORMATS: Final = tuple(_FORMATS)
"""Ends of files' names, which say their form."""


def copy(
    source: SinkOptions,
    target: SinkOptions,
    *,
    tell: Tell,
    tell_building: TellBuilding | None = None,
) -> Moved:
    """Bring a collection to another place, or bring it up to date there.

    What the target has already with the same payload is not sent again, so that a copy that was
    broken off goes on where it was.

    Args:
        source: where the collection is; with a tenant, its records alone.
        target: where it is to be.
        tell: is told how many records are there.
        tell_building: is told afterwards how far the indexes are.

    Raises:
        CollectionError: there is no such collection, or another one is in the target.
        IncompleteRunError: a store failed on the way; what was acknowledged stays.
        SinkError: a store cannot be used.
    """
    with closing(QdrantSink(source)) as there, closing(QdrantSink(target)) as here:
        schema = _schema_of(there, source)
        total = there.count()
        return _fill(here, target, schema, _all_of(there), total, tell, tell_building)


def export(source: SinkOptions, file: Path, *, tell: Tell) -> Exported:
    """Write a collection into a new file, of the form that its name ends in.

    The file has its name once it is whole. Until then it stands in a hidden folder beside it; an
    export that was broken off goes on from what is there, up to the first record that is not in the
    collection any more, or has another payload now.

    Args:
        source: where the collection is; with a tenant, its records alone.
        file: must not be there.
        tell: is told how many records are written.

    Raises:
        UsageError: the form is unknown, or there is such a file.
        CollectionError: there is no such collection.
        IncompleteRunError: the store failed on the way, the file could not be written on, or the
            collection changed meanwhile; what was written stays for the next run.
        SinkError: the store cannot be used, or nothing can be written.
        ImportError: pyarrow is not installed, for Parquet.
    """
    form = _form(file)
    if file.exists():
        raise UsageError(f"{file} is there already; delete it, or give another name")
    with closing(QdrantSink(source)) as there:
        schema = _schema_of(there, source)
        with closing(form.unfinished(file, schema)) as part:
            resumed = _resume(part, there)
            try:
                _write_rest(part, there, tell)
            except SinkError as error:
                if not part.n_records:
                    raise
                raise IncompleteRunError(
                    f"{error}\n{part.n_records:,} records are in {part.folder.path}; the same "
                    "command goes on from there."
                ) from error
    return Exported(records=part.n_records, resumed=resumed)


def _resume(part: Unfinished, there: QdrantSink) -> int:
    """Take over what an earlier run left, and tell what could not be; return how many records."""
    present = there.records(vectors=False)
    changed = False

    def is_still(record_id: str, payload: Mapping[str, JSON]) -> bool:
        nonlocal changed
        found = next(present, None)
        changed = found is None or (found.id, found.payload) != (record_id, payload)
        return not changed

    part.resume(is_still)
    if changed:
        log.warning(
            "the collection has changed since the export was broken off: of what is in %s the "
            "first %s records are kept, and the others read again",
            *(part.folder.path, f"{part.n_records:,}"),
        )
    elif part.folder.was_there and not part.n_records:
        log.warning(
            "what is in %s is damaged or of another collection: the export begins anew",
            part.folder.path,
        )
    return part.n_records


def _write_rest(part: Unfinished, there: QdrantSink, tell: Tell) -> None:
    """Write what is not there yet, see that none was left out, and let the file have its name."""
    total = there.count()
    for record in there.records(after=part.last):
        part.write(record)
        tell(part.n_records, total)
    _require_all(part.n_records, there)
    part.finish()


def _schema_of(there: QdrantSink, source: SinkOptions) -> Schema:
    """Give the schema of a collection that is to be read.

    Raises:
        CollectionError: there is none; or a tenant is named and it knows none, or not that one.
    """
    place = f"collection {source.collection!r} at {source.url or source.path}"
    schema = there.schema()
    if schema is None:
        raise CollectionError(f"there is no {place}")
    _require_tenants(schema, source.tenant, place)
    if source.tenant is not None and not there.count():
        raise CollectionError(f"{place} holds nothing of the tenant {source.tenant!r}")
    return schema


def _require_tenants(schema: Schema, tenant: str | None, place: str) -> None:
    if tenant is not None and not schema.tenants:
        raise CollectionError(
            f"the records of {place} belong to no tenants, so there are none of {tenant!r}; leave "
            "the tenant out"
        )


def _tenant_of(record: Record) -> object:
    metadata = record.payload.get("metadata")
    return metadata.get("tenant") if isinstance(metadata, Mapping) else None


def _all_of(there: QdrantSink) -> Iterator[Record]:
    """Yield a collection's records, and see in the end that none was left out.

    Raises:
        SinkError: there are more or fewer than were read.
    """
    n_records = 0
    for record in there.records():
        yield record
        n_records += 1
    _require_all(n_records, there)


def _require_all(n_records: int, there: QdrantSink) -> None:
    held = there.count()
    if n_records != held:
        raise SinkError(
            f"{n_records:,} records were read of a collection that has {held:,}: another run "
            "writes to it. Wait for its end, and run the same command again."
        )


def restore(
    file: Path, target: SinkOptions, *, tell: Tell, tell_building: TellBuilding | None = None
) -> Moved:
    """Bring a file that `export` wrote into a collection; resumes as `copy` does.

    Args:
        file: of the form that its name ends in.
        target: where the collection is to be; with a tenant, its records alone are brought.
        tell: is told how many records are there.
        tell_building: is told afterwards how far the indexes are.

    Raises:
        UsageError: the form is unknown.
        CollectionError: another collection is in the target, or the file knows no tenants.
        IncompleteRunError: the store failed on the way, or the file is damaged; what was
            acknowledged stays.
        SinkError: the store cannot be used, or the file cannot be read.
        ImportError: pyarrow is not installed, for Parquet.
    """
    form = _form(file)
    with closing(QdrantSink(target)) as here, form.read(file) as (schema, records, total):
        _require_tenants(schema, target.tenant, str(file))
        wanted = (
            record
            for record in records
            if target.tenant is None or _tenant_of(record) == target.tenant
        )
        return _fill(here, target, schema, wanted, total, tell, tell_building)


def _form(file: Path) -> _Format:
    form = _FORMATS.get(file.suffix.lower())
    if form is None:
        raise UsageError(f"{file} is of no known form; its name must end in {', '.join(FORMATS)}")
    return form


def _fill(
    here: QdrantSink,
    target: SinkOptions,
    schema: Schema,
    records: Iterator[Record],
    total: int,
    tell: Tell,
    tell_building: TellBuilding | None,
) -> Moved:
    """Make the collection where there is none, write what it lacks, and count."""
    batches = iter(lambda: list(islice(records, _BATCH)), [])
    first = next(batches, [])  # of a file that cannot be read, no collection is made
    if target.tenant is not None and not first:
        raise CollectionError(f"there is nothing of the tenant {target.tenant!r} to bring")
    _settle(here, target, schema)
    done = written = 0
    try:
        for batch in chain([first] if first else [], batches):
            held = here.payloads([record.id for record in batch])
            missing = [record for record in batch if held.get(record.id) != record.payload]
            here.upsert(missing)
            done += len(batch)
            written += len(missing)
            tell(done, max(done, total))
        here.flush()
        here.optimize(tell_building)
        points = here.count()
    except SinkError as error:
        raise IncompleteRunError(
            f"{error}\n{done:,} records are there; once that is mended, the same command goes on "
            "from there."
        ) from error
    if points < done:
        raise IncompleteRunError(
            f"{done:,} records were acknowledged, and collection {target.collection!r} has "
            f"{points:,}; run the same command again"
        )
    return Moved(records=done, written=written, present=done - written, points=points)


def _settle(here: QdrantSink, target: SinkOptions, schema: Schema) -> None:
    existing = here.schema()
    if existing is None:
        here.create(schema)
        here.defer_indexing()
        return
    ours, theirs = (
        (without_storage(one), one.sparse_vectors, one.metadata) for one in (existing, schema)
    )
    if ours != theirs:
        raise CollectionError(
            f"there is another collection {target.collection!r} at {target.url or target.path}: "
            "its vectors or its fingerprint differ. Delete it, or give another name with --to"
        )
