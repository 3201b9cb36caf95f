"""Records into a file of JSON lines: the smallest sink that keeps the law, for export and audit.

A collection is the file `COLLECTION.jsonl`. Its first line is `{"corral_jsonl": 2, "schema": ...}`,
in an exported file with the number of its `records`; each further line is a record, `{"id",
"vectors", "payload"}`, or a deletion, `{"id", "deleted"}`; of several lines for one id the last
holds. `optimize` and `close` leave one line for each record.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from io import BufferedRandom
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from corral_sinks import (
    JSON,
    Record,
    Schema,
    SinkError,
    SinkOptions,
    SparseVector,
    Storage,
    TellBuilding,
    Vector,
)
from corral_sinks._checks import check_payload, check_record, file_of
from corral_sinks._files import collection_name, reading, sync_folder, writing
from corral_sinks._lock import OwnerLock
from corral_sinks._schemas import record_from, schema_from
from corral_sinks.unfinished import IsStill, Unfinished

__all__ = ["JsonlSink", "UnfinishedJsonl", "read_jsonl"]

_VERSION = 2
_MOST_RECORDS = 10**15
"""Holds the place of their number in the first line until it is known."""


class JsonlSink:
    """One file of JSON lines as a sink; it keeps ids and offsets in memory, and reads the rest.

    Args:
        options: a path to a folder, and the collection; no url.

    Raises:
        SinkError: there is no path, or a url too.
    """

    def __init__(self, options: SinkOptions) -> None:
        """Keep the options; nothing is opened yet."""
        if options.tenant is not None:
            raise SinkError(
                "a jsonl sink does not tell tenants apart; take another file for each, or Qdrant."
            )
        if options.url is not None or options.path in {None, ":memory:"}:
            raise SinkError("a jsonl sink needs --path, a folder, and takes no --url.")
        folder = Path(str(options.path))
        self._file = folder / f"{collection_name(options.collection)}.jsonl"
        self._lock_file = folder / f".{self._file.name}.lock"
        self._lock: OwnerLock | None = None
        self._handle: BufferedRandom | None = None
        self._schema: Schema | None = None
        self._at: dict[str, tuple[int, str]] = {}
        self._ids: dict[str, set[str]] = {}
        self._stale = 0
        self._closed = False

    # Opening

    def schema(self) -> Schema | None:
        """What the file's first line says, or None where there is no file."""
        with self._mapped():
            self._open()
        return self._schema

    def _open(self) -> None:
        if self._closed:
            raise SinkError(f"the sink for {self._file} is closed.")
        if self._handle is None and self._file.exists():
            self._take_lock()
            handle = self._file.open("r+b")
            try:
                self._load(handle)
            except BaseException:
                handle.close()
                raise
            self._handle = handle

    def _take_lock(self) -> None:
        if self._lock is None:
            self._lock = OwnerLock(self._lock_file, f"the collection in {self._file}")

    def _load(self, handle: BufferedRandom) -> None:
        """Read all lines once; cut off a last one that a crash left unfinished."""
        self._at, self._ids, self._stale = {}, {}, 0
        self._schema = _read_header(handle.readline(), self._file)
        at = handle.tell()
        for line in handle:
            if not line.endswith(b"\n"):
                handle.truncate(at)
                break
            self._note(json.loads(line), at)
            at += len(line)

    def _note(self, entry: Mapping[str, Any], at: int) -> None:
        """Remember where a record stands, or that it is gone."""
        point = entry["id"]
        _, source = self._at.pop(point, (0, None))
        if source is not None:
            self._ids[source].discard(point)
            self._stale += 1
        if "deleted" in entry:
            self._stale += 1
        else:
            source = file_of(entry["payload"]) or ""
            self._at[point] = at, source
            self._ids.setdefault(source, set()).add(point)

    def _opened(self) -> tuple[BufferedRandom, Schema]:
        self._open()
        if self._handle is None or self._schema is None:
            raise SinkError(f"there is no collection in {self._file} yet.")
        return self._handle, self._schema

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        """Say what the file system or the file's content did not allow."""
        try:
            yield
        except OSError as error:
            raise SinkError(f"cannot use {self._file}: {error}.") from error
        except (KeyError, TypeError, ValueError) as error:
            raise SinkError(f"{self._file} is damaged or not corral's: {error!r}.") from error

    # Writing

    def create(self, schema: Schema) -> None:
        """Make the file; it must not exist.

        Raises:
            SinkError: it exists, or vectors are to be kept in another way than as they are.
        """
        if any(params.storage != Storage() for params in schema.vectors.values()):
            raise SinkError(
                "a jsonl sink keeps vectors as they are: it knows no datatype, no quantization and "
                "no disk. Leave them out, or take the sink qdrant."
            )
        with self._mapped():
            self._open()
            if self._handle is not None:
                raise SinkError(f"there is a collection in {self._file} already.")
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            self._rewrite(schema, ())

    def index(self, field: str, kind: str) -> None:
        """Take note of an index in the file's first line; reading goes by no index."""
        with self._mapped():
            _, schema = self._opened()
            if field not in schema.indexes:
                noted = replace(schema, indexes={**schema.indexes, field: kind})
                self._rewrite(noted, list(self._at))

    def upsert(self, records: Sequence[Record]) -> None:
        """Append records; they are the file system's when this returns."""
        with self._mapped():
            _, schema = self._opened()
        for record in records:
            check_record(record, schema)
        self._append([_entry(record) for record in records])

    def set_payload(self, payloads: Mapping[str, Mapping[str, JSON]]) -> None:
        """Replace payloads of stored records by id, whole, leaving the vectors alone."""
        for point, payload in payloads.items():
            check_payload(payload, f"the new payload of record {point}")
        with self._mapped():
            self._opened()
            unknown = payloads.keys() - self._at.keys()
            if unknown:
                raise SinkError(f"{self._file} holds no record {min(unknown)}.")
            entries = [self._read(point) | {"payload": new} for point, new in payloads.items()]
        self._append(entries)

    def delete(self, ids: Iterable[str]) -> None:
        """Delete by id; unknown ids are ignored."""
        with self._mapped():
            self._opened()
        self._append([{"id": point, "deleted": True} for point in ids if point in self._at])

    def _append(self, entries: Iterable[Mapping[str, Any]]) -> None:
        with self._mapped():
            handle, _ = self._opened()
            lines = [(entry, _line(entry)) for entry in entries]
            at = handle.seek(0, os.SEEK_END)
            try:
                handle.write(b"".join(line for _, line in lines))
                handle.flush()
            except OSError:
                handle.truncate(at)
                raise
            for entry, line in lines:
                self._note(entry, at)
                at += len(line)

    # Reading

    def _read(self, point: str) -> dict[str, Any]:
        handle, _ = self._opened()
        handle.seek(self._at[point][0])
        entry: dict[str, Any] = json.loads(handle.readline())
        return entry

    def stored(self, source: str) -> Mapping[str, Mapping[str, JSON]]:
        """Payload's `metadata` by id, of all records of one file."""
        with self._mapped():
            self._opened()
            ids = self._ids.get(source, ())
            return {point: self._read(point)["payload"]["metadata"] for point in ids}

    def sources(self) -> Iterator[str]:
        """Every file of the collection's records, once."""
        with self._mapped():
            self._opened()
        return iter([source for source, ids in self._ids.items() if source and ids])

    def count(self) -> int:
        """Exact number of records."""
        with self._mapped():
            self._opened()
        return len(self._at)

    # Finishing

    def flush(self) -> None:
        """Make all that was written safe against power loss."""
        with self._mapped():
            handle, _ = self._opened()
            os.fsync(handle.fileno())

    def defer_indexing(self) -> None:
        """Nothing: there is no index."""

    def optimize(self, tell: TellBuilding | None = None) -> None:  # noqa: ARG002 - it is done at once
        """Leave one line for each record, in a new file that takes the old one's place."""
        with self._mapped():
            _, schema = self._opened()
            if self._stale:
                self._rewrite(schema, list(self._at))

    def _rewrite(self, schema: Schema, ids: Sequence[str]) -> None:
        beside = self._file.with_name(f".{self._file.name}.new")
        with beside.open("wb") as new:
            new.write(_line(_header(schema)))
            for point in ids:
                new.write(_line(self._read(point)))
            new.flush()
            os.fsync(new.fileno())
        if self._handle is not None:
            self._handle.close()
            self._handle = None
        beside.replace(self._file)
        sync_folder(self._file.parent)
        self._open()

    def close(self) -> None:
        """Tidy the file and let go of it; twice is harmless."""
        try:
            if self._handle is not None:
                self.optimize()
        finally:
            self._closed = True
            if self._handle is not None:
                self._handle.close()
                self._handle = None
            if self._lock is not None:
                self._lock.release()


class UnfinishedJsonl(Unfinished):
    """A file of the sink's form that is being written: its lines, as far as they came.

    A line is the file system's when `write` returns.
    """

    def __init__(self, file: Path, schema: Schema) -> None:
        """Open what is there."""
        self._head = _line({**_header(schema), "records": _MOST_RECORDS})
        super().__init__(file, schema)
        with writing(file):
            self._lines = self.folder.path / "lines"
            self._lines.touch()
            self._handle = self._lines.open("r+b")

    def resume(self, is_still: IsStill) -> None:
        """Keep all lines up to the first that is not whole, or not as it was."""
        with writing(self._file):
            at = len(self._head)
            if _is_head(self._handle.readline(), self._head):
                for line in self._handle:
                    entry = _whole_entry(line)
                    if entry is None or not is_still(entry["id"], entry["payload"]):
                        break
                    at += len(line)
                    self.n_records += 1
                    self.last = entry["id"]
            self._handle.seek(0)
            self._handle.write(self._head)
            self._handle.truncate(at)
            self._handle.seek(at)

    def write(self, record: Record) -> None:
        """Add a line."""
        check_record(record, self._schema)
        with writing(self._file):
            self._handle.write(_line(_entry(record)))
            self._handle.flush()
        self.n_records += 1
        self.last = record.id

    def finish(self) -> None:
        """Say in the first line how many there are, and give the file its name."""
        known = _line({**_header(self._schema), "records": self.n_records})
        with writing(self._file):
            self._handle.seek(0)
            self._handle.write(known[:-1].ljust(len(self._head) - 1) + b"\n")
            self._handle.flush()
            os.fsync(self._handle.fileno())
            self._handle.close()
            self.folder.give_name(self._lines)

    def close(self) -> None:
        """Let go of it; what was written stays for the next run, unless that is nothing."""
        with suppress(OSError):  # of a line that the disk did not take: the next run cuts it
            self._handle.close()
        self.folder.leave(empty=self.n_records == 0)


def _is_head(line: bytes, expected: bytes) -> bool:
    """Whether a first line says the same, but for the number of records."""
    try:
        heads = [{**json.loads(one), "records": 0} for one in (line, expected)]
    except (TypeError, ValueError):
        return False
    return len(line) == len(expected) and heads[0] == heads[1]


def _whole_entry(line: bytes) -> dict[str, Any] | None:
    """Read a record's line; None where a run that was broken off left less than all of it."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    whole = line.endswith(b"\n") and isinstance(entry, dict) and {"id", "payload"} <= set(entry)
    return entry if whole else None


@contextmanager
def read_jsonl(file: Path) -> Iterator[tuple[Schema, Iterator[Record], int]]:
    """Open a file of the sink's form, and give its schema and its records in their order.

    The third is how many there are, if that is known; 0 where the sink wrote the file.

    Raises:
        SinkError: it cannot be read, is not of that form, or lacks its end.
    """
    with reading(file):
        lines = file.open("rb")
    with lines:
        with reading(file):
            head = lines.readline()
            schema = _read_header(head, file)
            least = int(json.loads(head).get("records", 0))
        yield schema, _records(lines, file, least=least), least


def _records(lines: BinaryIO, file: Path, *, least: int) -> Iterator[Record]:
    with reading(file):
        yield from map(_record, map(json.loads, _last_lines(lines, file, least=least)))


def _last_lines(lines: BinaryIO, file: Path, *, least: int) -> Iterator[bytes]:
    """Yield the line that holds for each id: the last one, unless it is a deletion."""
    at: dict[str, int] = {}
    offset, n_lines = lines.tell(), 0
    for line in lines:
        n_lines += 1
        entry = json.loads(line)
        at.pop(entry["id"], None)
        if "deleted" not in entry:
            at[entry["id"]] = offset
        offset += len(line)
    if n_lines < least:
        raise SinkError(f"{file} ends after {n_lines:,} of {least:,} records: it is not whole.")
    for offset in at.values():
        lines.seek(offset)
        yield lines.readline()


def _record(entry: Mapping[str, Any]) -> Record:
    vectors = {name: _vector(numbers) for name, numbers in entry["vectors"].items()}
    return record_from(entry["id"], vectors, entry["payload"])


def _vector(numbers: Any) -> Vector:  # noqa: ANN401 - lists, or an object of two
    if isinstance(numbers, dict):
        return SparseVector(
            indices=np.array(numbers["indices"], dtype=np.uint32),
            values=np.array(numbers["values"], dtype=np.float32),
        )
    return np.array(numbers, dtype=np.float32)


def _header(schema: Schema) -> Mapping[str, Any]:
    return {"corral_jsonl": _VERSION, "schema": asdict(schema)}


def _line(entry: Mapping[str, Any]) -> bytes:
    return json.dumps(entry, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _entry(record: Record) -> dict[str, Any]:
    return {
        "id": record.id,
        "vectors": {name: _numbers(vector) for name, vector in sorted(record.vectors.items())},
        "payload": record.payload,
    }


def _numbers(vector: Vector) -> JSON:
    """A sparse vector is an object of `indices` and `values`, any other one lists of numbers."""
    if isinstance(vector, SparseVector):
        return {"indices": vector.indices.tolist(), "values": vector.values.tolist()}
    numbers: JSON = vector.tolist()
    return numbers


def _read_header(line: bytes, file: Path) -> Schema:
    header = json.loads(line)
    if header["corral_jsonl"] != _VERSION:
        raise SinkError(
            f"{file} has version {header['corral_jsonl']!r}; this corral reads {_VERSION}."
        )
    return schema_from(header["schema"])
