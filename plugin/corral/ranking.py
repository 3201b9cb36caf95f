"""From the vectors of a query to what a collection is asked. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from corral.errors import UsageError
from corral_sinks import Vector
from corral_sinks.qdrant import Fused, Nearest, Ranking

__all__ = ["FULL", "FUSIONS", "MULTI", "RankingOptions", "ranking_of"]

Fusion = Literal["rrf", "dbsf"]
FUSIONS: Final[tuple[Fusion, ...]] = ("rrf", "dbsf")

FULL: Final = "full"
"""Name of a vector of all dimensions, which orders anew what the short one found."""

MULTI: Final = "multi"
"""Name of a multivector, which orders anew what all the others found."""

_RESCORED_BY: Final = {"dense": FULL}
_LAST: Final = MULTI
_CANDIDATES_TIMES: Final = 4
_CANDIDATES_LEAST: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingOptions:
    """How the vectors of a collection are used.

    Args:
        using: names of those to search by; none takes all that there are.
        fusion: how the finds of several become one list: by their places ("rrf") or by their
            scores ("dbsf").
        weights: of vectors by name, for "rrf"; 1 where none is given.
        candidates: records that each stage before the last passes on; None takes 4 times those
            that are wanted, and 40 at least.
        exact: compare with every vector itself, by no graph and no quantised copy.
        rescore: whether those that quantised copies found are compared anew by the vectors
            themselves; None lets Qdrant choose.
        oversampling: how many times as many to find by the copies, to choose from.
    """

    using: Sequence[str] = ()
    fusion: Fusion = "rrf"
    weights: Mapping[str, float] = field(default_factory=dict)
    candidates: int | None = None
    exact: bool = False
    rescore: bool | None = None
    oversampling: float | None = None


def ranking_of(
    vectors: Mapping[str, Vector], known: Sequence[str], options: RankingOptions, *, limit: int
) -> Ranking | None:
    """Say what to ask a collection.

    Args:
        vectors: of the query, by name; what a query has not, such as words that count, is missing.
        known: names of the collection's vectors that a query may have.
        options: how to use them.
        limit: records that are wanted.

    Returns:
        The ranking; None where the query has no vector to search by.

    Raises:
        UsageError: an option names a vector that is not there, is out of range, or is of what is
            not done with this collection.
    """
    _check(known, options, limit)
    chosen = [name for name in known if not options.using or name in options.using]
    wanted = {name: vectors[name] for name in chosen if name in vectors}
    n_candidates = options.candidates or max(_CANDIDATES_TIMES * limit, _CANDIDATES_LEAST)
    parts = {
        name: _part(name, vector, wanted, n_candidates)
        for name, vector in wanted.items()
        if name != _LAST and _first_stage(name, wanted)
    }
    single = sum(name != _LAST and _first_stage(name, chosen) for name in chosen) == 1
    if single and (options.weights or options.fusion != FUSIONS[0]):
        raise UsageError(
            f"fusion and weights are for the finds of several vectors, and here {chosen[0]} alone "
            "finds; leave them out"
        )
    found = _fused(parts, options, n_candidates, single=single)
    last = wanted.get(_LAST)
    return found if last is None else Nearest(vector=last, name=_LAST, among=found)


def _check(known: Sequence[str], options: RankingOptions, limit: int) -> None:
    for name in (*options.using, *options.weights):
        if name not in known:
            raise UsageError(
                f"the collection has no vector {name!r} to search by; it has {', '.join(known)}"
            )
    for name, weight in options.weights.items():
        if not 0 <= weight < float("inf"):
            raise UsageError(f"the weight of {name} is {weight}; it must be 0 or more")
    if options.weights and options.fusion != "rrf":
        raise UsageError(f"weights are of the fusion rrf, and {options.fusion} takes none")
    if options.oversampling is not None and not 1 <= options.oversampling < float("inf"):
        raise UsageError(f"oversampling is {options.oversampling}; it must be 1 or more")
    if options.candidates is not None and options.candidates < limit:
        raise UsageError(
            f"{options.candidates} candidates are fewer than the {limit} chunks that are wanted"
        )


def _first_stage(name: str, wanted: Collection[str]) -> bool:
    """Whether a vector finds records by itself, not among another's."""
    return not any(full == name and short in wanted for short, full in _RESCORED_BY.items())


def _part(name: str, vector: Vector, wanted: Mapping[str, Vector], limit: int) -> Ranking:
    first = Nearest(vector=vector, name=name, limit=limit)
    full = _RESCORED_BY.get(name)
    if full is None or full not in wanted:
        return first
    return Nearest(vector=wanted[full], name=full, limit=limit, among=first)


def _fused(
    parts: Mapping[str, Ranking], options: RankingOptions, limit: int, *, single: bool
) -> Ranking | None:
    """Fuse lists; a single one too where there could be several, so that scores mean the same."""
    if not parts or single:
        return next(iter(parts.values()), None)
    weights = [options.weights.get(name, 1.0) for name in parts] if options.weights else None
    return Fused(parts=list(parts.values()), method=options.fusion, weights=weights, limit=limit)
