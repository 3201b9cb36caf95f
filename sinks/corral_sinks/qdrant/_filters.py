"""Qdrant's filter model in the embedded engine's own words."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np
import qdrant_edge as qe
from qdrant_client import models

from corral_sinks import SinkError

__all__ = ["edge_filter"]


def edge_filter(given: models.Filter | None) -> qe.Filter | None:
    """Translate a filter whole.

    Raises:
        SinkError: a condition that the embedded engine does not know; names it.
    """
    if given is None:
        return None
    if not isinstance(given, models.Filter):
        raise SinkError(f"a filter is a qdrant_client.models.Filter; got a {type(given).__name__}.")
    return qe.Filter(
        must=_conditions(given.must),
        should=_conditions(given.should),
        must_not=_conditions(given.must_not),
        min_should=None
        if given.min_should is None
        else qe.MinShould(
            _conditions(given.min_should.conditions) or [], given.min_should.min_count
        ),
    )


def _conditions(given: object) -> list[Any] | None:
    if given is None:
        return None
    several = given if isinstance(given, Sequence) else [given]
    return [_translate(condition, _CONDITIONS, "condition") for condition in several]


def _translate(given: Any, table: Mapping[type, Callable[[Any], Any]], kind: str) -> Any:  # noqa: ANN401
    known = table.get(type(given))
    if known is None:
        raise SinkError(
            f"the embedded Qdrant knows no {kind} of type {type(given).__name__}; "
            f"it knows {', '.join(sorted(known.__name__ for known in table))}."
        )
    return known(given)


def _field(given: models.FieldCondition) -> qe.FieldCondition:
    parts = {
        "match": _MATCHES,
        "range": _RANGES,
        "geo_bounding_box": _GEO,
        "geo_radius": _GEO,
        "geo_polygon": _GEO,
        "values_count": _COUNTS,
    }
    translated = {
        name: _translate(part, table, name)
        for name, table in parts.items()
        if (part := getattr(given, name)) is not None
    }
    return qe.FieldCondition(
        given.key, is_empty=given.is_empty, is_null=given.is_null, **translated
    )


def _nested(given: models.NestedCondition) -> qe.NestedCondition:
    inner = edge_filter(given.nested.filter)
    return qe.NestedCondition(given.nested.key, inner if inner is not None else qe.Filter())


def _moments(given: models.DatetimeRange) -> qe.RangeDateTime:
    def text(moment: date | None) -> str | None:
        return None if moment is None else moment.isoformat()

    return qe.RangeDateTime(
        gte=text(given.gte), gt=text(given.gt), lte=text(given.lte), lt=text(given.lt)
    )


def _point(given: models.GeoPoint) -> qe.GeoPoint:
    return qe.GeoPoint(given.lon, given.lat)


def _ring(given: models.GeoLineString) -> list[qe.GeoPoint]:
    return [_point(point) for point in given.points]


def _polygon(given: models.GeoPolygon) -> qe.GeoPolygon:
    return qe.GeoPolygon(_ring(given.exterior), [_ring(ring) for ring in given.interiors or []])


def _value(given: models.MatchValue) -> qe.MatchValue:
    """Translate an exact match.

    The binding of qdrant-edge-py 0.9 takes a bool, which is an int in Python, for 1 or 0, and then
    matches nothing; it takes numpy's bool, which is none, for what it is.
    """
    value: Any = np.bool_(given.value) if isinstance(given.value, bool) else given.value
    return qe.MatchValue(value)


_CONDITIONS: Mapping[type, Callable[[Any], Any]] = {
    models.FieldCondition: _field,
    models.Filter: edge_filter,
    models.HasIdCondition: lambda given: qe.HasIdCondition(set(given.has_id)),
    models.HasVectorCondition: lambda given: qe.HasVectorCondition(given.has_vector),
    models.IsEmptyCondition: lambda given: qe.IsEmptyCondition(given.is_empty.key),
    models.IsNullCondition: lambda given: qe.IsNullCondition(given.is_null.key),
    models.NestedCondition: _nested,
    # The engine has it, its stub does not.
    models.SliceCondition: lambda given: qe.SliceCondition(  # type: ignore[attr-defined]
        given.slice.total, given.slice.index
    ),
}
_MATCHES: Mapping[type, Callable[[Any], Any]] = {
    models.MatchAny: lambda given: qe.MatchAny(given.any),
    models.MatchExcept: lambda given: qe.MatchExcept(given.except_),
    models.MatchPhrase: lambda given: qe.MatchPhrase(given.phrase),
    models.MatchPrefix: lambda given: qe.MatchPrefix(given.prefix),
    models.MatchSubstring: lambda given: qe.MatchSubstring(given.substring),
    models.MatchText: lambda given: qe.MatchText(given.text),
    models.MatchTextAny: lambda given: qe.MatchTextAny(given.text_any),
    models.MatchValue: _value,
}
_RANGES: Mapping[type, Callable[[Any], Any]] = {
    models.DatetimeRange: _moments,
    models.Range: lambda given: qe.RangeFloat(
        gte=given.gte, gt=given.gt, lte=given.lte, lt=given.lt
    ),
}
_GEO: Mapping[type, Callable[[Any], Any]] = {
    models.GeoBoundingBox: lambda given: qe.GeoBoundingBox(
        _point(given.top_left), _point(given.bottom_right)
    ),
    models.GeoPolygon: _polygon,
    models.GeoRadius: lambda given: qe.GeoRadius(_point(given.center), given.radius),
}
_COUNTS: Mapping[type, Callable[[Any], Any]] = {
    models.ValuesCount: lambda given: qe.ValuesCount(
        lt=given.lt, gt=given.gt, lte=given.lte, gte=given.gte
    )
}
