"""How long one try of a call may take: no longer than what is left for all its tries.

A client is told once how long to wait, and over gRPC it goes by that for writes, whatever the call
itself is given. So the time at which a call must be over is kept beside it, and what sends the
request looks there.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import grpc
import httpx
from qdrant_client import QdrantClient

__all__ = ["bound", "within"]

_LEAST_SECONDS = 0.01
"""To sockets 0 is another word for not waiting at all, and less is none."""

_ends: ContextVar[float] = ContextVar("ends", default=math.inf)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Let every request that this thread sends in the block be over in so many seconds."""
    before = _ends.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _ends.reset(before)


def bound(client: QdrantClient, *, over_grpc: bool) -> None:
    """Make a server's client keep to `within`; outside of it, its own limits hold alone.

    Over REST each wait for the network is bounded, to connect, to send and to read.

    Args:
        client: of a server; nothing was sent by it yet.
        over_grpc: whether it speaks gRPC.
    """
    client.http.client.add_middleware(_bounded)
    if over_grpc:
        remote: Any = client._client  # noqa: SLF001 - it takes no interceptors from outside
        remote._init_grpc_channel()  # noqa: SLF001 - as above
        remote._grpc_channel_pool = [  # noqa: SLF001 - as above
            grpc.intercept_channel(channel, _Bounded())
            for channel in remote._grpc_channel_pool  # noqa: SLF001 - as above
        ]


def _least(own: float | None) -> float | None:
    """Give the shorter of a limit of the client's own and what is left; None is no limit."""
    left = max(_LEAST_SECONDS, _ends.get() - time.monotonic())
    limit = min(math.inf if own is None else own, left)
    return limit if math.isfinite(limit) else None


def _bounded(
    request: httpx.Request, send: Callable[[httpx.Request], httpx.Response]
) -> httpx.Response:
    own = request.extensions["timeout"]
    request.extensions["timeout"] = {wait: _least(seconds) for wait, seconds in own.items()}
    return send(request)


class _Details(NamedTuple):
    """grpc.ClientCallDetails as grpc's own interceptors take them."""

    method: str
    timeout: float | None
    metadata: Any
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class _Bounded(grpc.UnaryUnaryClientInterceptor):
    """Every call of Qdrant's is of this kind."""

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:  # noqa: ANN401 - untyped
        """Pass a call on with a deadline that is not later than the block's."""
        given = _Details(
            details.method,
            _least(details.timeout),
            details.metadata,
            details.credentials,
            details.wait_for_ready,
            details.compression,
        )
        return continuation(given, request)
