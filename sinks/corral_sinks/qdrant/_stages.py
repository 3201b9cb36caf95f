"""What a search ranks by: a vector, stages one after the other, or several lists fused. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from qdrant_client import models

from corral_sinks import SinkError, Vector
from corral_sinks.qdrant._schema import vector_of

__all__ = ["Fused", "Nearest", "Ranking", "query_arguments", "vectors_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """The records nearest to a vector.

    Args:
        vector: of the kind that the schema says.
        name: which of the schema's vectors to compare it with.
        limit: most records to pass on; not looked at in the last stage of a search.
        among: what finds the records to choose from; None chooses from all.
    """

    vector: Vector
    name: str
    limit: int = 10
    among: "Ranking | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """The finds of several rankings in one list.

    Args:
        parts: at least two.
        method: "rrf" adds 1 / (k + rank) of each list, "dbsf" adds the scores of each, scaled by
            their mean and deviation.
        weights: of the parts, for "rrf"; None weighs all the same.
        k: of "rrf"; None takes Qdrant's, 2. The larger, the less the first places count.
        limit: most records to pass on; not looked at in the last stage of a search.
    """

    parts: "Sequence[Ranking]"
    method: Literal["rrf", "dbsf"] = "rrf"
    weights: Sequence[float] | None = None
    k: int | None = None
    limit: int = 10


Ranking = Nearest | Fused


def vectors_of(ranking: Ranking) -> Iterator[tuple[str, Vector]]:
    """Yield every vector that a ranking compares with, and its name."""
    if isinstance(ranking, Fused):
        for part in ranking.parts:
            yield from vectors_of(part)
        return
    yield ranking.name, ranking.vector
    if ranking.among is not None:
        yield from vectors_of(ranking.among)


def query_arguments(
    ranking: Ranking,
    condition: models.Filter | None,
    params: models.SearchParams | None = None,
) -> dict[str, Any]:
    """Give the arguments of `query_points` that rank so, among the records that meet a condition.

    Raises:
        SinkError: weights do not go with the parts or the method.
    """
    if isinstance(ranking, Nearest):
        below = [] if ranking.among is None else [ranking.among]
        given: dict[str, Any] = {
            "query": vector_of(ranking.vector),
            "using": ranking.name or None,
        }
    else:
        below = list(ranking.parts)
        given = {"query": _fusion(ranking)}
    if below:
        given["prefetch"] = [_prefetch(part, condition, params) for part in below]
    return given


def _prefetch(
    ranking: Ranking, condition: models.Filter | None, params: models.SearchParams | None
) -> models.Prefetch:
    arguments = query_arguments(ranking, condition, params)
    return models.Prefetch(limit=ranking.limit, filter=condition, params=params, **arguments)


def _fusion(fused: Fused) -> models.FusionQuery | models.RrfQuery:
    if fused.method == "dbsf":
        if fused.weights is not None:
            raise SinkError("weights are of the fusion rrf; dbsf takes none.")
        return models.FusionQuery(fusion=models.Fusion.DBSF)
    if fused.weights is not None and len(fused.weights) != len(fused.parts):
        raise SinkError(f"there are {len(fused.weights)} weights for {len(fused.parts)} rankings.")
    weights = None if fused.weights is None else list(fused.weights)
    return models.RrfQuery(rrf=models.Rrf(k=fused.k, weights=weights))
