"""What goes between a sink and a server that offers gRPC, over a real connection."""

from contextlib import closing

import grpc
import pytest
from qdrant_grpc_stand_in import QdrantGrpcStandIn
from sink_contract import SCHEMA, record
from stand_ins import Clock
from test_sink_contract import SearchContract

from corral_sinks import SinkError, SinkOptions, SinkUnavailableError
from corral_sinks.qdrant import Limits, QdrantSink, _clients, _upload

QUICK = Limits(first_wait=0.01, total_seconds=20.0, contact_seconds=20.0, batch_points=10)
ROUNDED = 1.01
"""gRPC tells a server the time left in three digits, rounded up."""
KEY = "s3cret-Key-value"
Code = grpc.StatusCode


@pytest.fixture
def server(tmp_path, monkeypatch):
    with QdrantGrpcStandIn(tmp_path) as server:
        monkeypatch.setattr(_clients, "_GRPC_PORT", server.port)
        monkeypatch.setattr(_clients, "_GRPC_PROBE_SECONDS", 20.0)
        yield server


def opened(collection="docs", limits=QUICK):
    """Give a sink that finds gRPC beside port 6333, where nothing is."""
    options = SinkOptions(collection=collection, url="http://127.0.0.1:6333")
    return QdrantSink(options, limits=limits)


@pytest.fixture
def sink(server):
    with closing(opened()) as sink:
        sink.create(SCHEMA)
        server.calls.clear()
        yield sink


class TestGrpc(SearchContract):
    @pytest.fixture
    def open_sink(self, server):
        assert not server.calls
        return opened


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(_upload, "time", clock)
    return clock


def records(count):
    return [record(number) for number in range(count)]


def test_each_batch_is_sent_once_and_waited_for_when_all_is_well(server, sink):
    sink.upsert(records(25))
    assert [len(call.request.points) for call in server.seen("Upsert")] == [10, 10, 5]
    assert all(call.request.wait for call in server.seen("Upsert"))
    assert sink.count() == 25


@pytest.mark.parametrize(
    "code",
    [
        Code.UNAVAILABLE,
        Code.RESOURCE_EXHAUSTED,
        Code.DEADLINE_EXCEEDED,
        Code.INTERNAL,
        Code.ABORTED,
    ],
)
@pytest.mark.parametrize("applied", [True, False])
def test_a_passing_failure_is_retried_without_doubles(server, sink, code, applied):
    server.fail(code=code, times=2, apply=applied)
    sink.upsert(records(5))
    assert len(server.seen("Upsert")) == 3
    assert sink.count() == 5


@pytest.mark.parametrize(
    "code", [Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.FAILED_PRECONDITION, Code.UNIMPLEMENTED]
)
def test_other_failures_end_at_once_with_the_servers_words(server, sink, code):
    server.fail(code=code, words="Wrong input: the moon is wrong", times=1000)
    with pytest.raises(SinkError, match=f"gRPC {code.name}: Wrong input: the moon") as caught:
        sink.upsert(records(1))
    assert not isinstance(caught.value, SinkUnavailableError)
    assert len(server.seen("Upsert")) == 1


def test_the_servers_own_refusal_is_told(sink, server):
    server.engine.delete_collection("docs")
    with pytest.raises(SinkError, match=r"refused \(gRPC NOT_FOUND: .*has no collection 'docs'"):
        sink.upsert(records(1))


def test_no_call_is_given_longer_than_is_left_for_all_of_its_tries(server, sink):
    sink.upsert(records(1))
    sink.set_payload({record(0).id: {"metadata": {"source": "b.md"}}})
    assert sink.count() == 1
    sink.delete([record(0).id])
    sink.info()
    methods = ["Upsert", "UpdateBatch", "Count", "Delete", "Get"]
    assert [call.method for call in server.calls] == methods
    assert all(call.seconds <= ROUNDED * QUICK.total_seconds for call in server.calls)


@pytest.mark.usefixtures("clock")
def test_a_later_try_is_given_what_the_ones_before_have_left(server, sink):
    server.fail(code=Code.RESOURCE_EXHAUSTED, trailers=[("retry-after", "1")])
    sink.upsert(records(1))
    _, second = server.seen("Upsert")
    assert second.seconds <= ROUNDED * (QUICK.total_seconds - 1.0)


def test_no_call_is_given_longer_than_a_request_may_take(server):
    with closing(opened(limits=Limits(request_seconds=30.0))) as sink:
        sink.create(SCHEMA)
        sink.upsert(records(1))
    assert all(call.seconds <= ROUNDED * 30.0 for call in server.calls)
    assert len(server.seen("Upsert")) == 1


def test_a_client_that_is_called_by_others_keeps_its_own_limit(server, sink):
    sink.client.count("docs")
    (call,) = server.calls
    assert 2 * QUICK.total_seconds < call.seconds <= ROUNDED * 60.0


def test_what_a_server_asks_to_wait_is_honoured(server, sink, clock):
    server.fail(code=Code.RESOURCE_EXHAUSTED, trailers=[("retry-after", "1")])
    sink.upsert(records(1))
    assert len(server.seen("Upsert")) == 2
    (wait,) = clock.waits
    assert 1.0 <= wait <= 1.1


def test_a_failure_that_stays_ends_at_the_time_limit_with_the_servers_words(server, clock):
    limits = Limits(first_wait=1.0, longest_wait=30.0, total_seconds=300.0)
    with closing(opened(limits=limits)) as sink:
        sink.create(SCHEMA)
        server.fail(code=Code.UNAVAILABLE, times=10_000, words="disk is full")
        with pytest.raises(SinkUnavailableError, match=r"UNAVAILABLE: disk is full.*Given up"):
            sink.upsert(records(1))
    assert len(server.seen("Upsert")) == len(clock.waits) + 1


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (Code.RESOURCE_EXHAUSTED, "Received message larger than max (5000 vs. 4000)"),
        (Code.OUT_OF_RANGE, "Error, decoded message length too large: found 5000 bytes"),
    ],
)
def test_a_request_that_is_too_large_is_split(server, sink, code, words):
    server.fail(code=code, words=words, over_points=3, times=1000)
    sink.upsert(records(10))
    sizes = [len(call.request.points) for call in server.seen("Upsert")]
    assert [size for size in sizes if size <= 3] == [2, 3, 2, 3]
    assert sink.count() == 10


def test_a_write_may_take_longer_than_a_reading_may(server, sink, monkeypatch):
    monkeypatch.setattr(_clients, "_READ_SECONDS", 1)
    with closing(opened()) as slow:
        server.fail(seconds=1.5)
        slow.upsert(records(3))
    assert len(server.seen("Upsert")) == 1
    assert sink.count() == 3


def test_records_are_read_from_any_of_them_on(sink):
    sink.upsert(records(5))
    ids = [one.id for one in sink.records(vectors=False)]
    assert [one.id for one in sink.records(after=ids[2])] == ids[3:]
    assert list(sink.records(after=ids[-1])) == []


def test_reading_deleting_and_changing_are_retried_too(server, sink):
    sink.upsert(records(3))
    for method in ("Scroll", "Count", "Delete", "UpdateBatch", "Query"):
        server.fail(method=method, code=Code.UNAVAILABLE)
    sink.set_payload({record(0).id: {"metadata": {"source": "b.md"}}})
    sink.delete([record(1).id])
    assert len(sink.stored("a.md")) == 1
    assert sink.count() == 2
    found = sink.search(record(2).vectors["dense"], vector_name="dense", limit=1)
    assert [hit.id for hit in found] == [record(2).id]
    assert server.faults[-1].times == 0


def test_create_survives_a_lost_answer(server):
    server.fail(method="Create", code=Code.UNAVAILABLE, apply=True)
    with closing(opened("lost")) as sink:
        sink.create(SCHEMA)
        assert sink.schema().metadata == SCHEMA.metadata


def test_the_graph_is_built_after_the_load(sink):
    sink.defer_indexing()
    assert sink.info().config.optimizer_config.indexing_threshold == 0
    sink.upsert(records(3))
    sink.optimize()
    assert sink.info().config.optimizer_config.indexing_threshold == 20_000


def test_a_collection_beside_takes_over_the_name(sink):
    beside = sink.beside("0123abcd")
    beside.create(SCHEMA)
    beside.upsert(records(2))
    sink.switch("0123abcd", old_key="fedc3210")
    assert sink.count() == 2
    assert sink.replaced() == []


def test_the_api_key_comes_along_and_its_lack_is_told(tmp_path, monkeypatch, caplog):
    with QdrantGrpcStandIn(tmp_path, api_key=KEY) as server:
        monkeypatch.setattr(_clients, "_GRPC_PORT", server.port)
        with closing(opened()) as sink, pytest.raises(SinkError, match=r"asks for an api key"):
            sink.schema()
        monkeypatch.setenv("QDRANT_API_KEY", KEY)
        with closing(opened()) as sink:
            sink.create(SCHEMA)
        assert {call.api_key for call in server.calls} == {KEY}
    assert KEY not in caplog.text
