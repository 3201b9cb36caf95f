"""A whole collection elsewhere: from a folder to a server and back, into a file and out of it.

Vectors, payloads, ids, schema and fingerprint stay as they are, and nothing is embedded.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from itertools import islice
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

    def read(self, file: Path) -> AbstractContextManager[tuple[Schema, Iterator[Record]]]: ...


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
    def read(file: Path) -> AbstractContextManager[tuple[Schema, Iterator[Record]]]:
        from corral_sinks.parquet import read_parquet  # noqa: PLC0415 - an extra

        return read_parquet(file)


_FORMATS: Final[dict[str, _Format]] = {".jsonl": _Jsonl(), ".parquet": _Parquet()}
FORMATS: Final = tuple(_FORMATS)
"""Ends of files' names, which say their form."""


def copy(source: SinkOptions, target: SinkOptions, *, tell: Tell) -> Moved:
    """Bring a collection to another place, or bring it up to date there.

    What the target has already with the same payload is not sent again, so that a copy that was
    broken off goes on where it was.

    Args:
        source: where the collection is; with a tenant, its records alone.
        target: where it is to be.
        tell: is told how far it is.

    Raises:
        CollectionError: there is no such collection, or another one is in the target.
        IncompleteRunError: a store failed on the way; what was acknowledged stays.
        SinkError: a store cannot be used.
    """
    with closing(QdrantSink(source)) as there, closing(QdrantSink(target)) as here:
        schema = there.schema()
        if schema is None:
            raise CollectionError(
                f"there is no collection {source.collection!r} at {source.url or source.path}"
            )
        return _fill(here, target, schema, there.records(), there.count(), tell)


def export(source: SinkOptions, file: Path, *, tell: Tell) -> int:
    """Write a collection into a new file, of the form that its name ends in.

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
        schema = there.schema()
        if schema is None:
            raise CollectionError(
                f"there is no collection {source.collection!r} at {source.url or source.path}"
            )
        total = there.count()
        return form.write(file, schema, _told(there.records(), total, tell))


def _told(records: Iterator[Record], total: int, tell: Tell) -> Iterator[Record]:
    for number, record in enumerate(records, 1):
        yield record
        tell(number, total)


def restore(file: Path, target: SinkOptions, *, tell: Tell) -> Moved:
    """Bring a file that `export` wrote into a collection; resumes as `copy` does.

    Raises:
        UsageError: the form is unknown.
        CollectionError: another collection is in the target.
        IncompleteRunError: the store failed on the way; what was acknowledged stays.
        SinkError: the store cannot be used, or the file cannot be read.
        ImportError: pyarrow is not installed, for Parquet.
    """
    form = _form(file)
    with closing(QdrantSink(target)) as here, form.read(file) as (schema, records):
        return _fill(here, target, schema, records, None, tell)


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
    total: int | None,
    tell: Tell,
) -> Moved:
    """Make the collection where there is none, write what it lacks, and count."""
    _settle(here, target, schema)
    done = written = 0
    try:
        while batch := list(islice(records, _BATCH)):
            held = here.payloads([record.id for record in batch])
            missing = [record for record in batch if held.get(record.id) != record.payload]
            here.upsert(missing)
            done += len(batch)
            written += len(missing)
            tell(done, done if total is None else total)
        here.flush()
        here.optimize(tell)
        points = here.count()
    except SinkError as error:
        raise IncompleteRunError(
            f"{error}\n{done:,} records are there; run the same command again to go on from there."
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
