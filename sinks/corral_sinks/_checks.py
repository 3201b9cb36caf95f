"""What every sink refuses before it writes."""

import json
from collections.abc import Mapping, Sequence
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from corral_sinks import JSON, Record, Schema, SinkError, SparseVector, Vector, VectorParams

__all__ = [
    "MAX_MULTIVECTOR_FLOATS",
    "MIN_NORM",
    "check_payload",
    "check_record",
    "fault_of",
    "file_of",
    "source_of",
    "sparse_fault",
    "vector_fault",
]

MIN_NORM = 1e-6
"""L2 norm up to which Qdrant 1.19 leaves a vector as it is under cosine: it has no direction."""

MAX_MULTIVECTOR_FLOATS: Final = 2**20
"""Of one point of Qdrant's, all rows together."""

_MULTIVECTOR_NDIM: Final = 2
_LAST_INDEX: Final = 2**32 - 1


def vector_fault(vector: NDArray[np.float32], size: int, *, directed: bool) -> str | None:
    """Say what is wrong with a vector, or None.

    Args:
        vector: any array.
        size: dimensions it should have.
        directed: whether it needs a direction, as under cosine.
    """
    if vector.shape != (size,):
        return f"has shape {vector.shape}, not ({size},)"
    if not np.isfinite(vector).all():
        return "holds a value that is not finite"
    norm = float(np.linalg.norm(vector))
    if directed and norm <= MIN_NORM:
        return f"has norm {norm:.3g}, and cosine needs more than {MIN_NORM:g}"
    return None


def fault_of(name: str, vector: Vector, schema: Schema) -> str | None:
    """Say why a vector cannot stand under a name of a schema, or None."""
    sparse = isinstance(vector, SparseVector)
    params = (schema.sparse_vectors if sparse else schema.vectors).get(name)
    if params is None:
        kinds = {**schema.vectors, **schema.sparse_vectors}
        return (
            f"is not one of the collection's ({_names(tuple(kinds))})"
            if name not in kinds
            else f"is {'sparse' if sparse else 'dense'}, and the collection's is not"
        )
    if isinstance(vector, SparseVector):
        return sparse_fault(vector)
    return _dense_fault(vector, cast("VectorParams", params))


def _dense_fault(vector: NDArray[np.float32], params: VectorParams) -> str | None:
    directed = params.distance == "cosine"
    if not params.multivector:
        return vector_fault(vector, params.size, directed=directed)
    if vector.ndim != _MULTIVECTOR_NDIM or not len(vector):
        return f"has shape {vector.shape}, not (n_rows, {params.size})"
    if vector.size > MAX_MULTIVECTOR_FLOATS:
        return f"has {vector.size:,} floats, and Qdrant takes {MAX_MULTIVECTOR_FLOATS:,} a point"
    faults = (vector_fault(row, params.size, directed=directed) for row in vector)
    return next(filter(None, faults), None)


def sparse_fault(vector: SparseVector) -> str | None:
    """Say what is wrong with a sparse vector, or None."""
    indices, values = vector.indices, vector.values
    if indices.ndim != 1 or indices.shape != values.shape or not len(indices):
        return f"has {indices.shape} indices and {values.shape} values, not n of both"
    if not np.issubdtype(indices.dtype, np.integer) or indices.min() < 0:
        return "has an index that is no unsigned integer"
    if indices.max() > _LAST_INDEX:
        return f"has the index {indices.max()}; the last one is {_LAST_INDEX}"
    if len(np.unique(indices)) < len(indices):
        return "has an index twice"
    return None if np.isfinite(values).all() else "holds a value that is not finite"


def source_of(payload: Mapping[str, JSON]) -> str | None:
    """`metadata.source` of a payload in LangChain's layout, or None."""
    metadata = payload.get("metadata")
    source = metadata.get("source") if isinstance(metadata, Mapping) else None
    return source if isinstance(source, str) else None


def file_of(payload: Mapping[str, JSON]) -> str | None:
    """`metadata.file` of a payload in LangChain's layout, else its source, or None."""
    metadata = payload.get("metadata")
    file = metadata.get("file") if isinstance(metadata, Mapping) else None
    return file if isinstance(file, str) else source_of(payload)


def check_record(record: Record, schema: Schema) -> int:
    """Refuse a record that does not fit, or tell its payload's size.

    Returns:
        Bytes of the payload as JSON.

    Raises:
        SinkError: a vector or the payload does not fit; names the record and its source.
    """
    for name, vector in record.vectors.items():
        fault = fault_of(name, vector, schema)
        if fault is not None:
            raise SinkError(f"{_whose(record)}: its vector {name!r} {fault}.")
    return check_payload(record.payload, _whose(record))


def check_payload(payload: Mapping[str, JSON], whose: str) -> int:
    """Refuse a payload that is not JSON, or tell its size.

    Args:
        payload: any mapping.
        whose: it is, for the message.

    Returns:
        Bytes of it as JSON.

    Raises:
        SinkError: it holds something that is not JSON, or text that is not Unicode.
    """
    try:
        return len(json.dumps(payload, ensure_ascii=False, allow_nan=False).encode())
    except (TypeError, ValueError) as error:
        raise SinkError(f"{whose}: its payload is not JSON in UTF-8: {error}.") from error


def _whose(record: Record) -> str:
    return f"record {record.id} of {source_of(record.payload) or 'no source'!r}"


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "it has none"
