"""The three clients behind one surface: a server, a folder, memory."""

import functools
import inspect
import logging
import os
import threading
import warnings
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

import grpc
from qdrant_client import QdrantClient
from qdrant_client.grpc import HealthCheckRequest, QdrantStub

from corral_sinks import SinkError
from corral_sinks.qdrant._deadlines import bound
from corral_sinks.qdrant._errors import Place, mapped_errors
from corral_sinks.qdrant.embedded import EmbeddedQdrant

__all__ = ["MemoryQdrant", "connect", "offers_grpc", "place_of"]

_log = logging.getLogger(__name__)

_REST_PORT = 6333
_GRPC_PORT = 6334
_GRPC_PROBE_SECONDS = 1.0
_READ_SECONDS = 5
_GRPC_SECONDS = 60
"""Of a call that nothing else bounds; over gRPC the client has one limit for reads and writes."""


class MemoryQdrant(QdrantClient):
    """`QdrantClient(":memory:")` that several threads may use: one call runs at a time.

    The local mode keeps arrays that grow apart when two threads write, which breaks every later
    call. Source: github.com/qdrant/qdrant-client/issues/1193.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._one_at_a_time = threading.RLock()
        super().__init__(":memory:")


def _serial(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: MemoryQdrant, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        with self._one_at_a_time:
            return method(self, *args, **kwargs)

    return call


for _name, _method in inspect.getmembers(QdrantClient, inspect.isfunction):
    if not _name.startswith("_"):
        setattr(MemoryQdrant, _name, _serial(_method))


def connect(*, url: str | None = None, path: str | os.PathLike[str] | None = None) -> QdrantClient:
    """Open a Qdrant: a server's, an embedded one in a folder, or one in memory.

    Args:
        url: address of a server, such as "http://localhost:6333". Its api key is read from the
            environment variable QDRANT_API_KEY. gRPC is used where the server offers it on port
            6334 beside REST on 6333.
        path: a folder of this machine for the embedded engine, or ":memory:".

    Returns:
        A QdrantClient; for a folder an `EmbeddedQdrant`, which stands in for one. Close it.

    Raises:
        SinkError: neither or both are given, or the address or folder cannot be used.
        SinkUnavailableError: another process holds the folder.
    """
    if (url is None) == (path is None):
        raise SinkError(
            f"a Qdrant needs a url or a path, one of them; got url={_shown(url)!r} and "
            f"path={str(path) if path is not None else None!r}."
        )
    if url is not None:
        return _connect_server(url)
    if path == ":memory:":
        return MemoryQdrant()
    return cast("QdrantClient", EmbeddedQdrant(cast("str", path)))


def place_of(url: str) -> Place:
    """Name a server for messages, without the credentials its address may hold."""
    return Place(name=f"the Qdrant server at {_shown(url)}", api_key=_api_key())


def _api_key() -> str | None:
    """Read the key from the environment; what is no header value never reaches a message.

    Raises:
        SinkError: it holds what an HTTP header cannot, such as the line end of a file.
    """
    key = os.environ.get("QDRANT_API_KEY") or None
    if key and not (key.isascii() and key.isprintable()):
        raise SinkError(
            "the environment variable QDRANT_API_KEY holds a character that no HTTP header can "
            "carry, such as a line end at its end (a file with Windows line ends?). Set it anew."
        )
    return key


def _connect_server(url: str) -> QdrantClient:
    parts = _split(url)
    place = place_of(url)
    if place.api_key and parts.scheme == "http":
        _log.warning("%s gets the api key unencrypted; an https:// address hides it.", place.name)
    port = parts.port or (443 if parts.scheme == "https" else _REST_PORT)
    secure = parts.scheme == "https"
    over_grpc = port == _REST_PORT and offers_grpc(f"{parts.hostname}:{_GRPC_PORT}", secure=secure)
    with mapped_errors(place), warnings.catch_warnings():
        # The client's own warning about http:// with a key says less than ours, which is logged.
        warnings.filterwarnings("ignore", "Api key is used with an insecure connection")
        client = QdrantClient(
            url=url,
            port=port,
            api_key=place.api_key,
            https=secure,
            prefer_grpc=over_grpc,
            grpc_port=_GRPC_PORT,
            timeout=_GRPC_SECONDS if over_grpc else _READ_SECONDS,
            check_compatibility=False,
        )
        bound(client, over_grpc=over_grpc)
        return client


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise SinkError(
            f"{_shown(url)!r} is not the address of a Qdrant server; one looks like "
            "http://localhost:6333 or https://host:6333."
        )
    return parts


def _shown(url: str | None) -> str | None:
    """Return an address without user, password and query."""
    if url is None:
        return None
    scheme, separator, rest = url.partition("://")
    host = (rest if separator else scheme).split("?")[0].split("#")[0].rpartition("@")[2]
    return f"{scheme}{separator}{host}" if separator else host


def offers_grpc(target: str, *, secure: bool) -> bool:
    """Whether a Qdrant answers gRPC there; takes a second at most.

    Args:
        target: host and port.
        secure: whether to use TLS.
    """
    channel = (
        grpc.secure_channel(target, grpc.ssl_channel_credentials())
        if secure
        else grpc.insecure_channel(target)
    )
    with channel:
        try:
            stub = QdrantStub(channel)  # type: ignore[no-untyped-call] # generated
            stub.HealthCheck(HealthCheckRequest(), timeout=_GRPC_PROBE_SECONDS)
        except grpc.RpcError as error:
            code = error.code()
            return code in {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
    return True
