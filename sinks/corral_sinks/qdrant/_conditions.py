"""Conditions as they are typed, such as `author=Anna` or `page>=3`, in Qdrant's filter model."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from pydantic import TypeAdapter, ValidationError
from qdrant_client import models

from corral_sinks import SinkError

__all__ = ["TEXT_FIELD", "field_path", "filter_of"]

TEXT_FIELD: Final = "page_content"
"""The only field of a record that does not lie in its metadata."""

_METADATA: Final = "metadata."
_TYPED: Final = re.compile(r"(?P<field>[^=<>!]+)(?P<sign>!=|>=|<=|=|>|<)(?P<value>.*)", re.DOTALL)
_MOMENT: Final = TypeAdapter(models.DatetimeRange)
_TRUTHS: Final = {"true": True, "false": False}
_BOUNDS: Final = {">=": "gte", ">": "gt", "<=": "lte", "<": "lt"}


def field_path(name: str) -> str:
    """Give the path of a field in a payload from its name in the metadata."""
    return name if name == TEXT_FIELD or name.startswith(_METADATA) else _METADATA + name


def filter_of(texts: Sequence[str], kind_of: Callable[[str], str]) -> models.Filter | None:
    """Read conditions, which must all be met.

    Args:
        texts: each FIELD=VALUE, with !=, <, <=, > or >= in place of =; or Qdrant's JSON.
        kind_of: tells the kind of a field's values by its path: the type of its index, or one of
            "keyword", "integer", "float" and "bool"; raises SinkError where there is no such field.

    Returns:
        The filter; None where there are no conditions.

    Raises:
        SinkError: a text is no condition, names a field that is not there, or its value is not of
            the field's kind.
    """
    if not texts:
        return None
    return models.Filter(must=[_condition(text, kind_of) for text in texts])


def _condition(text: str, kind_of: Callable[[str], str]) -> models.Condition:
    if text.lstrip().startswith("{"):
        return _json(text)
    typed = _TYPED.fullmatch(text)
    if typed is None:
        raise SinkError(
            f"a filter is FIELD=VALUE (or !=, <, <=, >, >=), or Qdrant's own in JSON; got {text!r}."
        )
    field, sign, value = field_path(typed["field"].strip()), typed["sign"], typed["value"].strip()
    kind = kind_of(field)
    if sign in _BOUNDS:
        return models.FieldCondition(key=field, range=_range(field, kind, _BOUNDS[sign], value))
    met = _equal(field, kind, value)
    return models.Filter(must_not=[met]) if sign == "!=" else met


def _json(text: str) -> models.Filter:
    try:
        return models.Filter.model_validate(json.loads(text))
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise SinkError(f"{text!r} is no filter of Qdrant's: {where}: {fault['msg']}.") from error
    except ValueError as error:
        raise SinkError(f"{text!r} is no JSON: {error}.") from error


def _equal(field: str, kind: str, value: str) -> models.FieldCondition:
    if kind in _RANGED:
        bounds = dict.fromkeys(("gte", "lte"), value)
        return models.FieldCondition(key=field, range=_bounds(field, kind, bounds))
    if kind == "text":
        return models.FieldCondition(key=field, match=models.MatchText(text=value))
    if kind not in _VALUES:
        raise SinkError(
            f"{field} is of the kind {kind}, which is not written as FIELD=VALUE; give Qdrant's "
            "own filter in JSON."
        )
    match = models.MatchValue(value=_value(field, kind, value))
    return models.FieldCondition(key=field, match=match)


def _range(field: str, kind: str, bound: str, value: str) -> Any:  # noqa: ANN401 - of two kinds
    if kind not in {"integer", *_RANGED}:
        raise SinkError(f"{field} is of the kind {kind}, which has no order; use = or !=.")
    return _bounds(field, kind, {bound: value})


def _bounds(field: str, kind: str, bounds: Mapping[str, str]) -> Any:  # noqa: ANN401 - of two kinds
    if kind == "datetime":
        return _moment(field, bounds)
    numbers = {bound: _value(field, kind, value) for bound, value in bounds.items()}
    return models.Range(**numbers)


def _moment(field: str, bounds: Mapping[str, str]) -> models.DatetimeRange:
    try:
        return _MOMENT.validate_python(dict(bounds))
    except ValidationError as error:
        raise _wrong(field, "datetime", next(iter(bounds.values()))) from error


def _value(field: str, kind: str, value: str) -> Any:  # noqa: ANN401 - of four kinds
    try:
        return _VALUES[kind](value)
    except (KeyError, ValueError) as error:
        raise _wrong(field, kind, value) from error


def _wrong(field: str, kind: str, value: str) -> SinkError:
    return SinkError(f"{field} is of the kind {kind}, and {value!r} is none: {_EXAMPLES[kind]}.")


_RANGED: Final = frozenset({"float", "datetime"})
"""Kinds whose equality is a range of one value."""

_VALUES: Final[Mapping[str, Callable[[str], Any]]] = {
    "bool": lambda value: _TRUTHS[value.lower()],
    "float": float,
    "integer": int,
    "keyword": str,
    "uuid": lambda value: str(UUID(value)),
}
_EXAMPLES: Final = {
    "bool": "true or false",
    "datetime": "a date such as 2026-11-29 or 2026-11-29T18:00:00Z",
    "float": "a number such as 0.5",
    "integer": "a whole number such as 3",
    "uuid": "a UUID such as 6ba7b810-9dad-11d1-80b4-00c04fd430c8",
}
