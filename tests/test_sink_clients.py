"""The clients, the mapping of what they raise, and the sizes of requests."""

import inspect
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise

import grpc
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qdrant_client import QdrantClient, models
from qdrant_client.common import client_exceptions
from qdrant_client.grpc import HealthCheckReply, HealthCheckRequest
from qdrant_client.http import exceptions as rest_exceptions
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse
from qdrant_stand_in import QdrantStandIn
from sink_contract import record, vector

from corral_sinks import SinkError, SinkOptions, SinkUnavailableError
from corral_sinks.qdrant import EmbeddedQdrant, Limits, MemoryQdrant, QdrantSink, _clients, connect
from corral_sinks.qdrant._errors import Place, TooLargeError, TransientError, mapped_errors
from corral_sinks.qdrant._upload import batches, record_bytes

PLACE = Place(name="the Qdrant server at http://h", api_key="s3cret")

# connect


def test_connect_gives_what_was_asked_for(tmp_path):
    with QdrantStandIn(tmp_path / "server") as server:
        for given, kind in [
            ({"url": server.url}, QdrantClient),
            ({"path": ":memory:"}, MemoryQdrant),
            ({"path": tmp_path / "db"}, EmbeddedQdrant),
            ({"path": str(tmp_path / "db2")}, EmbeddedQdrant),
        ]:
            with closing(connect(**given)) as client:
                assert isinstance(client, kind)
                assert client.get_collections().collections == []


@pytest.mark.parametrize("given", [{}, {"url": "http://u:pw@h?k=pw", "path": "d"}])
def test_connect_wants_exactly_one_of_url_and_path(given):
    with pytest.raises(SinkError, match="one of them; got url=") as caught:
        connect(**given)
    assert "pw" not in str(caught.value)


def test_connecting_to_a_server_asks_it_nothing_on_another_port_than_6333(tmp_path):
    with QdrantStandIn(tmp_path) as server:
        connect(url=server.url).close()
        assert server.requests == []


def test_an_https_address_without_a_port_goes_to_443():
    with closing(connect(url="https://corral.invalid")) as client:
        assert client.init_options["port"] == 443
        assert client.init_options["https"]


@pytest.fixture
def grpc_server(monkeypatch):
    """A gRPC server that answers Qdrant's health check, or refuses it."""
    refused = []

    def check(_, context):
        if refused:
            context.abort(refused[0], "no")
        return HealthCheckReply(title="qdrant", version="1.19.0")

    handler = grpc.unary_unary_rpc_method_handler(
        check, HealthCheckRequest.FromString, HealthCheckReply.SerializeToString
    )
    service = grpc.method_handlers_generic_handler("qdrant.Qdrant", {"HealthCheck": handler})
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        server.add_generic_rpc_handlers((service,))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        monkeypatch.setattr(_clients, "_GRPC_PROBE_SECONDS", 20.0)
        yield port, refused
        server.stop(None).wait()


def test_grpc_is_found_where_it_is_offered(grpc_server):
    port, refused = grpc_server
    assert _clients.offers_grpc(f"127.0.0.1:{port}", secure=False)
    refused.append(grpc.StatusCode.UNAUTHENTICATED)
    assert _clients.offers_grpc(f"127.0.0.1:{port}", secure=False)
    refused[0] = grpc.StatusCode.UNIMPLEMENTED
    assert not _clients.offers_grpc(f"127.0.0.1:{port}", secure=False)


@pytest.mark.parametrize("secure", [True, False])
def test_grpc_is_not_found_on_a_rest_port(tmp_path, secure):
    with QdrantStandIn(tmp_path) as server:
        address = server.url.removeprefix("http://")
        assert not _clients.offers_grpc(address, secure=secure)


def test_grpc_is_used_beside_the_usual_rest_port(grpc_server, monkeypatch):
    port, _ = grpc_server
    monkeypatch.setattr(_clients, "_GRPC_PORT", port)
    with closing(connect(url="http://127.0.0.1:6333")) as client:
        assert client.init_options["prefer_grpc"]
        assert client.init_options["grpc_port"] == port


def test_a_failing_grpc_server_is_unavailable_with_its_words(grpc_server, monkeypatch):
    port, _ = grpc_server
    monkeypatch.setattr(_clients, "_GRPC_PORT", port)
    options = SinkOptions(collection="docs", url="http://127.0.0.1:6333")
    with (
        closing(QdrantSink(options, limits=Limits(contact_seconds=60.0))) as sink,
        pytest.raises(SinkError, match="gRPC UNIMPLEMENTED"),
    ):
        sink.schema()


# Memory


def test_many_threads_may_use_the_client_in_memory():
    with closing(MemoryQdrant()) as client:
        params = models.VectorParams(size=8, distance=models.Distance.COSINE)
        client.create_collection("docs", {"dense": params})

        def work(thread):
            for batch in range(10):
                first = thread * 1000 + batch * 5
                client.upsert(
                    "docs",
                    [
                        models.PointStruct(id=first + n, vector={"dense": vector(n).tolist()})
                        for n in range(5)
                    ],
                )
                client.query_points("docs", query=vector(first).tolist(), using="dense")

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert client.count("docs").count == 400


def test_every_public_call_of_the_client_in_memory_waits_its_turn():
    with closing(MemoryQdrant()) as client:
        calls = [
            name
            for name, _ in inspect.getmembers(QdrantClient, inspect.isfunction)
            if not name.startswith("_")
        ]
        assert "upsert" in calls
        assert all(getattr(MemoryQdrant, name) is not getattr(QdrantClient, name) for name in calls)
        waited = threading.Event()
        with client._one_at_a_time:
            other = threading.Thread(target=lambda: (client.get_collections(), waited.set()))
            other.start()
            assert not waited.wait(0.1)
        other.join()
        assert waited.is_set()


# Mapping


def raised(error):
    with pytest.raises(SinkError) as caught, mapped_errors(PLACE):
        raise error
    return caught.value


def response(status, content=b'{"status":{"error":"its words"}}'):
    return UnexpectedResponse(status, "Reason", content, httpx.Headers())


class Call(grpc.RpcError, grpc.Call):
    """A failed gRPC call, as the library raises it."""

    def __init__(self, code):
        self._code = code

    def code(self):
        return self._code

    def details(self):
        return "its words"

    def add_callback(self, callback): ...
    def cancel(self): ...
    def initial_metadata(self): ...
    def is_active(self): ...
    def time_remaining(self): ...
    def trailing_metadata(self): ...


def subclasses(root):
    return {root}.union(*(subclasses(child) for child in root.__subclasses__()))


THIRD_PARTY = [
    *(
        ResponseHandlingException(kind("x"))
        for kind in sorted(subclasses(httpx.TransportError), key=str)
    ),
    *(kind("x") for kind in sorted(subclasses(httpx.TransportError), key=str)),
    *(response(status) for status in (None, 400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 599)),
    *(Call(code) for code in grpc.StatusCode),
    grpc.RpcError("x"),
    client_exceptions.QdrantException("x"),
    client_exceptions.ResourceExhaustedResponse("x", 3),
    rest_exceptions.ApiException("x"),
    httpx.InvalidURL("x"),
    httpx.DecodingError("x"),
    ResponseHandlingException(ValueError("x")),
    ValueError("x"),
    RuntimeError("x"),
    AssertionError("x"),
    NotImplementedError("x"),
    Exception("x"),
]


def test_nothing_that_the_clients_raise_is_unmapped():
    modules = (client_exceptions, rest_exceptions)
    known = {
        kind
        for module in modules
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, Exception) and kind.__module__ == module.__name__
    }
    assert known <= {type(error) for error in THIRD_PARTY}
    for error in THIRD_PARTY:
        mapped = raised(error)
        assert str(mapped).startswith(("the Qdrant server at", "cannot reach the Qdrant server"))
        assert mapped.__cause__ is error


def test_transport_failures_may_pass_and_wrong_addresses_do_not():
    for kind in (httpx.ConnectError, httpx.ReadTimeout, httpx.RemoteProtocolError):
        assert isinstance(raised(ResponseHandlingException(kind("x"))), TransientError)
    for kind in (httpx.UnsupportedProtocol, httpx.LocalProtocolError):
        assert not isinstance(raised(ResponseHandlingException(kind("x"))), SinkUnavailableError)


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (grpc.StatusCode.UNAVAILABLE, TransientError, "cannot reach .*its words"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, TransientError, "failed .*its words"),
        (grpc.StatusCode.UNAUTHENTICATED, SinkError, "refused the api key"),
        (grpc.StatusCode.INVALID_ARGUMENT, SinkError, "refused .*its words"),
    ],
)
def test_grpc_failures_are_told_apart(code, kind, words):
    with pytest.raises(SinkError, match=words) as caught, mapped_errors(PLACE):
        raise Call(code)
    assert type(caught.value) is kind


def test_the_servers_words_are_found_in_its_json_or_taken_as_they_are():
    assert "its words" in str(raised(response(400)))
    assert "<h1>Bad gateway</h1>" in str(raised(response(502, b"<h1>Bad gateway</h1>")))
    assert "Reason" in str(raised(response(500, b"")))
    assert isinstance(raised(response(413)), TooLargeError)


def test_the_api_key_never_stands_in_a_message():
    assert "s3cret" not in str(raised(Exception("header api-key: s3cret is odd")))
    assert "s3cret" not in repr(PLACE)


def test_long_words_are_cut():
    assert len(str(raised(Exception("x" * 10_000)))) < 600


def test_a_panic_in_the_engine_is_mapped_and_an_interrupt_is_not():
    panic = type("PanicException", (BaseException,), {})
    with pytest.raises(SinkError, match="broke down: index out of bounds"), mapped_errors(PLACE):
        raise panic("index out of bounds")
    with pytest.raises(KeyboardInterrupt), mapped_errors(PLACE):
        raise KeyboardInterrupt


def test_our_own_errors_pass_as_they_are():
    ours = SinkError("ours")
    assert raised(ours) is ours


# Sizes


@given(
    st.lists(st.integers(1, 500), max_size=60),
    st.integers(1, 1000),
    st.integers(1, 20),
)
def test_batches_keep_order_and_limits_and_are_as_full_as_they_can_be(sizes, most, count):
    limits = Limits(batch_bytes=most, batch_points=count)
    items = list(enumerate(sizes))
    made = list(batches(((item, item[1]) for item in items), limits))
    assert [item for batch in made for item in batch] == items
    for batch in made:
        assert len(batch) <= count
        assert len(batch) == 1 or sum(size for _, size in batch) <= most
    for batch, after in pairwise(made):
        assert len(batch) == count or sum(size for _, size in [*batch, after[0]]) > most


@given(st.text(max_size=200), st.integers(0, 2**32 - 1))
def test_a_records_bytes_are_never_under_what_is_sent(text, seed):
    payload = {"page_content": text, "metadata": {"source": "a"}}
    rows = vector(seed, 64)
    given_ = record(1, payload=payload, vectors={"dense": rows})
    sent = models.PointStruct(id=given_.id, vector={"dense": rows.tolist()}, payload=payload)
    estimate = record_bytes(given_, len(json.dumps(payload, ensure_ascii=False).encode()))
    assert estimate >= len(sent.model_dump_json().encode())
