"""How much goes into one request, and what happens when it fails."""

import logging
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from corral_sinks import Record, SinkUnavailableError, SparseVector, Vector
from corral_sinks.qdrant._deadlines import within
from corral_sinks.qdrant._errors import TransientError

__all__ = ["Limits", "batches", "record_bytes", "retried"]

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_BYTES_PER_FLOAT = 22
"""Of a float32 in JSON, at most: it is written as the double next to it, and a comma."""
_BYTES_PER_POINT = 128
"""The id, names and braces around vectors and payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one upload.

    Args:
        batch_bytes: most bytes of a request as JSON, unless one point alone has more.
        batch_points: most points of a request.
        request_bytes: what a server takes (service.max_request_size_mb: 32).
        request_seconds: after which a request that writes is given up.
        contact_seconds: in which a server must answer the first call of all.
        total_seconds: in which any call must succeed, retries and waits included.
        first_wait: seconds before the first retry; each further one waits twice as long.
        longest_wait: seconds, unless the server asks for more (Retry-After).
    """

    batch_bytes: int = 8 * 2**20
    batch_points: int = 256
    request_bytes: int = 32 * 2**20
    request_seconds: float = 60.0
    contact_seconds: float = 5.0
    total_seconds: float = 300.0
    first_wait: float = 0.5
    longest_wait: float = 30.0


def record_bytes(record: Record, payload_bytes: int) -> int:
    """Bytes of a record as JSON, rather too many than too few."""
    numbers = sum(map(_n_numbers, record.vectors.values()))
    return _BYTES_PER_POINT + payload_bytes + _BYTES_PER_FLOAT * numbers


def _n_numbers(vector: Vector) -> int:
    return 2 * len(vector.values) if isinstance(vector, SparseVector) else vector.size


def batches(sized: Iterable[tuple[_T, int]], limits: Limits) -> Iterator[list[_T]]:
    """Group items in order, each group within the limits of bytes and points.

    Args:
        sized: items, each with its bytes.
        limits: of a group; an item over `batch_bytes` gets one for itself.
    """
    group: list[_T] = []
    room = limits.batch_bytes
    for item, size in sized:
        if group and (size > room or len(group) == limits.batch_points):
            yield group
            group, room = [], limits.batch_bytes
        group.append(item)
        room -= size
    if group:
        yield group


def retried(call: Callable[[int], _T], *, limits: Limits, seconds: float) -> _T:
    """Call until it succeeds, fails for good, or the time is up; no try takes longer than is left.

    Waits grow exponentially, with jitter so that many clients do not come back at once; a server's
    Retry-After is honoured.

    Args:
        call: gets the seconds to give a server for it, at least 1; raises TransientError to be
            retried.
        limits: of waits and of one request.
        seconds: for all tries and waits.

    Raises:
        SinkUnavailableError: it still failed at the end of the time.
    """
    start = time.monotonic()
    tries = 0
    while True:
        allowed = min(start + seconds - time.monotonic(), limits.request_seconds)
        try:
            with within(allowed):
                return call(max(1, math.ceil(allowed)))
        except TransientError as error:
            wait = _wait(error, tries, limits)
            tries += 1
            spent = time.monotonic() - start
            if spent + wait > seconds:
                n_tries = "1 try" if tries == 1 else f"{tries} tries"
                raise SinkUnavailableError(
                    f"{error} Given up after {n_tries} in {spent:.1f} s (limit {seconds:g} s)."
                ) from error
            _log.warning("%s Trying again in %.1f s.", error, wait)
            time.sleep(wait)


def _wait(error: TransientError, tries: int, limits: Limits) -> float:
    """Seconds to wait before the next try."""
    jitter = random.random()  # noqa: S311 - spreads clients in time, guards nothing
    if error.retry_after is not None:
        return error.retry_after * (1 + jitter / 10)
    return min(limits.longest_wait, limits.first_wait * 2.0**tries) * (1 + jitter) / 2
