"""A Qdrant server for tests: the REST calls that corral and langchain-qdrant make, over real HTTP.

Behind it works the real embedded engine. Faults are injected by request, so that what a client does
about them is tested over a real connection. It is no Qdrant server: whatever the table of
routes does not list is missing. gRPC is spoken by qdrant_grpc_stand_in.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, TypeAdapter
from qdrant_client import models
from qdrant_client.http.models import QueryRequest
from stand_ins import AnyFault, StandIn

from corral_sinks import SinkError
from corral_sinks.qdrant import EmbeddedQdrant


@dataclass(kw_only=True)
class Fault(AnyFault):
    """A fault of REST.

    Args:
        path: regular expression that the path must match at its end.
        method: of the requests.
        status: to answer with, or None to answer as usual.
        headers: sent along.
        drop: close the connection without an answer.
        over_bytes: only requests with a larger body.
        result: to answer as if the request had been done, but without doing it.
    """

    path: str = "/points"
    method: str = "PUT"
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    drop: bool = False
    over_bytes: int = -1
    result: object = None

    def fits(self, method: str, path: str, size: int) -> bool:
        """Whether it is for this request."""
        return (
            method == self.method
            and re.search(f"{self.path}$", path) is not None
            and size > self.over_bytes
        )


@dataclass(frozen=True)
class Request:
    """One request as it came in."""

    method: str
    path: str
    size: int
    api_key: str | None
    at: float
    body: bytes

    @property
    def asked(self) -> Any:
        """What the body says."""
        return json.loads(self.body)


class QdrantStandIn(StandIn):
    """A server on a free port of 127.0.0.1; a context manager."""

    fault = Fault

    def __init__(self, folder: Path, api_key: str | None = None) -> None:
        super().__init__(folder, api_key)
        self.requests: list[Request] = []
        self.indexing: dict[str, int] = {}
        self.statuses: list[Mapping[str, Any]] = []
        self.n_connections = 0
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.stand_in = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def note(self, method: str, groups: tuple[str, ...], body: bytes, answer: Any) -> None:
        """Keep a collection's indexing threshold, and tell it and the next of `statuses`."""
        if not groups or "result" not in answer:
            return
        asked = json.loads(body or b"{}")
        if method == "PATCH" and "optimizers_config" in asked:
            threshold = asked["optimizers_config"]["indexing_threshold"]
            self.indexing[groups[0]] = threshold
        if method == "GET" and "config" in (answer["result"] or ()):
            config = answer["result"]["config"]["optimizer_config"]
            config["indexing_threshold"] = self.indexing.get(groups[0], 20_000)
            if self.statuses and config["indexing_threshold"]:
                answer["result"].update(self.statuses.pop(0))

    def seen(self, method: str, path: str) -> list[Request]:
        """Requests of a method whose path matches at its end."""
        return [
            request
            for request in self.requests
            if request.method == method and re.search(f"{path}$", request.path)
        ]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self.engine.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    stand_in: QdrantStandIn

    def process_request(self, *request: Any) -> None:
        """Count a connection before its thread begins."""
        with self.stand_in._lock:
            self.stand_in.n_connections += 1
        super().process_request(*request)

    def shutdown_request(self, request: Any) -> None:
        """Count a connection that is done with, all that it brought being done."""
        super().shutdown_request(request)
        with self.stand_in._lock:
            self.stand_in.n_connections -= 1

    def handle_error(self, *_: object) -> None:
        """A client that went away is no failure of the server's."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _serve(self) -> None:
        stand_in = self.server.stand_in
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        key = self.headers.get("api-key")
        stand_in.requests.append(
            Request(self.command, path, len(body), key, time.monotonic(), body)
        )
        fault = stand_in.fault_for(self.command, path, len(body))
        if fault is None:
            self._reply(*self._answer(path, body))
        else:
            self._misbehave(fault, path, body)

    # http.server's own names
    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815

    def _misbehave(self, fault: Fault, path: str, body: bytes) -> None:
        time.sleep(fault.seconds)
        answers = fault.status is None and fault.result is None and not fault.drop
        answer = self._answer(path, body) if fault.apply or answers else None
        if fault.drop:
            self.close_connection = True
        elif fault.result is not None:
            self._reply(200, {"result": fault.result, "status": "ok", "time": 0.0})
        elif fault.status is None:
            self._reply(*answer)
        else:
            self._reply(fault.status, _error(fault.words), fault.headers)

    def _answer(self, path: str, body: bytes) -> tuple[int, object]:
        stand_in = self.server.stand_in
        if stand_in.api_key is not None and self.headers.get("api-key") != stand_in.api_key:
            return 401, _error("Must provide an API key or an Authorization bearer token")
        for method, pattern, handle in _ROUTES:
            match = re.fullmatch(pattern, path)
            if match and method == self.command:
                status, answer = _handled(handle, stand_in.engine, match.groups(), body)
                stand_in.note(self.command, match.groups(), body, answer)
                return status, answer
        return 404, _error(f"the stand-in has no route {self.command} {path}")

    def _reply(
        self, status: int, content: object, headers: Mapping[str, str] | None = None
    ) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Requests are kept in `requests`."""


def _error(words: str) -> dict[str, object]:
    return {"status": {"error": words}, "time": 0.0}


def _handled(
    handle: Callable[..., object], engine: EmbeddedQdrant, groups: tuple[str, ...], body: bytes
) -> tuple[int, object]:
    try:
        result = handle(engine, *groups, json.loads(body or b"{}"))
    except SinkError as error:
        words = str(error)
        status = 404 if "has no collection" in words else 409 if "already" in words else 400
        return status, _error(words)
    return 200, {"result": _plain(result), "status": "ok", "time": 0.0}


def _plain(result: object) -> object:
    if isinstance(result, BaseModel):
        return result.model_dump(mode="json")
    if isinstance(result, list):
        return [_plain(item) for item in result]
    return result


def _as(kind: Any, body: object) -> Any:
    return TypeAdapter(kind).validate_python(body)


def _create(engine: EmbeddedQdrant, name: str, body: object) -> object:
    asked = _as(models.CreateCollection, body)
    return engine.create_collection(
        name,
        vectors_config=asked.vectors,
        sparse_vectors_config=asked.sparse_vectors,
        hnsw_config=asked.hnsw_config,
        on_disk_payload=asked.on_disk_payload,
        metadata=asked.metadata,
    )


def _query(engine: EmbeddedQdrant, name: str, body: object) -> object:
    asked = _as(QueryRequest, body)
    return engine.query_points(
        name,
        query=asked.query,
        using=asked.using,
        prefetch=asked.prefetch,
        query_filter=asked.filter,
        search_params=asked.params,
        limit=asked.limit or 10,
        offset=asked.offset,
        with_payload=asked.with_payload,
        with_vectors=asked.with_vector or False,
        score_threshold=asked.score_threshold,
    )


def _scroll(engine: EmbeddedQdrant, name: str, body: object) -> object:
    asked = _as(models.ScrollRequest, body)
    points, following = engine.scroll(
        name,
        scroll_filter=asked.filter,
        limit=asked.limit or 10,
        offset=asked.offset,
        order_by=asked.order_by,
        with_payload=asked.with_payload,
        with_vectors=asked.with_vector or False,
    )
    return {"points": _plain(points), "next_page_offset": following}


def _retrieve(engine: EmbeddedQdrant, name: str, body: object) -> object:
    asked = _as(models.PointRequest, body)
    return engine.retrieve(name, asked.ids, asked.with_payload, asked.with_vector or False)


def _index(engine: EmbeddedQdrant, name: str, body: object) -> object:
    asked = _as(models.CreateFieldIndex, body)
    return engine.create_payload_index(name, asked.field_name, asked.field_schema)


def _payload(method: str) -> Callable[..., object]:
    def change(engine: EmbeddedQdrant, name: str, body: object) -> object:
        asked = _as(models.SetPayload, body)
        selector = asked.points if asked.points is not None else asked.filter
        return getattr(engine, method)(name, asked.payload, selector, asked.key)

    return change


def _aliases(engine: EmbeddedQdrant, body: object) -> object:
    return engine.update_collection_aliases(_as(models.ChangeAliasesOperation, body).actions)


_C = r"/collections/([^/]+)"
_ROUTES: list[tuple[str, str, Callable[..., object]]] = [
    ("GET", "/collections", lambda engine, _: engine.get_collections()),
    ("GET", "/aliases", lambda engine, _: engine.get_aliases()),
    ("POST", "/collections/aliases", _aliases),
    ("GET", _C, lambda engine, name, _: engine.get_collection(name)),
    (
        "GET",
        f"{_C}/exists",
        lambda engine, name, _: {"exists": engine.collection_exists(name)},
    ),
    ("PUT", _C, _create),
    (
        "PATCH",
        _C,
        lambda engine, name, body: engine.update_collection(name, metadata=body.get("metadata")),
    ),
    ("DELETE", _C, lambda engine, name, _: engine.delete_collection(name)),
    ("PUT", f"{_C}/index", _index),
    (
        "PUT",
        f"{_C}/points",
        lambda engine, name, body: engine.upsert(name, _as(models.PointsList, body).points),
    ),
    ("POST", f"{_C}/points", _retrieve),
    ("POST", f"{_C}/points/query", _query),
    ("POST", f"{_C}/points/scroll", _scroll),
    (
        "POST",
        f"{_C}/points/count",
        lambda engine, name, body: engine.count(name, _as(models.CountRequest, body).filter),
    ),
    (
        "POST",
        f"{_C}/points/delete",
        lambda engine, name, body: engine.delete(name, _as(models.PointsSelector, body)),
    ),
    ("POST", f"{_C}/points/payload", _payload("set_payload")),
    ("PUT", f"{_C}/points/payload", _payload("overwrite_payload")),
    (
        "POST",
        f"{_C}/points/batch",
        lambda engine, name, body: engine.batch_update_points(
            name, _as(models.UpdateOperations, body).operations
        ),
    ),
]
