"""A schema and records from their JSON."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from corral_sinks import Record, Schema, SparseParams, Storage, Vector, VectorParams

__all__ = ["record_from", "schema_from"]


def schema_from(given: Mapping[str, Any]) -> Schema:
    """Read what `dataclasses.asdict` gave of a schema.

    Raises:
        KeyError: a field is missing.
        TypeError: a field is unknown, or not of its kind.
        ValueError: a size is out of range.
    """
    dense, sparse = given["vectors"], given["sparse_vectors"]
    if any(params["size"] < 1 for params in dense.values()):
        raise ValueError("a vector has at least one dimension")
    return Schema(
        vectors={
            name: VectorParams(**{**params, "storage": Storage(**params["storage"])})
            for name, params in dense.items()
        },
        sparse_vectors={name: SparseParams(**params) for name, params in sparse.items()},
        metadata=dict(given["metadata"]),
        indexes=dict(given["indexes"]),
        tenants=given["tenants"],
        payload_on_disk=given["payload_on_disk"],
    )


def record_from(record_id: Any, vectors: Mapping[str, Vector], payload: Any) -> Record:  # noqa: ANN401 - any JSON
    """Make a record of what a file says of it.

    Raises:
        TypeError: the id is no text, or the payload no object.
        ValueError: the id is no UUID.
    """
    if not isinstance(record_id, str) or not isinstance(payload, dict):
        raise TypeError(f"record {record_id!r:.80} has no UUID, or no object for a payload")
    return Record(id=str(UUID(record_id)), vectors=vectors, payload=payload)
