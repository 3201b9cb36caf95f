"""The file of JSON lines: what stands in it, and what a crash leaves."""

import json
from contextlib import closing
from dataclasses import asdict

import numpy as np
import pytest
from sink_contract import SCHEMA, record, sparse

from corral_sinks import SinkError, SinkOptions, SinkUnavailableError, Storage
from corral_sinks.jsonl import JsonlSink


@pytest.fixture
def file(tmp_path):
    return tmp_path / "docs.jsonl"


def opened(file):
    return JsonlSink(SinkOptions(collection="docs", path=str(file.parent)))


@pytest.fixture
def sink(file):
    with closing(opened(file)) as sink:
        sink.create(SCHEMA)
        yield sink


def lines(file):
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def test_each_record_is_a_line_of_json_after_the_header(sink, file):
    sink.upsert([record(1), record(2)])
    header, first, second = lines(file)
    assert header["corral_jsonl"] == 2
    dense = {"size": 8, "distance": "cosine", "multivector": False, "indexed": True}
    assert header["schema"]["vectors"]["dense"] == {**dense, "storage": asdict(Storage())}
    assert header["schema"]["sparse_vectors"]["words"] == {"idf": True}
    assert first == {
        "id": record(1).id,
        "vectors": {"dense": record(1).vectors["dense"].tolist()},
        "payload": record(1).payload,
    }
    assert second["id"] == record(2).id


def test_a_sparse_vector_is_an_object_and_a_multivector_a_list_of_lists(sink, file):
    vectors = {"words": sparse([7, 0], [0.5, 1]), "multi": np.eye(8, dtype=np.float32)[:2]}
    sink.upsert([record(1, vectors=vectors)])
    assert lines(file)[1]["vectors"] == {
        "words": {"indices": [7, 0], "values": [0.5, 1.0]},
        "multi": np.eye(8)[:2].tolist(),
    }


def test_closing_leaves_one_line_for_each_record(sink, file):
    for _ in range(3):
        sink.upsert([record(1), record(2)])
    sink.delete([record(2).id])
    assert len(lines(file)) == 8
    sink.close()
    assert [line["id"] for line in lines(file)[1:]] == [record(1).id]


def test_a_line_that_a_crash_left_unfinished_is_cut_off(sink, file):
    sink.upsert([record(1), record(2)])
    content = file.read_bytes()
    sink.close()
    file.write_bytes(content[:-20])
    with closing(opened(file)) as again:
        assert again.count() == 1
        again.upsert([record(3)])
        assert again.count() == 2
    assert len(lines(file)) == 3


def test_it_reads_back_a_file_with_changes_and_deletions(sink, file):
    sink.upsert([record(1), record(2), record(3)])
    sink.set_payload({record(1).id: {"metadata": {"source": "b.md"}}})
    sink.delete([record(2).id])
    content = file.read_bytes()
    sink.close()
    file.write_bytes(content)
    with closing(opened(file)) as again:
        assert again.count() == 2
        assert list(again.stored("b.md")) == [record(1).id]


def test_changing_an_unknown_record_is_refused(sink):
    with pytest.raises(SinkError, match="holds no record"):
        sink.set_payload({record(9).id: {}})


def test_a_record_without_a_source_is_stored(sink):
    sink.upsert([record(1, payload={"page_content": "x"})])
    assert sink.count() == 1


def test_a_second_sink_is_told_that_the_file_is_held(sink, file):
    assert sink.schema() is not None
    with closing(opened(file)) as other, pytest.raises(SinkUnavailableError, match="held by"):
        other.schema()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "damaged or not corral's"),
        ("some text\n", "damaged or not corral's"),
        ('{"a": 1}\n', "damaged or not corral's"),
        ('{"corral_jsonl": 1}\n', "version 1; this corral reads 2"),
    ],
)
def test_a_file_that_is_not_ours_is_refused_and_left_alone(file, content, words):
    file.write_text(content)
    with closing(opened(file)) as sink, pytest.raises(SinkError, match=words):
        sink.schema()
    assert file.read_text() == content


def test_a_damaged_file_is_not_written_to_later(file):
    file.write_text("some text\n")
    with closing(opened(file)) as sink:
        for _ in range(2):
            with pytest.raises(SinkError):
                sink.upsert([record(1)])
    assert file.read_text() == "some text\n"


@pytest.mark.parametrize("given", [{}, {"path": ":memory:"}, {"url": "http://x", "path": "d"}])
def test_it_wants_a_folder_and_no_address(given):
    with pytest.raises(SinkError, match="--path, a folder"):
        JsonlSink(SinkOptions(collection="docs", **given))


def test_a_name_that_could_leave_the_folder_is_refused(tmp_path):
    with pytest.raises(SinkError, match="a collection's name"):
        JsonlSink(SinkOptions(collection="../docs", path=str(tmp_path)))


def test_a_full_disk_leaves_what_was_there(sink, file):
    sink.upsert([record(1)])

    class Full:
        def __init__(self, handle):
            self._handle = handle

        def write(self, data):
            self._handle.write(data[: len(data) // 2])
            raise OSError(28, "No space left on device")

        def __getattr__(self, name):
            return getattr(self._handle, name)

    real, sink._handle = sink._handle, Full(sink._handle)
    with pytest.raises(SinkError, match="No space left"):
        sink.upsert([record(2), record(3)])
    sink._handle = real
    assert sink.count() == 1
    sink.upsert([record(4)])
    assert [line["id"] for line in lines(file)[1:]] == [record(1).id, record(4).id]
