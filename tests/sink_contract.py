"""The law of `corral_sinks.Sink`, as a suite that every implementation inherits.

A subclass says how to open a sink on one store that outlives it:

    class TestMine(SinkContract):
        @pytest.fixture
        def open_sink(self, tmp_path):
            return lambda collection="docs": MySink(SinkOptions(collection=collection, ...))
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing

import numpy as np
import pytest

from corral_sinks import (
    Record,
    Schema,
    Sink,
    SinkError,
    SparseParams,
    SparseVector,
    VectorParams,
)

OpenSink = Callable[..., Sink]

SIZE = 8
SCHEMA = Schema(
    vectors={
        "dense": VectorParams(size=SIZE),
        "multi": VectorParams(size=SIZE, multivector=True, indexed=False),
    },
    sparse_vectors={"words": SparseParams(idf=True), "weights": SparseParams()},
    metadata={"corral": {"model": "m", "dim": SIZE, "nested": [1, None, "é", True, 0.5]}},
    indexes={"metadata.source": "keyword"},
)
AWKWARD = '\u0000 👩‍👩‍👧‍👦 e\u0301 \r\n \u202eabc 안녕 हिन्दी "quoted" \\ </script>'


def vector(seed: int, size: int = SIZE) -> np.ndarray:
    """A random unit vector."""
    drawn = np.random.default_rng(seed).standard_normal(size).astype(np.float32)
    return drawn / np.linalg.norm(drawn)


def sparse(indices: object, values: object) -> SparseVector:
    """A sparse vector of these numbers."""
    return SparseVector(indices=np.array(indices), values=np.array(values, np.float32))


def record(number: int, source: str = "a.md", **changes: object) -> Record:
    """A record whose id, vector and payload follow from its source and number."""
    fields: dict[str, object] = {
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{source}/{number}")),
        "vectors": {"dense": vector(number)},
        "payload": {
            "page_content": f"text {number}",
            "metadata": {"source": source, "start": number, "end": number + 5},
        },
    }
    return Record(**(fields | changes))


class SinkContract:
    """What holds for every sink."""

    keeps_indexes = True

    @pytest.fixture
    def open_sink(self) -> OpenSink:
        """Return a callable that opens a sink on the same store each time."""
        raise NotImplementedError

    @pytest.fixture
    def sink(self, open_sink: OpenSink) -> Iterator[Sink]:
        with closing(open_sink()) as sink:
            sink.create(SCHEMA)
            yield sink

    def test_there_is_no_schema_before_create(self, open_sink):
        with closing(open_sink()) as sink:
            assert sink.schema() is None

    def test_create_keeps_vectors_metadata_and_indexes(self, sink):
        schema = sink.schema()
        assert schema.vectors == SCHEMA.vectors
        assert schema.sparse_vectors == SCHEMA.sparse_vectors
        assert schema.metadata == SCHEMA.metadata
        assert schema.indexes == (SCHEMA.indexes if self.keeps_indexes else {})

    def test_create_refuses_an_existing_collection(self, sink):
        with pytest.raises(SinkError, match="already"):
            sink.create(SCHEMA)

    def test_writing_before_create_says_that_there_is_no_collection(self, open_sink):
        with closing(open_sink()) as sink, pytest.raises(SinkError, match="no collection"):
            sink.upsert([record(1)])

    def test_upsert_stores_every_record(self, sink):
        sink.upsert([record(number) for number in range(600)])
        assert sink.count() == 600
        assert len(sink.stored("a.md")) == 600

    def test_records_have_vectors_of_every_kind_or_lack_some(self, sink):
        kinds = {
            "dense": vector(1),
            "multi": np.stack([vector(2), vector(3)]),
            "words": sparse([7, 0, 2**32 - 1], [0.5, 1, 2]),
            "weights": sparse([3], [-1]),
        }
        sink.upsert([record(1, vectors=kinds), record(2, vectors={"weights": kinds["weights"]})])
        assert sink.count() == 2

    def test_upsert_of_nothing_is_nothing(self, sink):
        sink.upsert([])
        assert sink.count() == 0

    def test_upsert_is_idempotent_by_id(self, sink):
        sink.upsert([record(1), record(2)])
        sink.upsert([record(1), record(2)])
        assert sink.count() == 2

    def test_upsert_overwrites_the_whole_payload(self, sink):
        sink.upsert([record(1)])
        sink.upsert([record(1, payload={"metadata": {"source": "b.md"}})])
        assert sink.stored("a.md") == {}
        assert sink.stored("b.md") == {record(1).id: {"source": "b.md"}}

    def test_stored_gives_the_metadata_of_that_source_alone(self, sink):
        sink.upsert([record(1), record(2), record(1, "other.md")])
        assert sink.stored("a.md") == {
            record(number).id: {"source": "a.md", "start": number, "end": number + 5}
            for number in (1, 2)
        }

    def test_documents_of_one_file_are_stored_under_its_name(self, sink):
        rows = [{"source": f"d.csv#{n}", "file": "d.csv"} for n in (1, 2)]
        sink.upsert([record(n, payload={"metadata": rows[n - 1]}) for n in (1, 2)])
        whole, other = record(3, "d.csv"), record(4, "other.csv")
        sink.upsert([whole, other])
        assert sink.stored("d.csv").keys() == {record(1).id, record(2).id, whole.id}
        assert sink.stored("d.csv")[record(1).id] == rows[0]
        assert sorted(sink.sources()) == ["d.csv", "other.csv"]

    def test_stored_of_an_unknown_source_is_empty(self, sink):
        sink.upsert([record(1)])
        assert sink.stored("nothing.md") == {}

    def test_sources_gives_every_source_once(self, sink):
        assert list(sink.sources()) == []
        sink.upsert([record(number, f"{number % 3}.md") for number in range(1200)])
        sink.upsert([record(1, AWKWARD), record(2, "gone.md"), record(3, "moved.md")])
        sink.upsert([record(4, "none.md", payload={"page_content": "of nobody"})])
        sink.delete([record(2, "gone.md").id])
        sink.set_payload({record(3, "moved.md").id: {"metadata": {"source": "new.md"}}})
        assert sorted(sink.sources()) == sorted(["0.md", "1.md", "2.md", AWKWARD, "new.md"])

    def test_payloads_come_back_as_they_were(self, sink):
        metadata = {
            "source": AWKWARD,
            "none": None,
            "true": True,
            "big": 2**40,
            "real": 0.1,
            "list": [1, "two", {"three": []}],
        }
        sink.upsert([record(1, payload={"page_content": AWKWARD, "metadata": metadata})])
        assert sink.stored(AWKWARD) == {record(1).id: metadata}

    def test_set_payload_replaces_it_whole(self, sink):
        sink.upsert([record(1), record(2)])
        sink.set_payload({record(1).id: {"page_content": "new", "metadata": {"source": "n.md"}}})
        assert sink.stored("n.md") == {record(1).id: {"source": "n.md"}}
        assert list(sink.stored("a.md")) == [record(2).id]
        assert sink.count() == 2

    def test_delete_removes_by_id_and_ignores_unknown_ids(self, sink):
        sink.upsert([record(1), record(2)])
        sink.delete(iter([record(1).id, str(uuid.uuid4())]))
        assert list(sink.stored("a.md")) == [record(2).id]
        assert sink.count() == 1

    def test_delete_of_nothing_is_nothing(self, sink):
        sink.upsert([record(1)])
        sink.delete([])
        assert sink.count() == 1

    @pytest.mark.parametrize(
        ("fault", "words"),
        [
            ({"vectors": {"dense": vector(1, SIZE - 1)}}, r"dense.*shape \(7,\), not \(8,\)"),
            ({"vectors": {"dense": np.full(SIZE, np.nan, np.float32)}}, "not finite"),
            ({"vectors": {"dense": np.full(SIZE, np.inf, np.float32)}}, "not finite"),
            ({"vectors": {"dense": np.zeros(SIZE, np.float32)}}, "norm 0"),
            ({"vectors": {"dense": np.full(SIZE, 1e-8, np.float32)}}, "norm 2.83e-08"),
            ({"vectors": {"other": vector(1)}}, "other.*'dense'"),
            ({"vectors": {"multi": vector(1)}}, r"multi.*shape \(8,\), not \(n_rows, 8\)"),
            ({"vectors": {"multi": np.ones((0, SIZE), np.float32)}}, r"multi.*shape \(0, 8\)"),
            ({"vectors": {"multi": np.zeros((2, SIZE), np.float32)}}, "multi.*norm 0"),
            ({"vectors": {"multi": np.ones((2**17 + 1, SIZE), np.float32)}}, "1,048,576 a point"),
            ({"vectors": {"words": vector(1)}}, "'words' is dense, and the collection's is not"),
            ({"vectors": {"dense": sparse([1], [1])}}, "'dense' is sparse, and the collection's"),
            ({"vectors": {"words": sparse([1, 2], [1])}}, r"\(2,\) indices and \(1,\) values"),
            ({"vectors": {"words": sparse([], [])}}, r"\(0,\) indices"),
            ({"vectors": {"words": sparse([1, 1], [1, 2])}}, "an index twice"),
            ({"vectors": {"words": sparse([-1], [1])}}, "no unsigned integer"),
            ({"vectors": {"words": sparse([0.5], [1])}}, "no unsigned integer"),
            ({"vectors": {"words": sparse([2**32], [1])}}, "index 4294967296"),
            ({"vectors": {"words": sparse([1], [np.nan])}}, "words.*not finite"),
            ({"payload": {"metadata": {"source": "bad.md", "x": float("nan")}}}, "not JSON"),
            ({"payload": {"metadata": {"source": "bad.md", "x": "\ud800"}}}, "not JSON"),
            ({"payload": {"metadata": {"source": "bad.md", "x": object()}}}, "not JSON"),
        ],
    )
    def test_a_record_that_does_not_fit_is_refused_with_its_source_and_nothing_is_written(
        self, sink, fault, words
    ):
        bad = record(2, "bad.md", **fault)
        with pytest.raises(SinkError, match=words) as caught:
            sink.upsert([record(1), bad, record(3)])
        assert bad.id in str(caught.value)
        assert "bad.md" in str(caught.value)
        assert sink.count() == 0

    def test_a_payload_that_is_not_json_is_refused_by_set_payload(self, sink):
        sink.upsert([record(1)])
        with pytest.raises(SinkError, match="not JSON"):
            sink.set_payload({record(1).id: {"metadata": {"source": object()}}})
        assert len(sink.stored("a.md")) == 1

    def test_all_is_there_after_closing_and_opening_again(self, sink, open_sink):
        sink.upsert([record(1), record(2)])
        sink.set_payload({record(1).id: {"metadata": {"source": "moved.md"}}})
        sink.delete([record(2).id])
        sink.flush()
        sink.close()
        with closing(open_sink()) as again:
            assert again.schema().metadata == SCHEMA.metadata
            assert again.count() == 1
            assert list(again.stored("moved.md")) == [record(1).id]
            again.upsert([record(3)])
            assert again.count() == 2

    def test_two_collections_do_not_mix(self, sink, open_sink):
        sink.upsert([record(1)])
        sink.close()
        with closing(open_sink("other")) as other:
            assert other.schema() is None
            other.create(SCHEMA)
            assert other.count() == 0

    def test_optimize_changes_no_record(self, sink):
        sink.upsert([record(number) for number in range(50)])
        sink.delete([record(number).id for number in range(25)])
        sink.optimize()
        sink.optimize()
        assert sink.count() == 25
        assert len(sink.stored("a.md")) == 25

    def test_closing_twice_is_harmless_and_a_closed_sink_says_so(self, sink):
        sink.close()
        sink.close()
        with pytest.raises(SinkError, match="closed"):
            sink.count()

    def test_making_a_sink_touches_nothing(self, open_sink):
        open_sink().close()
        with closing(open_sink()) as sink:
            assert sink.schema() is None
