"""Qdrant's query model in the embedded engine's own words, and its answers in Qdrant's."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import numpy as np
import qdrant_edge as qe
from qdrant_client import models

from corral_sinks import SinkError
from corral_sinks.qdrant._filters import edge_filter

__all__ = ["edge_payload", "edge_prefetches", "edge_query", "edge_search", "record", "scored"]

_RRF_K = 2
"""Qdrant's own default. Source: qdrant 1.19 lib/segment/src/common/reciprocal_rank_fusion.rs."""
_PREFETCH_LIMIT = 10


def edge_query(given: object, using: str | None, limit: int) -> Any:  # noqa: ANN401
    """Translate what to rank by.

    Args:
        given: a vector (list, array, SparseVector, list of lists), or one of NearestQuery,
            FusionQuery, RrfQuery, OrderByQuery and SampleQuery, or None for no ranking.
        using: name of the vector to compare with; None for the unnamed one.
        limit: of the results, MMR's default for its candidates.

    Raises:
        SinkError: another kind of query; names it.
    """
    translated: Any = None
    match given:
        case None:
            pass
        case np.ndarray() | list() | models.SparseVector():
            translated = qe.Query.Nearest(_vector(given), using=using)
        case models.NearestQuery():
            translated = _nearest(given, using, limit)
        case models.FusionQuery(fusion=models.Fusion.DBSF):
            translated = qe.Fusion.Dbsf()
        case models.FusionQuery():
            translated = qe.Fusion.Rrf(k=_RRF_K)
        case models.RrfQuery():
            translated = qe.Fusion.Rrf(k=given.rrf.k or _RRF_K, weights=given.rrf.weights)
        case models.OrderByQuery():
            translated = _order(given.order_by)
        case models.SampleQuery():
            translated = qe.Sample.Random
        case _:
            raise SinkError(
                f"corral's embedded Qdrant does not translate a query of type "
                f"{type(given).__name__}; it knows vectors, NearestQuery, FusionQuery, RrfQuery, "
                "OrderByQuery and SampleQuery. A server knows the rest."
            )
    return translated


def _nearest(given: models.NearestQuery, using: str | None, limit: int) -> Any:  # noqa: ANN401
    vector, mmr = _vector(given.nearest), given.mmr
    if mmr is None:
        return qe.Query.Nearest(vector, using=using)
    return qe.Mmr(
        vector,
        lambda_=1.0 - (0.5 if mmr.diversity is None else mmr.diversity),
        candidates_limit=limit if mmr.candidates_limit is None else mmr.candidates_limit,
        using=using,
    )


def _vector(given: object) -> Any:  # noqa: ANN401
    if isinstance(given, models.SparseVector):
        return qe.SparseVector(given.indices, given.values)
    if not isinstance(given, np.ndarray | list):
        raise SinkError(
            "corral's embedded Qdrant ranks by a vector, not by the id of a point or by a text to "
            f"embed; got a {type(given).__name__}."
        )
    vector = np.asarray(given, dtype=np.float32)
    if not np.isfinite(vector).all():
        raise SinkError("the query vector holds a value that is not finite.")
    return vector.tolist()


def _order(given: str | models.OrderBy) -> qe.OrderBy:
    order = models.OrderBy(key=given) if isinstance(given, str) else given
    start = order.start_from
    return qe.OrderBy(
        order.key,
        direction=qe.Direction.Desc
        if order.direction is models.Direction.DESC
        else qe.Direction.Asc,
        start_from=start if start is None or isinstance(start, int | float) else start.isoformat(),
    )


def edge_prefetches(given: models.Prefetch | Sequence[models.Prefetch] | None) -> list[qe.Prefetch]:
    """Translate the stages before the last one, nested ones too."""
    several = [given] if isinstance(given, models.Prefetch) else given or []
    return [_prefetch(stage) for stage in several]


def _prefetch(stage: models.Prefetch) -> qe.Prefetch:
    if stage.lookup_from is not None:
        raise SinkError("the embedded Qdrant looks nothing up in other collections (lookup_from).")
    limit = _PREFETCH_LIMIT if stage.limit is None else stage.limit
    return qe.Prefetch(
        limit=limit,
        query=edge_query(stage.query, stage.using, limit),
        prefetches=edge_prefetches(stage.prefetch),
        params=edge_search(stage.params),
        filter=edge_filter(stage.filter),
        score_threshold=stage.score_threshold,
    )


def edge_search(given: models.SearchParams | None) -> qe.SearchParams | None:
    """Translate how to search."""
    if given is None:
        return None
    quantization, acorn = given.quantization, given.acorn
    if given.idf is not None:
        raise SinkError("corral's embedded Qdrant does not translate search_params.idf.")
    return qe.SearchParams(
        hnsw_ef=given.hnsw_ef,
        exact=bool(given.exact),
        indexed_only=bool(given.indexed_only),
        quantization=None
        if quantization is None
        else qe.QuantizationSearchParams(
            ignore=bool(quantization.ignore),
            rescore=quantization.rescore,
            oversampling=quantization.oversampling,
        ),
        acorn=None
        if acorn is None
        else qe.AcornSearchParams(enable=bool(acorn.enable), max_selectivity=acorn.max_selectivity),
    )


def edge_payload(given: object) -> Any:  # noqa: ANN401
    """Translate which payload fields to return."""
    match given:
        case models.PayloadSelectorInclude():
            return qe.PayloadSelector.Include(given.include)
        case models.PayloadSelectorExclude():
            return qe.PayloadSelector.Exclude(given.exclude)
        case bool():
            return given
        case _ if isinstance(given, Sequence):
            return list(given)
    raise SinkError(f"with_payload is a bool, a list of fields or a selector; got {given!r}.")


def scored(given: qe.ScoredPoint) -> models.ScoredPoint:
    """Return a found point in Qdrant's model."""
    return models.ScoredPoint(
        id=_id(given.id),
        version=given.version,
        score=given.score,
        payload=given.payload,
        vector=_vectors(given.vector),
        order_value=given.order_value,
    )


def record(given: qe.Record) -> models.Record:
    """Return a stored point in Qdrant's model."""
    return models.Record(
        id=_id(given.id),
        payload=given.payload,
        vector=_vectors(given.vector),
        order_value=given.order_value,
    )


def _id(given: int | str | UUID) -> int | str:
    return given if isinstance(given, int) else str(given)


def _vectors(given: object) -> Any:  # noqa: ANN401
    if isinstance(given, Mapping):
        return {name: _vectors(vector) for name, vector in given.items()}
    if isinstance(given, qe.SparseVector):
        return models.SparseVector(indices=given.indices, values=given.values)
    return given
