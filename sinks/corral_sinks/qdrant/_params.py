"""A collection's settings in the embedded engine's own words."""

from collections.abc import Callable, Mapping
from typing import Any

import qdrant_edge as qe
from qdrant_client import models

from corral_sinks import SinkError

__all__ = ["HNSW", "edge_config", "edge_index", "index_params"]

HNSW = models.HnswConfig(m=16, ef_construct=100, full_scan_threshold=10_000)
"""The engine's defaults. Source: qdrant 1.19 config/config.yaml, storage.hnsw_index."""

_DISTANCES = {
    models.Distance.COSINE: qe.Distance.Cosine,
    models.Distance.DOT: qe.Distance.Dot,
    models.Distance.EUCLID: qe.Distance.Euclid,
    models.Distance.MANHATTAN: qe.Distance.Manhattan,
}
_DATATYPES = {
    models.Datatype.FLOAT32: qe.VectorStorageDatatype.Float32,
    models.Datatype.FLOAT16: qe.VectorStorageDatatype.Float16,
    models.Datatype.UINT8: qe.VectorStorageDatatype.Uint8,
    models.Datatype.TURBO8: qe.VectorStorageDatatype.Turbo8,
    models.Datatype.TURBO16: qe.VectorStorageDatatype.Turbo16,
}
_MEMORY = {
    models.Memory.COLD: qe.Memory.Cold,
    models.Memory.CACHED: qe.Memory.Cached,
    models.Memory.PINNED: qe.Memory.Pinned,
}
_MODIFIERS = {models.Modifier.IDF: qe.Modifier.Idf, models.Modifier.NONE: None}
_TOKENIZERS = {
    models.TokenizerType.CODE: qe.TokenizerType.Code,
    models.TokenizerType.MULTILINGUAL: qe.TokenizerType.Multilingual,
    models.TokenizerType.PREFIX: qe.TokenizerType.Prefix,
    models.TokenizerType.WHITESPACE: qe.TokenizerType.Whitespace,
    models.TokenizerType.WORD: qe.TokenizerType.Word,
}
_INDEXES: Mapping[str, tuple[type, Callable[..., Any]]] = {
    "bool": (models.BoolIndexParams, qe.BoolIndexParams),
    "datetime": (models.DatetimeIndexParams, qe.DatetimeIndexParams),
    "float": (models.FloatIndexParams, qe.FloatIndexParams),
    "geo": (models.GeoIndexParams, qe.GeoIndexParams),
    "integer": (models.IntegerIndexParams, qe.IntegerIndexParams),
    "keyword": (models.KeywordIndexParams, qe.KeywordIndexParams),
    "text": (models.TextIndexParams, qe.TextIndexParams),
    "uuid": (models.UuidIndexParams, qe.UuidIndexParams),
}
_UNTRANSLATED = frozenset({"scoring", "stemmer", "stopwords"})


def edge_config(
    vectors: Mapping[str, models.VectorParams],
    sparse_vectors: Mapping[str, models.SparseVectorParams],
    hnsw: models.HnswConfigDiff | None,
) -> qe.EdgeConfig:
    """Translate what a collection is made of; its write-ahead log is always on.

    Raises:
        SinkError: a setting that is not translated; names it.
    """
    return qe.EdgeConfig(
        vectors={name: _dense(name, params) for name, params in vectors.items()} or None,
        sparse_vectors={name: _sparse(params) for name, params in sparse_vectors.items()} or None,
        hnsw_config=None if hnsw is None else _hnsw(hnsw),
    )


def _dense(name: str, params: models.VectorParams) -> qe.EdgeVectorParams:
    if params.quantization_config is not None:
        raise SinkError(
            f"vector {name!r}: corral's embedded Qdrant does not translate quantization_config."
        )
    return qe.EdgeVectorParams(
        size=params.size,
        distance=_DISTANCES[params.distance],
        on_disk=params.on_disk,
        multivector_config=None
        if params.multivector_config is None
        else qe.MultiVectorConfig(qe.MultiVectorComparator.MaxSim),
        datatype=_looked_up(_DATATYPES, params.datatype, "datatype"),
        hnsw_config=None if params.hnsw_config is None else _hnsw(params.hnsw_config),
        memory=_looked_up(_MEMORY, params.memory, "memory"),
    )


def _sparse(params: models.SparseVectorParams) -> qe.EdgeSparseVectorParams:
    index = params.index or models.SparseIndexParams()
    return qe.EdgeSparseVectorParams(
        full_scan_threshold=index.full_scan_threshold,
        on_disk=index.on_disk,
        modifier=_looked_up(_MODIFIERS, params.modifier, "modifier"),
        datatype=_looked_up(_DATATYPES, index.datatype, "datatype"),
        memory=_looked_up(_MEMORY, index.memory, "memory"),
    )


def _hnsw(given: models.HnswConfigDiff) -> qe.HnswIndexConfig:
    settings = HNSW.model_dump(exclude_none=True) | given.model_dump(exclude_none=True)
    settings["memory"] = _looked_up(_MEMORY, settings.get("memory"), "memory")
    return qe.HnswIndexConfig(**settings)


def _looked_up(table: Mapping[Any, Any], given: object, kind: str) -> Any:  # noqa: ANN401
    if given is None:
        return None
    if given not in table:
        raise SinkError(f"the embedded Qdrant has no {kind} {given!r}.")
    return table[given]


def index_params(given: object) -> models.PayloadSchemaParams:
    """Return a payload index's parameters, from parameters or from the bare name of a type.

    Raises:
        SinkError: neither of them.
    """
    kind = given.value if isinstance(given, models.PayloadSchemaType) else given
    if isinstance(kind, str) and kind in _INDEXES:
        made: models.PayloadSchemaParams = _INDEXES[kind][0](type=kind)
        return made
    if type(given) in {known for known, _ in _INDEXES.values()}:
        params: models.PayloadSchemaParams = given  # type: ignore[assignment]
        return params
    raise SinkError(f"a payload index is one of {', '.join(sorted(_INDEXES))}; got {given!r}.")


def edge_index(params: models.PayloadSchemaParams) -> Any:  # noqa: ANN401
    """Translate a payload index.

    Raises:
        SinkError: a setting that is not translated; names it.
    """
    settings = params.model_dump(exclude_none=True)
    make = _INDEXES[settings.pop("type").value][1]
    if odd := _UNTRANSLATED & settings.keys():
        raise SinkError(
            f"corral's embedded Qdrant does not translate a text index's {', '.join(sorted(odd))}."
        )
    settings["memory"] = _looked_up(_MEMORY, settings.get("memory"), "memory")
    if "tokenizer" in settings:
        settings["tokenizer"] = _TOKENIZERS[settings["tokenizer"]]
    return make(**settings)
