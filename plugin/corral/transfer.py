"""A whole collection elsewhere: from a folder to a server and back, into a file and out of it.

Vectors, payloads, ids, schema and fingerprint stay as they are, and nothing is embedded.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Final, Protocol

from corral.errors import CollectionError, IncompleteRunError, UsageError
from corral_sinks import Record, Schema, SinkError, SinkOptions, Tell, without_storage
from corral_sinks.jsonl import read_jsonl, write_jsonl
from corral_sinks.qdrant import QdrantSink

__all__ = ["FORMATS", "Moved", "copy", "export", "restore"]

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


class _Format(Protocol):
    """A form of file."""

    def write(self, file: Path, schema: Schema, records: Iterable[Record]) -> int: ...

    def read(self, file: Path) -> AbstractContextManager[tuple[Schema, Iterator[Record], int]]: ...


class _Jsonl:
    write = staticmethod(write_jsonl)
    read = staticmethod(read_jsonl)


class _Parquet:
    """Needs pyarrow, which is imported when it is used."""

    @staticmethod
    def write(file: Path, schema: Schema, records: Iterable[Record]) -> int:
        from corral_sinks.parquet import write_parquet  # noqa: PLC0415 - an extra

        return write_parquet(file, schema, records)

    @staticmethod
    def read(file: Path) -> AbstractContextManager[tuple[Schema, Iterator[Record], int]]:
        from corral_sinks.parquet import read_parquet  # noqa: PLC0415 - an extra

        return read_parquet(file)


_FORMATS: Final[dict[str, _Format]] = {".jsonl": _Jsonl(), ".parquet": _Parquet()}
FORMATS: Final = tuple(_FORMATS)
"""Ends of files' names, which say their form."""


def copy(
    source: SinkOptions, target: SinkOptions, *, tell: Tell, tell_indexed: Tell | None = None
) -> Moved:
    """Bring a collection to another place, or bring it up to date there.

    What the target has already with the same payload is not sent again, so that a copy that was
    broken off goes on where it was.

    Args:
        source: where the collection is; with a tenant, its records alone.
        target: where it is to be.
        tell: is told how many records are there.
        tell_indexed: is told afterwards how many are indexed.

    Raises:
        CollectionError: there is no such collection, or another one is in the target.
        IncompleteRunError: a store failed on the way; what was acknowledged stays.
        SinkError: a store cannot be used.
    """
    with closing(QdrantSink(source)) as there, closing(QdrantSink(target)) as here:
        schema = _schema_of(there, source)
        total = there.count()
        return _fill(here, target, schema, _all_of(there), total, tell, tell_indexed)


def export(source: SinkOptions, file: Path, *, tell: Tell) -> int:
    """Write a collection into a new file, of the form that its name ends in, whole or not at all.

    Returns:
        Records that it holds.

    Raises:
        UsageError: the form is unknown, or there is such a file.
        CollectionError: there is no such collection.
        SinkError: the store failed, or the file cannot be written.
        ImportError: pyarrow is not installed, for Parquet.
    """
    form = _form(file)
    if file.exists():
        raise UsageError(f"{file} is there already; delete it, or give another name")
    with closing(QdrantSink(source)) as there:
        schema = _schema_of(there, source)
        total = there.count()
        return form.write(file, schema, _told(_all_of(there), total, tell))


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
    held = there.count()
    if n_records != held:
        raise SinkError(
            f"{n_records:,} records were read of a collection that has {held:,}: another run "
            "writes to it. Wait for its end, and run the same command again."
        )


def _told(records: Iterator[Record], total: int, tell: Tell) -> Iterator[Record]:
    for number, record in enumerate(records, 1):
        yield record
        tell(number, total)


def restore(
    file: Path, target: SinkOptions, *, tell: Tell, tell_indexed: Tell | None = None
) -> Moved:
    """Bring a file that `export` wrote into a collection; resumes as `copy` does.

    Args:
        file: of the form that its name ends in.
        target: where the collection is to be; with a tenant, its records alone are brought.
        tell: is told how many records are there.
        tell_indexed: is told afterwards how many are indexed.

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
        return _fill(here, target, schema, wanted, total, tell, tell_indexed)


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
    tell_indexed: Tell | None,
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
        here.optimize(tell_indexed)
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
