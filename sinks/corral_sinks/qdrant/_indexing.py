"""When a server builds its graphs: not while much is loaded, then all at once, and waited for."""

import time
from collections.abc import Callable
from typing import Final

from qdrant_client import models

from corral_sinks import Building, SinkError, TellBuilding

__all__ = ["DEFERRED", "RESUMED", "built", "is_deferred", "threshold_of", "wait_until_built"]

DEFERRED: Final = models.OptimizersConfigDiff(indexing_threshold=0)
"""Builds no graph. Source: qdrant.tech/documentation/database-tutorials/bulk-upload."""

RESUMED: Final = models.OptimizersConfigDiff(indexing_threshold=10_000)
"""Kilobytes of vectors from which on a segment gets one: Qdrant's own default.

Source: qdrant 1.19 config/config.yaml, storage.optimizers.indexing_threshold_kb.
"""

_FIRST_WAIT: Final = 0.1
_LONGEST_WAIT: Final = 5.0
_GREEN_TWICE: Final = 2


def is_deferred(info: models.CollectionInfo) -> bool:
    """Whether a collection builds no graph, so that a load has not come to its end."""
    return info.config.optimizer_config.indexing_threshold == 0


def threshold_of(info: models.CollectionInfo) -> models.OptimizersConfigDiff:
    """Return the setting that a collection has, to go back to."""
    return models.OptimizersConfigDiff(
        indexing_threshold=info.config.optimizer_config.indexing_threshold
    )


def built(info: models.CollectionInfo) -> bool:
    """Whether a server has nothing left to build.

    Raises:
        SinkError: its optimiser failed.
    """
    failed = info.optimizer_status
    if isinstance(failed, models.OptimizersStatusOneOf1):
        raise SinkError(f"the server cannot build its indexes: {failed.error}.")
    return info.status is models.CollectionStatus.GREEN


def wait_until_built(
    ask: Callable[[], models.CollectionInfo], tell: TellBuilding | None = None
) -> None:
    """Return when nothing is left to build.

    A server says for a moment that all is done before it has begun: it must say so twice.

    Args:
        ask: the server.
        tell: is told how many points are indexed; of several vectors a point any one counts.

    Raises:
        SinkError: its optimiser failed.
    """
    green, wait = 0, _FIRST_WAIT
    began = time.monotonic()
    while True:
        info = ask()
        green = green + 1 if built(info) else 0
        if green == _GREEN_TWICE:
            return
        if tell is not None:
            points = info.points_count or 0
            indexed = min(points, info.indexed_vectors_count or 0)
            tell(Building(points=points, indexed=indexed, seconds=time.monotonic() - began))
        time.sleep(wait)
        wait = min(_LONGEST_WAIT, 2 * wait)
