"""Records in a Parquet file, a row each, for other programs to read.

Columns: `id`; `payload`, as JSON; and one a vector, by its name: a list of floats, of a multivector
a list of such lists, of a sparse vector a struct of `indices` and `values`. The schema stands as
JSON in the file's metadata, under `corral_schema`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from corral_sinks import Record, Schema, SinkError, SparseVector, Vector
from corral_sinks._checks import check_record
from corral_sinks._files import reading, whole_file
from corral_sinks._schemas import record_from, schema_from

try:
    import pyarrow as pa
    from pyarrow import parquet
except ImportError as error:
    raise ImportError(
        "Parquet files need pyarrow, which is not installed: pip install 'corral[parquet]'"
    ) from error

__all__ = ["read_parquet", "write_parquet"]

_SCHEMA_KEY: Final = b"corral_schema"
_ROWS: Final = 1024
"""Of a row group, the most that is held in memory."""


def write_parquet(file: Path, schema: Schema, records: Iterable[Record]) -> int:
    """Write records into a new file, whole or not at all.

    Returns:
        How many there were.

    Raises:
        SinkError: the file cannot be written, or a record does not fit the schema.
    """
    columns = _columns(schema)
    n_records = 0
    rest = iter(records)
    try:
        with (
            whole_file(file) as new,
            parquet.ParquetWriter(new, columns, compression="zstd") as writer,
        ):
            while rows := [_row(record, schema, columns) for record in islice(rest, _ROWS)]:
                writer.write_table(pa.Table.from_pylist(rows, schema=columns))
                n_records += len(rows)
    except (OSError, pa.ArrowException) as error:
        raise SinkError(f"cannot write {file}: {error}.") from error
    return n_records


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
