"""Records in a Parquet file, a row each, for other programs to read.

Columns: `id`; `payload`, as JSON; and one a vector, by its name: a list of floats, of a multivector
a list of such lists, of a sparse vector a struct of `indices` and `values`. The schema stands as
JSON in the file's metadata, under `corral_schema`.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from corral_sinks import Record, Schema, SinkError, SparseVector, Vector
from corral_sinks._checks import check_record
from corral_sinks._files import reading, whole_file, writing
from corral_sinks._schemas import record_from, schema_from
from corral_sinks.unfinished import IsStill, Unfinished

try:
    import pyarrow as pa
    from pyarrow import parquet
except ImportError as error:
    raise ImportError(
        "Parquet files need pyarrow, which is not installed: pip install 'corral[parquet]'"
    ) from error

__all__ = ["UnfinishedParquet", "read_parquet"]

_SCHEMA_KEY: Final = b"corral_schema"
_ROWS: Final = 1024
"""Of a row group, the most that is held in memory."""
_COMPRESSION: Final = "zstd"


class UnfinishedParquet(Unfinished):
    """A Parquet file that is being written: its row groups, each a file by itself.

    Up to 1,024 records are in memory; what ends the process without a word takes them along.
    """

    def __init__(self, file: Path, schema: Schema) -> None:
        """Begin with no row group."""
        self._columns = _columns(schema)
        super().__init__(file, schema)
        self._n_groups = 0
        self._rows: list[Mapping[str, Any]] = []

    def resume(self, is_still: IsStill) -> None:
        """Keep all row groups up to the first that is not whole, or not as it was."""
        with writing(self._file, pa.ArrowException):
            while (rows := self._group(self._n_groups, is_still)) is not None:
                self.n_records += len(rows)
                self.last = rows[-1]["id"]
                if len(rows) < _ROWS:
                    self._rows = rows
                    break
                self._n_groups += 1
            for behind in self.folder.path.glob("*.parquet"):
                if int(behind.stem) >= self._n_groups:
                    behind.unlink()

    def _group(self, number: int, is_still: IsStill) -> list[Mapping[str, Any]] | None:
        """Read a row group; None where it is not there, not whole or not as it was."""
        try:
            with parquet.ParquetFile(self._group_file(number)) as opened:
                schema = json.loads((opened.schema_arrow.metadata or {})[_SCHEMA_KEY])
                known = json.loads(self._columns.metadata[_SCHEMA_KEY])
                few = None if opened.metadata.num_rows < _ROWS else ["id", "payload"]
                rows: list[Mapping[str, Any]] = opened.read(few).to_pylist()
        except (OSError, KeyError, ValueError, pa.ArrowException):
            return None
        fits = bool(rows) and schema == known
        same = fits and all(is_still(row["id"], json.loads(row["payload"])) for row in rows)
        return rows if same else None

    def write(self, record: Record) -> None:
        """Add a row."""
        self._rows.append(_row(record, self._schema, self._columns))
        self.n_records += 1
        self.last = record.id
        if len(self._rows) == _ROWS:
            self._write_group()

    def _write_group(self) -> None:
        with writing(self._file, pa.ArrowException):
            table = pa.Table.from_pylist(self._rows, schema=self._columns)
            with whole_file(self._group_file(self._n_groups)) as new:
                parquet.write_table(table, new, compression=_COMPRESSION)
        self._rows = []
        self._n_groups += 1

    def finish(self) -> None:
        """Put the row groups together, and give the file its name."""
        if self._rows:
            self._write_group()
        whole = self.folder.path / "whole"
        names = self._columns.names
        with writing(self._file, pa.ArrowException):
            with (
                whole_file(whole) as new,
                parquet.ParquetWriter(new, self._columns, compression=_COMPRESSION) as writer,
            ):
                for number in range(self._n_groups):
                    with parquet.ParquetFile(self._group_file(number)) as opened:
                        writer.write_table(opened.read().select(names))
            self.folder.give_name(whole)

    def close(self) -> None:
        """Let go of it; what was written stays for the next run, unless that is nothing."""
        try:
            if self._rows:
                with suppress(SinkError):  # the next run reads these records again
                    self._write_group()
        finally:
            self.folder.leave(empty=self.n_records == 0)

    def _group_file(self, number: int) -> Path:
        return self.folder.path / f"{number:08}.parquet"


def _columns(schema: Schema) -> Any:  # noqa: ANN401 - pyarrow is untyped
    fields = [pa.field("id", pa.string(), nullable=False), pa.field("payload", pa.string())]
    for name, params in schema.vectors.items():
        row = pa.list_(pa.float32(), params.size)
        fields.append(pa.field(name, pa.list_(row) if params.multivector else row))
    sparse = pa.struct([("indices", pa.list_(pa.uint32())), ("values", pa.list_(pa.float32()))])
    fields += [pa.field(name, sparse) for name in schema.sparse_vectors]
    return pa.schema(fields, metadata={_SCHEMA_KEY: json.dumps(asdict(schema)).encode()})


def _row(record: Record, schema: Schema, columns: Any) -> Mapping[str, Any]:  # noqa: ANN401 - pyarrow is untyped
    check_record(record, schema)
    payload = json.dumps(record.payload, ensure_ascii=False, allow_nan=False)
    vectors = {name: _numbers(vector) for name, vector in record.vectors.items()}
    return {**dict.fromkeys(columns.names), "id": record.id, "payload": payload, **vectors}


def _numbers(vector: Vector) -> Any:  # noqa: ANN401 - a list, or two
    if isinstance(vector, SparseVector):
        return {"indices": vector.indices.tolist(), "values": vector.values.tolist()}
    return vector.tolist()


@contextmanager
def read_parquet(file: Path) -> Iterator[tuple[Schema, Iterator[Record], int]]:
    """Open a file, and give its schema, its records in their order, and how many there are.

    Raises:
        SinkError: it cannot be read, or was not written by corral.
    """
    with reading(file, pa.ArrowException):
        opened = parquet.ParquetFile(file)
    with opened:
        found = (opened.schema_arrow.metadata or {}).get(_SCHEMA_KEY)
        if found is None:
            raise SinkError(f"{file} was not written by corral: it holds no {_SCHEMA_KEY!r}.")
        with reading(file):
            schema = schema_from(json.loads(found))
        yield schema, _records(opened, file), opened.metadata.num_rows


def _records(opened: Any, file: Path) -> Iterator[Record]:  # noqa: ANN401 - pyarrow is untyped
    with reading(file, pa.ArrowException):
        for batch in opened.iter_batches(_ROWS):
            for row in batch.to_pylist():
                record_id, payload = row.pop("id"), json.loads(row.pop("payload"))
                vectors = {name: _vector(given) for name, given in row.items() if given is not None}
                yield record_from(record_id, vectors, payload)


def _vector(given: Any) -> Vector:  # noqa: ANN401 - lists, or two
    if isinstance(given, dict):
        return SparseVector(
            indices=np.array(given["indices"], dtype=np.uint32),
            values=np.array(given["values"], dtype=np.float32),
        )
    return np.array(given, dtype=np.float32)
