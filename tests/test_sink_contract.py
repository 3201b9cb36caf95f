"""Every sink keeps the law: memory, embedded, a server's stand-in, JSON lines, a real server."""

import os
import uuid
from contextlib import closing
from dataclasses import replace
from importlib.metadata import entry_points

import numpy as np
import pytest
from qdrant_stand_in import QdrantStandIn
from sink_contract import SCHEMA, SinkContract, record, sparse, vector

from corral_sinks import SinkError, SinkOptions, SparseVector
from corral_sinks.jsonl import JsonlSink
from corral_sinks.qdrant import Fused, MemoryQdrant, Nearest, QdrantSink, connect


def plain(made):
    """Give a vector's numbers, to compare."""
    if isinstance(made, SparseVector):
        return sorted(zip(made.indices.tolist(), made.values.tolist(), strict=True))
    return made.tolist()


class SearchContract(SinkContract):
    """What holds for a sink that searches, too."""

    def test_search_finds_the_nearest_first(self, sink):
        sink.upsert([record(number) for number in range(20)])
        hits = sink.search(vector(7), vector_name="dense", limit=3)
        expected = sorted(range(20), key=lambda number: -float(vector(number) @ vector(7)))[:3]
        assert [hit.id for hit in hits] == [record(number).id for number in expected]
        assert hits[0].score == pytest.approx(1.0, abs=1e-5)
        assert hits[0].payload == record(7).payload

    def test_search_by_a_sparse_vector_ranks_by_the_dot_product(self, sink):
        weights = {1: ([1, 2], [1, 1]), 2: ([2, 3], [3, 1]), 3: ([4], [9])}
        sink.upsert(
            [record(n, vectors={"weights": sparse(*given)}) for n, given in weights.items()]
        )
        hits = sink.search(sparse([2, 1], [1, 0.5]), vector_name="weights", limit=5)
        assert [(hit.id, hit.score) for hit in hits] == [(record(2).id, 3), (record(1).id, 1.5)]

    def test_an_index_that_few_records_have_weighs_more_under_idf(self, sink):
        words = {1: [1, 2], 2: [1, 3], 3: [1, 4]}
        sink.upsert(
            [record(n, vectors={"words": sparse(given, [1, 1])}) for n, given in words.items()]
        )
        hits = sink.search(sparse([1, 3], [1, 1]), vector_name="words", limit=3)
        assert hits[0].id == record(2).id
        rare, common = (float(np.log((3 - n + 0.5) / (n + 0.5) + 1)) for n in (1, 3))
        assert hits[0].score == pytest.approx(rare + common, abs=1e-5)
        assert hits[1].score == pytest.approx(common, abs=1e-5)

    def test_search_by_a_multivector_sums_each_rows_best(self, sink):
        rows = {n: np.stack([vector(n), vector(n + 100), vector(n + 200)]) for n in range(9)}
        sink.upsert([record(n, vectors={"multi": given}) for n, given in rows.items()])
        query = np.stack([vector(4), vector(205)])
        scores = {n: float((query @ given.T).max(axis=1).sum()) for n, given in rows.items()}
        hits = sink.search(query, vector_name="multi", limit=9)
        best = sorted(scores, key=scores.__getitem__, reverse=True)
        assert [hit.id for hit in hits] == [record(n).id for n in best]
        assert [hit.score for hit in hits] == pytest.approx([scores[n] for n in best], abs=1e-4)

    def test_records_come_back_whole_in_the_order_of_their_ids(self, sink):
        kinds = {
            "dense": vector(1),
            "multi": np.stack([vector(2), vector(3)]),
            "words": sparse([7, 0, 2**32 - 1], [0.5, 1, 2]),
            "weights": sparse([3], [-1]),
        }
        given = [record(n, vectors=kinds if n % 2 else {"dense": vector(n)}) for n in range(600)]
        sink.upsert(given)
        found = list(sink.records())
        assert [one.id for one in found] == sorted(one.id for one in given)
        by_id = {one.id: one for one in given}
        for one in found:
            assert one.payload == by_id[one.id].payload
            assert one.vectors.keys() == by_id[one.id].vectors.keys()
            for name, made in one.vectors.items():
                np.testing.assert_allclose(
                    plain(made), plain(by_id[one.id].vectors[name]), atol=1e-5
                )
        assert all(one.vectors == {} for one in sink.records(vectors=False))
        unknown = str(uuid.uuid4())
        assert sink.payloads([given[3].id, unknown]) == {given[3].id: given[3].payload}

    @pytest.mark.parametrize(
        ("conditions", "expected"),
        [
            (["page=3"], [3]),
            (["page>=3", "page<5"], [3, 4]),
            (["draft!=true"], [1, 3, 5, 7]),
            (["tags=wool"], [0, 3, 6]),
            (["deep.er=7"], [7]),
            (["source=b.md", "page>0"], [4, 5, 6, 7]),
            (['{"should": [{"key": "metadata.page", "match": {"any": [1, 6]}}]}'], [1, 6]),
            (['{"must_not": [{"is_empty": {"key": "metadata.tags"}}]}', "draft=true"], [0, 6]),
        ],
        ids=str,
    )
    def test_filters_narrow_a_search(self, sink, conditions, expected):
        fields = [
            {
                "source": "a.md" if number < 4 else "b.md",
                "page": number,
                "draft": number % 2 == 0,
                "deep": {"er": number},
                **({"tags": ["dog", "wool"]} if number % 3 == 0 else {}),
            }
            for number in range(8)
        ]
        given = [record(n, payload={"metadata": fields[n]}) for n in range(8)]
        sink.upsert(given)
        hits = sink.search(
            vector(0), vector_name="dense", limit=9, query_filter=sink.parse_filter(conditions)
        )
        assert sorted(hit.payload["metadata"]["page"] for hit in hits) == expected

    def test_two_lists_are_fused_and_a_third_vector_orders_them(self, sink):
        sink.upsert(
            [
                record(
                    n,
                    vectors={
                        "dense": vector(n),
                        "weights": sparse([n, n + 1], [1, 2]),
                        "multi": np.stack([vector(n + 50), vector(n + 60)]),
                    },
                )
                for n in range(9)
            ]
        )
        both = [
            Nearest(vector=vector(4), name="dense", limit=3),
            Nearest(vector=sparse([8], [1]), name="weights", limit=3),
        ]
        hits = sink.rank(Fused(parts=both), limit=1)
        assert hits[0].id == record(8).id  # in both lists, the first of neither
        among = Fused(parts=both, limit=9)
        rows = np.stack([vector(57)])
        ordered = sink.rank(Nearest(vector=rows, name="multi", among=among), limit=9)
        assert ordered[0].id == record(7).id
        assert 3 < len(ordered) <= 5

    def test_a_tenant_counts_and_finds_its_own_records_alone(self, open_sink):
        owners = ["anna", "ben", "ben"]
        with closing(open_sink("tenants")) as everyone:
            everyone.create(replace(SCHEMA, tenants=True))
            for number, owner in enumerate(owners):
                metadata = {"source": "a.md", "tenant": owner}
                everyone.upsert([record(number, payload={"metadata": metadata})])
            for tenant, own in (("anna", [0]), ("ben", [1, 2]), ("nobody", [])):
                options = replace(everyone._options, tenant=tenant)
                sink = QdrantSink(options, client=everyone.client)
                ids = {record(number).id for number in own}
                hits = sink.search(vector(0), vector_name="dense", limit=9)
                assert {hit.id for hit in hits} == ids
                assert (sink.count(), set(sink.stored("a.md"))) == (len(own), ids)
                assert {one.id for one in sink.records()} == ids

    def test_search_by_an_unknown_name_or_a_wrong_vector_is_refused(self, sink):
        sink.upsert([record(1)])
        with pytest.raises(SinkError, match=r"'long'.*dense"):
            sink.search(vector(1), vector_name="long", limit=1)
        with pytest.raises(SinkError, match=r"shape \(3,\)"):
            sink.search(vector(1, 3), vector_name="dense", limit=1)
        with pytest.raises(SinkError, match="not finite"):
            sink.search(np.full(8, np.nan, np.float32), vector_name="dense", limit=1)


class TestMemory(SearchContract):
    keeps_indexes = False

    @pytest.fixture
    def open_sink(self):
        with closing(MemoryQdrant()) as client:
            yield lambda name="docs": QdrantSink(SinkOptions(collection=name), client=client)


class TestEmbedded(SearchContract):
    @pytest.fixture
    def open_sink(self, tmp_path):
        path = str(tmp_path / "made" / "on demand")
        return lambda name="docs": QdrantSink(SinkOptions(collection=name, path=path))


class TestStandIn(SearchContract):
    @pytest.fixture
    def open_sink(self, tmp_path):
        with QdrantStandIn(tmp_path) as server:
            yield lambda name="docs": QdrantSink(SinkOptions(collection=name, url=server.url))


@pytest.mark.server
@pytest.mark.skipif("QDRANT_URL" not in os.environ, reason="QDRANT_URL names no Qdrant server")
class TestServer(SearchContract):
    @pytest.fixture
    def open_sink(self):
        url, mark = os.environ["QDRANT_URL"], uuid.uuid4().hex
        yield lambda name="docs": QdrantSink(
            SinkOptions(collection=f"corral-test-{mark}-{name}", url=url)
        )
        with closing(connect(url=url)) as client:
            for found in client.get_collections().collections:
                if mark in found.name:
                    client.delete_collection(found.name)


class TestJsonl(SinkContract):
    @pytest.fixture
    def open_sink(self, tmp_path):
        path = str(tmp_path / "made" / "on demand")
        return lambda name="docs": JsonlSink(SinkOptions(collection=name, path=path))


@pytest.mark.parametrize(("name", "made"), [("qdrant", QdrantSink), ("jsonl", JsonlSink)])
def test_built_in_sinks_come_through_the_entry_points(name, made):
    (entry,) = entry_points(group="corral.sinks", name=name)
    assert entry.load() is made


def test_what_memory_and_embedded_find_is_the_same(tmp_path):
    found = []
    for path in (":memory:", str(tmp_path)):
        with closing(QdrantSink(SinkOptions(collection="docs", path=path))) as sink:
            sink.create(SCHEMA)
            sink.upsert([record(number) for number in range(100)])
            hits = sink.search(vector(1234), vector_name="dense", limit=10)
            found.append([(hit.id, round(hit.score, 4)) for hit in hits])
    assert len(found[0]) == 10
    assert found[0] == found[1]
