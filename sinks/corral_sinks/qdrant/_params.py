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
    # The engine has it, its stub does not.
    models.Datatype.TURBO4: qe.VectorStorageDatatype.Turbo4,  # type: ignore[attr-defined]
    models.Datatype.TURBO8: qe.VectorStorageDatatype.Turbo8,
    models.Datatype.TURBO16: qe.VectorStorageDatatype.Turbo16,
}
_ENCODINGS = {
    models.BinaryQuantizationEncoding.ONE_BIT: qe.BinaryQuantizationEncoding.OneBit,
    models.BinaryQuantizationEncoding.ONE_AND_HALF_BITS: (
        qe.BinaryQuantizationEncoding.OneAndHalfBits
    ),
    models.BinaryQuantizationEncoding.TWO_BITS: qe.BinaryQuantizationEncoding.TwoBits,
}
_QUERY_ENCODINGS = {
    models.BinaryQuantizationQueryEncoding.DEFAULT: qe.BinaryQuantizationQueryEncoding.Default,
    models.BinaryQuantizationQueryEncoding.BINARY: qe.BinaryQuantizationQueryEncoding.Binary,
    models.BinaryQuantizationQueryEncoding.SCALAR4BITS: (
        qe.BinaryQuantizationQueryEncoding.Scalar4Bits
    ),
    models.BinaryQuantizationQueryEncoding.SCALAR8BITS: (
        qe.BinaryQuantizationQueryEncoding.Scalar8Bits
    ),
}
_TURBO_BITS = {
    models.TurboQuantBitSize.BITS1: qe.TurboQuantBitSize.Bits1,
    models.TurboQuantBitSize.BITS1_5: qe.TurboQuantBitSize.Bits1_5,
    models.TurboQuantBitSize.BITS2: qe.TurboQuantBitSize.Bits2,
    models.TurboQuantBitSize.BITS4: qe.TurboQuantBitSize.Bits4,
    models.TurboQuantBitSize.BITS8: qe.TurboQuantBitSize.Bits8,
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
    *,
    on_disk_payload: bool | None = None,
) -> qe.EdgeConfig:
    """Translate what a collection is made of; its write-ahead log is always on.

    Raises:
        SinkError: a setting that is not translated; names it.
    """
    return qe.EdgeConfig(
        vectors={name: _dense(params) for name, params in vectors.items()} or None,
        sparse_vectors={name: _sparse(params) for name, params in sparse_vectors.items()} or None,
        hnsw_config=None if hnsw is None else _hnsw(hnsw),
        payload_memory=None
        if on_disk_payload is None
        else qe.Memory.Cold
        if on_disk_payload
        else qe.Memory.Cached,
    )


def _dense(params: models.VectorParams) -> qe.EdgeVectorParams:
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
        quantization_config=_quantized(params.quantization_config),
    )


def _quantized(given: Any) -> Any:  # noqa: ANN401 - of four kinds
    """Translate a quantisation, whichever of the four it is."""
    match given:
        case None:
            return None
        case models.ScalarQuantization(scalar=made):
            own: dict[str, Any] = {"type": qe.ScalarType.Int8, "quantile": made.quantile}
            kind: Any = qe.ScalarQuantizationConfig
        case models.ProductQuantization(product=made):
            own = {"compression": getattr(qe.CompressionRatio, made.compression.name)}
            kind = qe.ProductQuantizationConfig
        case models.BinaryQuantization(binary=made):
            own = {
                "encoding": _looked_up(_ENCODINGS, made.encoding, "encoding"),
                "query_encoding": _looked_up(
                    _QUERY_ENCODINGS, made.query_encoding, "query_encoding"
                ),
            }
            kind = qe.BinaryQuantizationConfig
        case _:
            made = given.turbo
            own = {"bits": _looked_up(_TURBO_BITS, made.bits, "bits")}
            kind = qe.TurboQuantQuantizationConfig
    memory = _looked_up(_MEMORY, made.memory, "memory")
    return kind(always_ram=made.always_ram, memory=memory, **own)


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
