"""A schema from its JSON."""

from collections.abc import Mapping
from typing import Any

from corral_sinks import Schema, SparseParams, Storage, VectorParams

__all__ = ["schema_from"]


def schema_from(given: Mapping[str, Any]) -> Schema:
    """Read what `dataclasses.asdict` gave of a schema.

    Raises:
        KeyError: a field is missing.
        TypeError: a field is unknown, or not of its kind.
    """
    dense, sparse = given["vectors"], given["sparse_vectors"]
    return Schema(
        vectors={
            name: VectorParams(**{**params, "storage": Storage(**params["storage"])})
            for name, params in dense.items()
        },
        sparse_vectors={name: SparseParams(**params) for name, params in sparse.items()},
        metadata=given["metadata"],
        indexes=given["indexes"],
        tenants=given["tenants"],
        payload_on_disk=given["payload_on_disk"],
    )
