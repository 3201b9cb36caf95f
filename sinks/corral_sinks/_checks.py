"""What every sink refuses before it writes."""

import json
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from corral_sinks import JSON, Record, Schema, SinkError

__all__ = ["MIN_NORM", "check_payload", "check_record", "source_of", "vector_fault"]

MIN_NORM = 1e-6
"""L2 norm up to which Qdrant 1.19 leaves a vector as it is under cosine: it has no direction."""


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


def source_of(payload: Mapping[str, JSON]) -> str | None:
    """`metadata.source` of a payload in LangChain's layout, or None."""
    metadata = payload.get("metadata")
    source = metadata.get("source") if isinstance(metadata, Mapping) else None
    return source if isinstance(source, str) else None


def check_record(record: Record, schema: Schema) -> int:
    """Refuse a record that does not fit, or tell its payload's size.

    Returns:
        Bytes of the payload as JSON.

    Raises:
        SinkError: a vector or the payload does not fit; names the record and its source.
    """
    for name, vector in record.vectors.items():
        params = schema.vectors.get(name)
        if params is None:
            fault: str | None = f"is not one of the collection's ({_names(tuple(schema.vectors))})"
        else:
            fault = vector_fault(vector, params.size, directed=params.distance == "cosine")
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
