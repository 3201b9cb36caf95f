"""A Qdrant server for tests that speaks gRPC: what corral calls, over a real connection.

Behind it works the real embedded engine. Faults are injected by call. It is no Qdrant server: what
is not listed below answers UNIMPLEMENTED.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import grpc as transport
from qdrant_client import grpc, models
from qdrant_client.conversions import conversion
from qdrant_client.conversions.conversion import GrpcToRest, RestToGrpc
from stand_ins import AnyFault, StandIn

from corral_sinks import SinkError
from corral_sinks.qdrant import EmbeddedQdrant


@dataclass(kw_only=True)
class Fault(AnyFault):
    """A fault of gRPC.

    Args:
        method: of the calls, such as "Upsert".
        code: to fail with, or None to answer as usual.
        trailers: metadata sent along.
        over_points: only upserts of more points.
    """

    method: str = "Upsert"
    code: transport.StatusCode | None = None
    trailers: Sequence[tuple[str, str]] = ()
    over_points: int = -1

    def fits(self, method: str, request: Any) -> bool:
        """Whether it is for this call."""
        points = len(getattr(request, "points", ())) if method == "Upsert" else 0
        return method == self.method and points > self.over_points


@dataclass(frozen=True)
class Call:
    """One call as it came in, with the seconds that the client waits for it at most."""

    method: str
    request: Any
    api_key: str | None
    seconds: float
    at: float = field(default_factory=time.monotonic)


class QdrantGrpcStandIn(StandIn, transport.ServerInterceptor):
    """A server on a free port of 127.0.0.1; a context manager."""

    fault = Fault

    def __init__(self, folder: Path, api_key: str | None = None) -> None:
        super().__init__(folder, api_key)
        self.calls: list[Call] = []
        self._pool = ThreadPoolExecutor(8)
        self._server = transport.server(self._pool, interceptors=[self])
        grpc.add_QdrantServicer_to_server(_Health(), self._server)
        grpc.add_CollectionsServicer_to_server(_Collections(self.engine), self._server)
        grpc.add_PointsServicer_to_server(_Points(self.engine), self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    def seen(self, method: str) -> list[Call]:
        """Calls of a method."""
        return [call for call in self.calls if call.method == method]

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()
        self._pool.shutdown()
        self.engine.close()

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        """Note a call, and let it fail where a fault takes it."""
        handler = continuation(details)
        if handler is None:
            return None
        method = details.method.rpartition("/")[2]
        key = dict(details.invocation_metadata).get("api-key")

        def serve(request: Any, context: Any) -> Any:
            if self.api_key not in {None, key}:
                context.abort(transport.StatusCode.UNAUTHENTICATED, "Must provide an API key")
            self.calls.append(Call(method, request, key, context.time_remaining()))
            fault = self.fault_for(method, request)
            if fault is None:
                return handler.unary_unary(request, context)
            time.sleep(fault.seconds)
            answer = handler.unary_unary(request, context) if fault.apply else None
            if fault.code is not None:
                context.set_trailing_metadata(tuple(fault.trailers))
                context.abort(fault.code, fault.words)
            return answer or handler.unary_unary(request, context)

        return transport.unary_unary_rpc_method_handler(
            serve, handler.request_deserializer, handler.response_serializer
        )


@contextmanager
def _told(context: transport.ServicerContext) -> Iterator[None]:
    """Fail as a server does where the engine refuses."""
    try:
        yield
    except SinkError as error:
        words = str(error)
        codes = transport.StatusCode
        missing, there = "has no collection" in words, "already" in words
        code = codes.NOT_FOUND if missing else codes.ALREADY_EXISTS if there else None
        context.abort(code or codes.INVALID_ARGUMENT, words)
    except Exception as error:  # noqa: BLE001 - of the stand-in; not to be retried
        context.abort(transport.StatusCode.UNIMPLEMENTED, f"stand-in: {error!r}")


def _answering(handle: Callable[[EmbeddedQdrant, Any], Any]) -> Any:
    """Make a servicer's method of what answers a request."""

    def method(self: Any, request: Any, context: Any) -> Any:
        with _told(context):
            return handle(self.engine, request)

    return method


def _given(request: Any, name: str, convert: Callable[[Any], Any]) -> Any:
    return convert(getattr(request, name)) if request.HasField(name) else None


def _create(engine: EmbeddedQdrant, request: Any) -> Any:
    made = engine.create_collection(
        request.collection_name,
        vectors_config=_given(request, "vectors_config", GrpcToRest.convert_vectors_config),
        sparse_vectors_config=_given(
            request, "sparse_vectors_config", GrpcToRest.convert_sparse_vector_config
        ),
        hnsw_config=_given(request, "hnsw_config", GrpcToRest.convert_hnsw_config_diff),
        on_disk_payload=_given(request, "on_disk_payload", bool),
        metadata=conversion.grpc_to_payload(request.metadata),
    )
    return grpc.CollectionOperationResponse(result=made)


def _exists(engine: EmbeddedQdrant, request: Any) -> Any:
    exists = engine.collection_exists(request.collection_name)
    return grpc.CollectionExistsResponse(result=grpc.CollectionExists(exists=exists))


def _drop(engine: EmbeddedQdrant, request: Any) -> Any:
    return grpc.CollectionOperationResponse(
        result=engine.delete_collection(request.collection_name)
    )


def _list(engine: EmbeddedQdrant, _: Any) -> Any:
    found = engine.get_collections().collections
    return grpc.ListCollectionsResponse(
        collections=map(RestToGrpc.convert_collection_description, found)
    )


def _alias(engine: EmbeddedQdrant, request: Any) -> Any:
    actions = [GrpcToRest.convert_alias_operations(action) for action in request.actions]
    return grpc.CollectionOperationResponse(result=engine.update_collection_aliases(actions))


def _aliases(engine: EmbeddedQdrant, _: Any) -> Any:
    found = engine.get_aliases().aliases
    return grpc.ListAliasesResponse(aliases=map(RestToGrpc.convert_alias_description, found))


class _Health(grpc.QdrantServicer):
    def HealthCheck(self, *_: Any) -> Any:  # noqa: N802 - gRPC's names
        return grpc.HealthCheckReply(title="qdrant", version="1.19.0")


class _Served:
    def __init__(self, engine: EmbeddedQdrant) -> None:
        self.engine = engine


class _Collections(_Served, grpc.CollectionsServicer):
    """Keeps when graphs are built, too, which the engine has no setting for."""

    def __init__(self, engine: EmbeddedQdrant) -> None:
        super().__init__(engine)
        self.indexing: dict[str, int] = {}

    def Get(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's names
        with _told(context):
            found = self.engine.get_collection(request.collection_name)
        config = found.config
        config.wal_config = models.WalConfig(wal_capacity_mb=32, wal_segments_ahead=0)
        threshold = self.indexing.get(request.collection_name, 20_000)
        config.optimizer_config.indexing_threshold = threshold
        return grpc.GetCollectionInfoResponse(result=RestToGrpc.convert_collection_info(found))

    def Update(self, request: Any, _: Any) -> Any:  # noqa: N802 - gRPC's names
        threshold = request.optimizers_config.indexing_threshold
        self.indexing[request.collection_name] = threshold
        return grpc.CollectionOperationResponse(result=True)

    Create = _answering(_create)
    CollectionExists = _answering(_exists)
    Delete = _answering(_drop)
    List = _answering(_list)
    UpdateAliases = _answering(_alias)
    ListAliases = _answering(_aliases)


def _updated(result: models.UpdateResult) -> Any:
    return grpc.PointsOperationResponse(result=RestToGrpc.convert_update_result(result))


def _upsert(engine: EmbeddedQdrant, request: Any) -> Any:
    points = [GrpcToRest.convert_point_struct(point) for point in request.points]
    return _updated(engine.upsert(request.collection_name, points))


def _delete(engine: EmbeddedQdrant, request: Any) -> Any:
    selector = GrpcToRest.convert_points_selector(request.points)
    return _updated(engine.delete(request.collection_name, selector))


def _batch(engine: EmbeddedQdrant, request: Any) -> Any:
    given = [GrpcToRest.convert_points_update_operation(one) for one in request.operations]
    results = engine.batch_update_points(request.collection_name, given)
    return grpc.UpdateBatchResponse(result=map(RestToGrpc.convert_update_result, results))


def _index(engine: EmbeddedQdrant, request: Any) -> Any:
    kind = _given(request, "field_index_params", GrpcToRest.convert_payload_schema_params)
    if kind is None:
        plain = conversion.grpc_field_type_to_payload_schema(request.field_type)
        kind = GrpcToRest.convert_payload_schema_type(plain)
    return _updated(engine.create_payload_index(request.collection_name, request.field_name, kind))


def _filter(request: Any) -> models.Filter | None:
    return _given(request, "filter", GrpcToRest.convert_filter)


def _with(request: Any) -> dict[str, Any]:
    vectors = _given(request, "with_vectors", GrpcToRest.convert_with_vectors_selector)
    return {
        "with_payload": _given(request, "with_payload", GrpcToRest.convert_with_payload_selector),
        "with_vectors": vectors or False,
    }


def _count(engine: EmbeddedQdrant, request: Any) -> Any:
    found = engine.count(request.collection_name, _filter(request))
    return grpc.CountResponse(result=RestToGrpc.convert_count_result(found))


def _scroll(engine: EmbeddedQdrant, request: Any) -> Any:
    points, following = engine.scroll(
        request.collection_name,
        scroll_filter=_filter(request),
        limit=request.limit,
        offset=_given(request, "offset", GrpcToRest.convert_point_id),
        **_with(request),
    )
    answer = grpc.ScrollResponse(result=map(RestToGrpc.convert_retrieved_point, points))
    if following is not None:
        answer.next_page_offset.CopyFrom(RestToGrpc.convert_extended_point_id(following))
    return answer


def _retrieve(engine: EmbeddedQdrant, request: Any) -> Any:
    ids = [GrpcToRest.convert_point_id(point) for point in request.ids]
    found = engine.retrieve(request.collection_name, ids, **_with(request))
    return grpc.GetResponse(result=map(RestToGrpc.convert_retrieved_point, found))


def _query(engine: EmbeddedQdrant, request: Any) -> Any:
    asked = GrpcToRest.convert_query_points(request)
    found = engine.query_points(
        request.collection_name,
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
    return grpc.QueryResponse(result=map(RestToGrpc.convert_scored_point, found.points))


class _Points(_Served, grpc.PointsServicer):
    Upsert = _answering(_upsert)
    Delete = _answering(_delete)
    UpdateBatch = _answering(_batch)
    CreateFieldIndex = _answering(_index)
    Count = _answering(_count)
    Scroll = _answering(_scroll)
    Get = _answering(_retrieve)
    Query = _answering(_query)
