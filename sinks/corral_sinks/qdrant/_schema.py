"""The sinks' schema and vectors in Qdrant's models, and back."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from qdrant_client import models

from corral_sinks import (
    INDEX_TYPES,
    Schema,
    SinkError,
    SparseParams,
    SparseVector,
    Vector,
    VectorParams,
)
from corral_sinks.qdrant._storage import bytes_per_vector, storage_arguments, storage_of

__all__ = [
    "TENANT_FIELD",
    "created",
    "index_params",
    "schema_of",
    "vector_bytes",
    "vector_of",
    "vectors_from",
]

TENANT_FIELD = "metadata.tenant"

_NO_GRAPH = models.HnswConfigDiff(m=0, payload_m=0)  # nor a tenant's, which it would inherit
_GRAPH_A_TENANT = models.HnswConfigDiff(m=0, payload_m=16)
"""Source: qdrant.tech/documentation/guides/multitenancy, "Calibrate performance"."""


def created(schema: Schema) -> dict[str, Any]:
    """Give the arguments of `create_collection` that make a collection of this schema.

    Raises:
        SinkError: a setting that Qdrant has not; names it.
    """
    sparse = {name: _sparse(params) for name, params in schema.sparse_vectors.items()}
    return {
        "vectors_config": {name: _dense(params) for name, params in schema.vectors.items()},
        "sparse_vectors_config": sparse or None,
        "metadata": dict(schema.metadata),
        "hnsw_config": _GRAPH_A_TENANT if schema.tenants else None,
        "on_disk_payload": schema.payload_on_disk,
    }


def index_params(field: str, kind: str, *, tenants: bool) -> Any:  # noqa: ANN401 - of eight kinds
    """Give the parameters of a payload index.

    Raises:
        SinkError: there is no such type of index.
    """
    if kind not in INDEX_TYPES:
        raise SinkError(f"there is no index of type {kind!r}; types are {', '.join(INDEX_TYPES)}.")
    if tenants and field == TENANT_FIELD:
        return models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
    if kind == "text":
        return models.TextIndexParams(
            type=models.TextIndexType.TEXT, tokenizer=models.TokenizerType.MULTILINGUAL
        )
    return models.PayloadSchemaType(kind)


def _dense(params: VectorParams) -> models.VectorParams:
    return models.VectorParams(
        size=params.size,
        distance=_distance(params),
        multivector_config=models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
        if params.multivector
        else None,
        hnsw_config=None if params.indexed else _NO_GRAPH,
        **storage_arguments(params.storage),
    )


def _distance(params: VectorParams) -> models.Distance:
    try:
        return models.Distance[params.distance.upper()]
    except KeyError as error:
        raise SinkError(
            f"Qdrant has no distance {params.distance!r}; it has "
            f"{', '.join(known.name.lower() for known in models.Distance)}."
        ) from error


def _sparse(params: SparseParams) -> models.SparseVectorParams:
    return models.SparseVectorParams(modifier=models.Modifier.IDF if params.idf else None)


def schema_of(info: models.CollectionInfo) -> Schema:
    """Read a collection's schema; a single unnamed vector has the name ""."""
    params = info.config.params
    given = params.vectors
    vectors = {"": given} if isinstance(given, models.VectorParams) else given or {}
    return Schema(
        vectors={name: _dense_of(found) for name, found in vectors.items()},
        sparse_vectors={
            name: SparseParams(idf=found.modifier is models.Modifier.IDF)
            for name, found in (params.sparse_vectors or {}).items()
        },
        metadata=info.config.metadata or {},
        indexes={
            field: index.data_type.value for field, index in sorted(info.payload_schema.items())
        },
        tenants=TENANT_FIELD in info.payload_schema
        and bool(getattr(info.payload_schema[TENANT_FIELD].params, "is_tenant", False)),
        payload_on_disk=params.on_disk_payload,
    )


def _dense_of(found: models.VectorParams) -> VectorParams:
    return VectorParams(
        size=found.size,
        distance=found.distance.name.lower(),
        multivector=found.multivector_config is not None,
        indexed=found.hnsw_config is None or found.hnsw_config.m != 0,
        storage=storage_of(found),
    )


def vector_of(vector: Vector) -> Any:  # noqa: ANN401 - list, list of lists or SparseVector
    """Give a vector as Qdrant's client takes it."""
    if isinstance(vector, SparseVector):
        return models.SparseVector(indices=vector.indices.tolist(), values=vector.values.tolist())
    return vector.tolist()


def vector_bytes(params: VectorParams) -> int:
    """Bytes that a record's vector takes; 0 of a multivector, whose rows are not known."""
    return 0 if params.multivector else bytes_per_vector(params.size, params.storage)


def vectors_from(given: object) -> Mapping[str, Vector]:
    """Read a stored point's vectors; a single unnamed one has the name ""."""
    named = given if isinstance(given, dict) else {"": given}
    return {name: _vector_from(vector) for name, vector in named.items() if vector is not None}


def _vector_from(given: Any) -> Vector:  # noqa: ANN401 - list, list of lists or SparseVector
    if isinstance(given, models.SparseVector):
        return SparseVector(
            indices=np.array(given.indices, dtype=np.uint32),
            values=np.array(given.values, dtype=np.float32),
        )
    return np.array(given, dtype=np.float32)
