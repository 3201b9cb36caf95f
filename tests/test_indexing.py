"""Loading much: no graph meanwhile, all of it afterwards, and how far it is."""

import logging
from contextlib import closing

import pytest
from qdrant_stand_in import QdrantStandIn
from retrieving import write
from sink_contract import SCHEMA, record

from corral.transfer import copy
from corral_sinks import SinkError, SinkOptions
from corral_sinks.qdrant import QdrantSink, _indexing


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setattr(_indexing, "_FIRST_WAIT", 0.001)
    with QdrantStandIn(tmp_path / "server") as running:
        yield running


@pytest.fixture
def sink(server):
    with closing(QdrantSink(SinkOptions(collection="docs", url=server.url))) as sink:
        sink.create(SCHEMA)
        yield sink


def test_a_server_defers_and_then_builds_and_tells_how_far_it_is(server, sink, caplog):
    caplog.set_level(logging.INFO)
    sink.defer_indexing()
    assert server.indexing == {"docs": 0}
    sink.upsert([record(1)])
    server.statuses += [
        {"status": "green"},
        {"status": "yellow", "indexed_vectors_count": 500, "points_count": 1000},
        {"status": "grey", "indexed_vectors_count": 900, "points_count": 1000},
        {"status": "green"},
        {"status": "green"},
    ]
    sink.optimize()
    assert server.indexing == {"docs": 10_000}
    assert server.statuses == []
    assert "indexed 500 of 1,000 vectors" in caplog.text


def test_a_collection_that_was_not_deferred_is_left_to_the_server(server, sink):
    sink.optimize()
    assert server.indexing == {}


def test_an_optimiser_that_failed_is_told(server, sink):
    sink.defer_indexing()
    server.statuses.append({"optimizer_status": {"error": "no space left"}})
    with pytest.raises(SinkError, match="cannot build its indexes: no space left"):
        sink.optimize()


def test_a_new_collection_is_deferred_and_one_that_is_there_is_not(server, tmp_path):
    write(tmp_path, url=server.url)
    assert server.indexing == {"docs": 10_000}
    changes = len(server.seen("PATCH", "/docs"))
    write(tmp_path, url=server.url)
    assert len(server.seen("PATCH", "/docs")) == changes == 2


def test_a_run_that_broke_off_is_brought_to_its_end_by_the_next(server, sink, tmp_path):
    sink.defer_indexing()
    target = SinkOptions(collection="other", path=str(tmp_path / "db"))
    with closing(QdrantSink(target)) as folder:
        folder.create(SCHEMA)
    copy(target, SinkOptions(collection="docs", url=server.url), tell=lambda *_: None)
    assert server.indexing == {"docs": 10_000}


def test_the_embedded_engine_says_when_it_builds(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    target = SinkOptions(collection="docs", path=str(tmp_path))
    with closing(QdrantSink(target)) as sink:
        sink.create(SCHEMA)
        sink.defer_indexing()
        sink.upsert([record(1)])
        sink.optimize()
    assert "building the index of 1 vectors" in caplog.text
    assert "built in" in caplog.text
