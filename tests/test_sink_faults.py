"""What goes wrong between a sink and a server, over real HTTP."""

import json
import logging
import socket
from contextlib import closing
from types import SimpleNamespace

import pytest
from qdrant_client import models
from qdrant_stand_in import QdrantStandIn
from sink_contract import SCHEMA, record
from stand_ins import Clock

from corral_sinks import Schema, SinkError, SinkOptions, SinkUnavailableError, VectorParams
from corral_sinks.qdrant import Limits, QdrantSink, _upload
from corral_sinks.qdrant._upload import record_bytes

QUICK = Limits(first_wait=0.01, total_seconds=20.0, contact_seconds=20.0, batch_points=10)
UNNAMED = models.VectorParams(size=8, distance=models.Distance.COSINE)
KEY = "s3cret-Key-value"


@pytest.fixture
def server(tmp_path):
    with QdrantStandIn(tmp_path) as server:
        yield server


@pytest.fixture
def sink(server):
    options = SinkOptions(collection="docs", url=server.url)
    with closing(QdrantSink(options, limits=QUICK)) as sink:
        sink.create(SCHEMA)
        server.requests.clear()
        yield sink


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(_upload, "time", clock)
    return clock


def records(count):
    return [record(number) for number in range(count)]


def test_each_batch_is_sent_once_when_all_is_well(server, sink):
    sink.upsert(records(25))
    assert len(server.seen("PUT", "/points")) == 3
    assert sink.count() == 25


def test_batches_keep_to_the_limit_of_bytes(server):
    limits = Limits(batch_bytes=20_000)
    options = SinkOptions(collection="big", url=server.url)
    with closing(QdrantSink(options, limits=limits)) as sink:
        sink.create(SCHEMA)
        payload = {"page_content": "é" * 2000, "metadata": {"source": "a"}}
        sink.upsert([record(number, payload=payload) for number in range(40)])
        sizes = [request.size for request in server.seen("PUT", "/points")]
        assert len(sizes) == 10
        assert max(sizes) <= 20_000
        assert sink.count() == 40


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_passing_failure_is_retried(server, sink, status):
    server.fail(status=status, times=2)
    sink.upsert(records(5))
    assert len(server.seen("PUT", "/points")) == 3
    assert sink.count() == 5


def test_waits_grow_between_tries(server, sink, clock):
    server.fail(status=503, times=4)
    sink.upsert(records(1))
    assert len(server.seen("PUT", "/points")) == 5
    assert clock.waits == [
        pytest.approx(0.75 * wait, rel=1 / 3) for wait in (0.01, 0.02, 0.04, 0.08)
    ]


def test_retry_after_is_honoured(server, sink, clock):
    server.fail(status=429, headers={"Retry-After": "1"})
    sink.upsert(records(1))
    assert len(server.seen("PUT", "/points")) == 2
    (wait,) = clock.waits
    assert 1.0 <= wait <= 1.1


def test_a_retry_after_that_is_a_date_is_retried_too(server, sink):
    server.fail(status=429, headers={"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"})
    sink.upsert(records(1))
    assert sink.count() == 1


def test_a_retry_after_beyond_the_time_limit_gives_up_at_once(server, sink):
    server.fail(status=429, headers={"Retry-After": "3600"})
    with pytest.raises(SinkUnavailableError, match=r"slow down.*Given up after 1 try .*limit 20 s"):
        sink.upsert(records(1))


def test_a_failure_that_stays_ends_at_the_time_limit_with_the_servers_words(server, clock):
    options = SinkOptions(collection="docs", url=server.url)
    limits = Limits(first_wait=1.0, longest_wait=30.0, total_seconds=300.0)
    with closing(QdrantSink(options, limits=limits)) as sink:
        sink.create(SCHEMA)
        server.fail(status=503, times=10_000, words="disk is full")
        with pytest.raises(SinkUnavailableError, match=r"503: disk is full.*Given up"):
            sink.upsert(records(1))
    assert len(server.seen("PUT", "/points")) == len(clock.waits) + 1
    assert 300.0 - 30.0 < sum(clock.waits) <= 300.0
    assert 15.0 <= max(clock.waits) <= 30.0


@pytest.mark.parametrize("applied", [True, False])
def test_a_dropped_connection_is_retried_without_doubles(server, sink, applied):
    server.fail(drop=True, apply=applied, times=2)
    sink.upsert(records(5))
    assert len(server.seen("PUT", "/points")) == 3
    assert sink.count() == 5


def test_a_slow_answer_is_retried_without_doubles(server):
    options = SinkOptions(collection="docs", url=server.url)
    limits = Limits(first_wait=0.01, request_seconds=1.0)
    with closing(QdrantSink(options, limits=limits)) as sink:
        sink.create(SCHEMA)
        server.fail(seconds=1.5, apply=True)
        sink.upsert(records(3))
        assert len(server.seen("PUT", "/points")) >= 2
        assert sink.count() == 3


def test_no_request_waits_longer_than_is_left_for_all_of_its_tries(server, sink):
    waits = []

    def noted(request, send):
        answer = send(request)
        waits.append(max(request.extensions["timeout"].values()))
        return answer

    sink.client.http.client.add_middleware(noted)
    server.fail(status=429, headers={"Retry-After": "1"})
    sink.upsert(records(1))
    first, second = waits
    assert first <= QUICK.total_seconds
    assert second <= QUICK.total_seconds - 1.0
    waits.clear()
    sink.info()
    sink.client.count("docs")
    own = sink.client.http.client._client.timeout.read
    assert waits[0] <= QUICK.total_seconds
    assert waits[1] == own


@pytest.mark.parametrize(
    ("status", "words"),
    [(413, "too large"), (400, "JSON payload (99 bytes) is larger than allowed (limit: 9)")],
)
def test_a_request_that_is_too_large_is_split(server, sink, status, words):
    server.fail(status=status, words=words, over_bytes=1500, times=1000)
    sink.upsert(records(10))
    taken = [request for request in server.seen("PUT", "/points") if request.size <= 1500]
    assert len(taken) > 1
    assert sink.count() == 10


def test_one_point_that_is_too_large_for_the_server_is_named(server, sink):
    server.fail(status=413, over_bytes=0, times=1000)
    with pytest.raises(SinkError, match=r"of 'a\.md' alone is larger.*413") as caught:
        sink.upsert(records(4))
    assert not isinstance(caught.value, SinkUnavailableError)
    assert record(0).id in str(caught.value)


def test_one_point_over_the_servers_limit_is_refused_before_anything_is_sent(server):
    options = SinkOptions(collection="docs", url=server.url)
    with closing(QdrantSink(options, limits=Limits(request_bytes=10_000))) as sink:
        sink.create(SCHEMA)
        large = {"page_content": "x" * 10_000, "metadata": {"source": "large.md"}}
        with pytest.raises(SinkError, match=r"'large\.md' alone is larger.*max_request_size_mb"):
            sink.upsert([record(1), record(2, payload=large)])
        assert sink.count() == 0
    assert server.seen("PUT", "/points") == []


def test_a_point_is_measured_exactly_before_it_is_refused(server):
    small = record(1, payload={"page_content": "x" * 150})
    limit = record_bytes(small, len(json.dumps(small.payload))) - 1
    options = SinkOptions(collection="docs", url=server.url)
    with closing(QdrantSink(options, limits=Limits(request_bytes=limit))) as sink:
        sink.create(SCHEMA)
        sink.upsert([small])
        assert sink.count() == 1


@pytest.mark.parametrize("status", [400, 404, 409, 422])
def test_other_client_errors_fail_at_once_with_the_servers_words(server, sink, status):
    server.fail(status=status, words="Wrong input: the moon is wrong", times=1000)
    with pytest.raises(SinkError, match=f"HTTP {status}: Wrong input: the moon is wrong") as caught:
        sink.upsert(records(1))
    assert not isinstance(caught.value, SinkUnavailableError)
    assert len(server.seen("PUT", "/points")) == 1


@pytest.mark.parametrize("status", ["acknowledged", "wait_timeout"])
def test_a_write_that_was_accepted_but_not_applied_is_sent_again(server, sink, status):
    server.fail(result={"operation_id": 1, "status": status})
    sink.upsert(records(3))
    assert sink.count() == 3


def test_reading_deleting_and_changing_are_retried_too(server, sink):
    sink.upsert(records(3))
    for path in ("/points/scroll", "/points/count", "/points/delete", "/points/batch"):
        server.fail(method="POST", path=path, status=503)
    server.fail(
        method="POST", path="/points/batch", result=[{"operation_id": 1, "status": "acknowledged"}]
    )
    sink.set_payload({record(0).id: {"metadata": {"source": "b.md"}}})
    sink.delete([record(1).id])
    assert len(sink.stored("a.md")) == 1
    assert sink.count() == 2


def test_create_survives_a_lost_answer(server):
    options = SinkOptions(collection="lost", url=server.url)
    server.fail(path="/collections/lost", drop=True, apply=True)
    with closing(QdrantSink(options, limits=QUICK)) as sink:
        sink.create(SCHEMA)
        assert sink.schema().metadata == SCHEMA.metadata


def test_a_server_that_keeps_no_metadata_is_refused(server):
    options = SinkOptions(collection="old", url=server.url)
    with closing(QdrantSink(options, limits=QUICK)) as sink:
        server.engine.create_collection("old", {"dense": UNNAMED})
        server.fail(method="GET", path="/old/exists", result={"exists": False})
        server.fail(method="GET", path="/old/exists", result={"exists": True})
        with pytest.raises(SinkError, match=r"did not keep the metadata.*1\.16"):
            sink.create(SCHEMA)


def test_a_foreign_collection_with_an_unnamed_vector_is_described_and_read(server):
    server.engine.create_collection("foreign", UNNAMED)
    with closing(QdrantSink(SinkOptions(collection="foreign", url=server.url))) as sink:
        schema = sink.schema()
        assert {name: params.size for name, params in schema.vectors.items()} == {"": 8}
        assert schema.metadata == {}
        assert schema.indexes == {}
        sink.upsert([record(1, vectors={"": record(1).vectors["dense"]})])
        hits = sink.search(record(1).vectors["dense"], vector_name="", limit=1)
        assert hits[0].id == record(1).id


def test_an_unknown_distance_is_refused(server):
    with closing(QdrantSink(SinkOptions(collection="odd", url=server.url))) as odd:
        params = VectorParams(size=8, distance="hamming")
        with pytest.raises(SinkError, match=r"no distance 'hamming'.*cosine"):
            odd.create(Schema(vectors={"dense": params}))


# Getting there at all


@pytest.mark.usefixtures("clock")
def test_an_unreachable_server_is_said_within_seconds_with_what_to_do():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # so that nobody else listens there meanwhile
        port = taken.getsockname()[1]
        url = f"http://user:{KEY}@127.0.0.1:{port}/?token={KEY}"
        sink = QdrantSink(SinkOptions(collection="docs", url=url))
        with closing(sink), pytest.raises(SinkUnavailableError) as caught:
            sink.schema()
    assert "(limit 5 s)" in str(caught.value)
    assert f"http://127.0.0.1:{port}/" in str(caught.value)
    assert "--path DIR" in str(caught.value)
    assert KEY not in str(caught.value)


@pytest.mark.usefixtures("clock")
def test_a_host_that_does_not_exist_is_unavailable():
    options = SinkOptions(collection="docs", url="http://corral.invalid:6333")
    sink = QdrantSink(options, limits=QUICK)
    with (
        closing(sink),
        pytest.raises(SinkUnavailableError, match=r"corral\.invalid.*Check that the server"),
    ):
        sink.schema()


def test_something_else_than_qdrant_behind_the_address_is_said(server):
    server.fail(method="GET", path="/exists", result="<html>")
    sink = QdrantSink(SinkOptions(collection="docs", url=server.url))
    with (
        closing(sink),
        pytest.raises(SinkError, match=r"did not answer as Qdrant does.*address right"),
    ):
        sink.schema()


@pytest.mark.parametrize("url", ["localhost:6333", "ftp://host", "http://", "http://host:port"])
def test_an_address_that_is_none_is_refused(url):
    sink = QdrantSink(SinkOptions(collection="docs", url=url))
    with closing(sink), pytest.raises(SinkError, match=r"not the address.*http://localhost:6333"):
        sink.schema()


@pytest.mark.parametrize("where", [{}, {"url": "http://localhost:1", "path": "x"}])
def test_neither_or_both_of_url_and_path_are_refused(where):
    with pytest.raises(SinkError, match=r"--url.*--path.*one of"):
        QdrantSink(SinkOptions(collection="docs", **where))


@pytest.fixture
def guarded(tmp_path):
    with QdrantStandIn(tmp_path, api_key=KEY) as server:
        options = SinkOptions(collection="docs", url=server.url)
        with closing(QdrantSink(options, limits=QUICK)) as sink:
            yield SimpleNamespace(server=server, sink=sink)


def test_the_api_key_comes_from_the_environment_and_is_warned_about_on_plain_http(
    guarded, monkeypatch, caplog
):
    monkeypatch.setenv("QDRANT_API_KEY", KEY)
    with (
        caplog.at_level(logging.WARNING),
        closing(
            QdrantSink(SinkOptions(collection="docs", url=guarded.server.url), limits=QUICK)
        ) as sink,
    ):
        sink.create(SCHEMA)
        sink.upsert(records(1))
    assert {request.api_key for request in guarded.server.requests} == {KEY}
    assert [entry.message.count("unencrypted") for entry in caplog.records] == [1]
    assert KEY not in caplog.text


def test_a_missing_api_key_names_the_variable_and_is_not_retried(guarded):
    with pytest.raises(SinkError, match=r"asks for an api key.*401.*QDRANT_API_KEY") as caught:
        guarded.sink.schema()
    assert not isinstance(caught.value, SinkUnavailableError)
    assert len(guarded.server.requests) == 1


def test_a_wrong_api_key_is_said_without_showing_it(guarded, monkeypatch):
    monkeypatch.setenv("QDRANT_API_KEY", "wrong-key-value")
    guarded.server.fail(
        method="GET", path="/exists", status=403, words="no such key: wrong-key-value"
    )
    sink = QdrantSink(SinkOptions(collection="docs", url=guarded.server.url), limits=QUICK)
    with closing(sink), pytest.raises(SinkError, match=r"refused the api key.*403") as caught:
        sink.schema()
    assert "wrong-key-value" not in str(caught.value)
    assert "wrong-key-value" not in repr(sink)
