"""Places that cannot be used are said in words that lead on."""

import errno
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from corral_sinks import Schema, SinkError, SinkOptions, VectorParams
from corral_sinks._lock import OwnerLock
from corral_sinks.qdrant import EmbeddedQdrant, QdrantSink


def test_a_path_that_is_a_file_is_said(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SinkError, match="is a file"):
        EmbeddedQdrant(tmp_path / "file")


@pytest.fixture
def collection(tmp_path):
    sink = QdrantSink(SinkOptions(collection="docs", path=str(tmp_path / "db")))
    sink.create(Schema(vectors={"dense": VectorParams(size=2)}))
    sink.close()
    return tmp_path / "db" / "docs"


@pytest.mark.parametrize(
    ("lost", "words"), [("corral.json", "lost it"), ("segments", "bring back a copy")]
)
def test_a_damaged_collection_is_said_with_the_way_out(collection, lost, words):
    found = collection / lost
    found.unlink() if found.is_file() else shutil.rmtree(found)
    sink = QdrantSink(SinkOptions(collection="docs", path=str(collection.parent)))
    with pytest.raises(SinkError, match=words):
        sink.schema()
    sink.close()


def test_a_folder_that_may_not_be_written_is_said(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(SinkError, match="copy the folder to where you may write"):
        OwnerLock(tmp_path / "lock", "the folder")


class _Page(BaseHTTPRequestHandler):
    def do_GET(self):
        """Answer as a web server does."""
        page = b"<html>Not Found</html>"
        self.send_response(404)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_):
        """Say nothing."""


def test_a_server_that_is_no_qdrant_is_said():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        sink = QdrantSink(SinkOptions(collection="docs", url=url))
        with pytest.raises(SinkError, match="did not answer as Qdrant does"):
            sink.schema()
        sink.close()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_an_engine_that_cannot_load_is_said_with_the_way_out(collection):
    for file in collection.glob("segments/*/segment.json"):
        file.write_text("{")
    (collection / "edge_config.json").write_text("{")
    sink = QdrantSink(SinkOptions(collection="docs", path=str(collection.parent)))
    with pytest.raises(SinkError, match="bring back a copy"):
        sink.schema()
    sink.close()
