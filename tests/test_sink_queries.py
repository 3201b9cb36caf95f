"""Filters and queries of the embedded engine, compared with qdrant-client's own local mode."""

import datetime as dt
from contextlib import closing

import numpy as np
import pytest
from qdrant_client import models
from sink_contract import vector

from corral_sinks import SinkError
from corral_sinks.qdrant import EmbeddedQdrant, MemoryQdrant

VECTORS = {
    "dense": models.VectorParams(size=8, distance=models.Distance.COSINE),
    "short": models.VectorParams(size=4, distance=models.Distance.COSINE),
}
SPARSE = {"sparse": models.SparseVectorParams()}
COUNT = 40


def payload(number):
    """A payload whose fields come and go with the number."""
    given = {
        "metadata": {"source": f"{number % 5}.md", "page": number},
        "text": ("the quick brown fox", "a slow green turtle", "quick green")[number % 3],
        "tags": ["a", "b", "c"][: number % 4],
        "score": number / 10,
        "when": f"2026-01-{number % 28 + 1:02}T12:00:00Z",
        "place": {"lon": 13.0 + number / 100, "lat": 52.5},
        "items": [{"name": "x", "n": number % 3}, {"name": "y", "n": number % 2}],
        "flag": number % 2 == 0,
    }
    if number % 3 == 0:
        given["maybe"] = None
    if number % 3 == 1:
        given["maybe"] = [number]
    return given


def points():
    return [
        models.PointStruct(
            id=number,
            vector={
                "dense": vector(number).tolist(),
                "sparse": models.SparseVector(
                    indices=[number % 7, 50], values=[1.0, 0.103 * number]
                ),
            }
            | ({"short": vector(number, 4).tolist()} if number % 2 else {}),
            payload=payload(number),
        )
        for number in range(COUNT)
    ]


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
    with (
        EmbeddedQdrant(tmp_path_factory.mktemp("queries") / "db") as embedded,
        closing(MemoryQdrant()) as memory,
    ):
        for client in (embedded, memory):
            client.create_collection("docs", VECTORS, SPARSE)
            client.upsert("docs", points())
        yield embedded, memory


def field(key, **condition):
    return models.FieldCondition(key=key, **condition)


def moment(day):
    return dt.datetime(2026, 1, day, tzinfo=dt.UTC)


NEAR = models.GeoPoint(lon=13.05, lat=52.5)
SQUARE = [(13.1, 52.4), (13.2, 52.4), (13.2, 52.6), (13.1, 52.6), (13.1, 52.4)]
RING = models.GeoLineString(points=[models.GeoPoint(lon=lon, lat=lat) for lon, lat in SQUARE])
CONDITIONS = {
    "value": field("metadata.source", match=models.MatchValue(value="3.md")),
    "integer": field("metadata.page", match=models.MatchValue(value=7)),
    "bool": field("flag", match=models.MatchValue(value=True)),
    "any": field("metadata.source", match=models.MatchAny(any=["1.md", "2.md"])),
    "any of numbers": field("metadata.page", match=models.MatchAny(any=[1, 2, 99])),
    "except": field("metadata.source", match=models.MatchExcept(**{"except": ["1.md"]})),
    "text": field("text", match=models.MatchText(text="quick")),
    "in a list": field("tags", match=models.MatchValue(value="b")),
    "range": field("score", range=models.Range(gte=1.0, lt=2.5)),
    "open range": field("metadata.page", range=models.Range(gt=30, lte=35)),
    "moments": field("when", range=models.DatetimeRange(gt=moment(3), lte=moment(9))),
    "from a moment": field("when", range=models.DatetimeRange(gte=moment(20))),
    "before a moment": field("when", range=models.DatetimeRange(lt=moment(2))),
    "empty": models.IsEmptyCondition(is_empty=models.PayloadField(key="maybe")),
    "null": models.IsNullCondition(is_null=models.PayloadField(key="maybe")),
    "has id": models.HasIdCondition(has_id=[1, 5, 7, 400]),
    "has vector": models.HasVectorCondition(has_vector="short"),
    "count": field("tags", values_count=models.ValuesCount(gte=2)),
    "radius": field("place", geo_radius=models.GeoRadius(center=NEAR, radius=2000)),
    "box": field(
        "place",
        geo_bounding_box=models.GeoBoundingBox(
            top_left=models.GeoPoint(lon=13.1, lat=53),
            bottom_right=models.GeoPoint(lon=13.2, lat=52),
        ),
    ),
    "polygon": field("place", geo_polygon=models.GeoPolygon(exterior=RING)),
    "nested": models.NestedCondition(
        nested=models.Nested(
            key="items",
            filter=models.Filter(
                must=[
                    field("name", match=models.MatchValue(value="x")),
                    field("n", match=models.MatchValue(value=2)),
                ]
            ),
        )
    ),
    "nested nothing": models.NestedCondition(
        nested=models.Nested(key="items", filter=models.Filter())
    ),
    "inner filter": models.Filter(
        should=[
            field("metadata.page", match=models.MatchValue(value=3)),
            field("metadata.page", match=models.MatchValue(value=4)),
        ]
    ),
}
FILTERS = (
    {name: models.Filter(must=[condition]) for name, condition in CONDITIONS.items()}
    | {f"not {name}": models.Filter(must_not=[part]) for name, part in CONDITIONS.items()}
    | {
        "one condition without a list": models.Filter(must=CONDITIONS["value"]),
        "must and should": models.Filter(
            must=[CONDITIONS["bool"]], should=[CONDITIONS["value"], CONDITIONS["range"]]
        ),
        "two of three": models.Filter(
            min_should=models.MinShould(
                conditions=[CONDITIONS["bool"], CONDITIONS["range"], CONDITIONS["any"]],
                min_count=2,
            )
        ),
        "nothing": models.Filter(),
        "none": None,
    }
)


def ids(found):
    return {point.id for point in found}


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_selects_what_it_selects_elsewhere(clients, name):
    selected = [
        ids(client.scroll("docs", scroll_filter=FILTERS[name], limit=COUNT)[0])
        for client in clients
    ]
    assert selected[0] == selected[1]
    assert [client.count("docs", count_filter=FILTERS[name]).count for client in clients] == [
        len(selected[0])
    ] * 2


def test_the_filters_are_no_trivial_ones(clients):
    embedded, _ = clients
    trivial = [
        name
        for name in CONDITIONS
        if embedded.count("docs", FILTERS[name]).count in {0, COUNT} and name != "nested nothing"
    ]
    assert trivial == []


def test_slices_part_the_points(clients):
    embedded, _ = clients
    parts = [
        ids(
            embedded.scroll(
                "docs",
                models.Filter(
                    must=[models.SliceCondition(slice=models.Slice(total=3, index=index))]
                ),
                limit=COUNT,
            )[0]
        )
        for index in range(3)
    ]
    assert sum(map(len, parts)) == COUNT
    assert set.union(*parts) == set(range(COUNT))


def test_text_is_matched_by_phrase_prefix_and_part_where_there_is_an_index(tmp_path):
    with EmbeddedQdrant(tmp_path) as client:
        client.create_collection("docs", VECTORS, SPARSE)
        index = models.TextIndexParams(type="text", phrase_matching=True)
        client.create_payload_index("docs", "text", index)
        keyword = models.KeywordIndexParams(type="keyword", prefix=True)
        client.create_payload_index("docs", "metadata.source", keyword)
        client.upsert("docs", [point for point in points() if point.id < 3])

        def matching(key, match):
            return ids(client.scroll("docs", models.Filter(must=[field(key, match=match)]))[0])

        assert matching("text", models.MatchPhrase(phrase="quick brown")) == {0}
        assert matching("text", models.MatchTextAny(text_any="slow brown")) == {0, 1}
        assert matching("metadata.source", models.MatchPrefix(prefix="1")) == {1}
        assert matching("text", models.MatchSubstring(substring="reen tur")) == {1}


def test_an_unknown_condition_is_refused_by_its_name(clients):
    class TelepathyCondition(models.HasIdCondition):
        pass

    embedded, _ = clients
    odd = models.Filter.model_construct(
        must=[TelepathyCondition(has_id=[1])], should=None, must_not=None, min_should=None
    )
    with pytest.raises(SinkError, match="no condition of type TelepathyCondition; it knows Field"):
        embedded.scroll("docs", scroll_filter=odd)


def test_a_filter_that_is_a_dict_is_refused(clients):
    embedded, _ = clients
    with pytest.raises(SinkError, match="models.Filter; got a dict"):
        embedded.scroll("docs", scroll_filter={"metadata.source": "x"})


# Queries

Q = vector(99).tolist()
NEAREST = [
    models.Prefetch(query=Q, using="dense", limit=10),
    models.Prefetch(
        query=models.SparseVector(indices=[3, 50], values=[1.0, 0.5]), using="sparse", limit=10
    ),
]
QUERIES = {
    "list": {"query": Q, "using": "dense"},
    "array": {"query": np.array(Q), "using": "dense"},
    "nearest": {"query": models.NearestQuery(nearest=Q), "using": "dense"},
    "sparse": {
        "query": models.SparseVector(indices=[3, 50], values=[1.0, 0.5]),
        "using": "sparse",
    },
    "mmr": {
        "query": models.NearestQuery(nearest=Q, mmr=models.Mmr(diversity=0.7, candidates_limit=20)),
        "using": "dense",
    },
    "filtered": {"query": Q, "using": "dense", "query_filter": FILTERS["any"]},
    "threshold": {"query": Q, "using": "dense", "score_threshold": 0.2},
    "offset": {"query": Q, "using": "dense", "offset": 3},
    "rrf": {"prefetch": NEAREST, "query": models.FusionQuery(fusion=models.Fusion.RRF)},
    "weighted rrf": {
        "prefetch": NEAREST,
        "query": models.RrfQuery(rrf=models.Rrf(k=5, weights=[3.0, 1.0])),
    },
    "dbsf": {"prefetch": NEAREST, "query": models.FusionQuery(fusion=models.Fusion.DBSF)},
    "two stages": {
        "prefetch": models.Prefetch(
            prefetch=[models.Prefetch(query=Q, using="dense", filter=FILTERS["bool"])],
            query=Q,
            using="dense",
            limit=6,
        ),
        "query": Q[:4],
        "using": "short",
    },
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_ranks_as_it_ranks_elsewhere(clients, name):
    found = [client.query_points("docs", limit=5, **QUERIES[name]).points for client in clients]
    if name != "two stages":
        assert len(found[0]) == 5 or name == "threshold"
    scores = [np.array([point.score for point in points]) for points in found]
    assert np.allclose(*scores, atol=1e-4)
    # Fusion by rank gives equal scores, whose order no backend promises; what shares the last
    # score may have been cut off in one of them.
    ranked = [
        {point.id: point.score for point in points if point.score > points[-1].score + 1e-3}
        for points in found
    ]
    assert ranked[0] == pytest.approx(ranked[1], abs=1e-3)


def test_an_mmr_query_has_the_servers_defaults(clients):
    query = models.NearestQuery(nearest=Q, mmr=models.Mmr())
    found = [
        [
            point.id
            for point in client.query_points("docs", query=query, using="dense", limit=5).points
        ]
        for client in clients
    ]
    assert found[0] == found[1]


def test_search_parameters_are_passed_on(clients):
    embedded, _ = clients
    params = models.SearchParams(
        hnsw_ef=64,
        exact=True,
        quantization=models.QuantizationSearchParams(rescore=True, oversampling=2.0),
        acorn=models.AcornSearchParams(enable=True, max_selectivity=0.3),
    )
    plain = embedded.query_points("docs", query=Q, using="dense").points
    tuned = embedded.query_points("docs", query=Q, using="dense", search_params=params).points
    assert [point.id for point in tuned] == [point.id for point in plain]
    with pytest.raises(SinkError, match="idf"):
        embedded.query_points(
            "docs",
            query=Q,
            using="dense",
            search_params=models.SearchParams(idf=models.IdfScope.GLOBAL),
        )


def test_no_query_gives_points_by_id_and_a_sample_gives_some(clients):
    embedded, _ = clients
    assert [point.id for point in embedded.query_points("docs", limit=3).points] == [0, 1, 2]
    sample = embedded.query_points("docs", query=models.SampleQuery(sample="random"), limit=7)
    assert len(ids(sample.points)) == 7


def test_points_are_ordered_by_a_field_that_has_an_index(tmp_path):
    with EmbeddedQdrant(tmp_path) as client:
        client.create_collection("docs", VECTORS, SPARSE)
        client.create_payload_index("docs", "score", models.PayloadSchemaType.FLOAT)
        client.create_payload_index("docs", "when", models.PayloadSchemaType.DATETIME)
        client.upsert("docs", [point for point in points() if point.id < 20])
        down = models.OrderBy(key="score", direction=models.Direction.DESC, start_from=1.5)
        query = models.OrderByQuery(order_by=down)
        assert [p.id for p in client.query_points("docs", query=query, limit=3).points] == [
            15,
            14,
            13,
        ]
        assert [p.id for p in client.scroll("docs", order_by="score", limit=3)[0]] == [0, 1, 2]
        late = models.OrderBy(key="when", start_from=moment(18))
        assert [p.id for p in client.scroll("docs", order_by=late, limit=2)[0]] == [17, 18]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (5, "type int; it knows"),
        (models.RecommendQuery(recommend=models.RecommendInput(positive=[1])), "RecommendQuery"),
        (models.NearestQuery(nearest=3), "by a vector, not by the id.*got a int"),
        ([float("nan")] * 8, "query vector .* not finite"),
        ([1.0] * 3, "dimension"),
    ],
)
def test_a_query_it_has_not_is_refused(clients, query, words):
    embedded, _ = clients
    with pytest.raises(SinkError, match=words):
        embedded.query_points("docs", query=query, using="dense")


def test_a_stage_that_looks_elsewhere_is_refused(clients):
    embedded, _ = clients
    stage = models.Prefetch(query=Q, lookup_from=models.LookupLocation(collection="c"))
    with pytest.raises(SinkError, match="lookup_from"):
        embedded.query_points("docs", prefetch=stage, query=Q, using="dense")


# What comes back


@pytest.mark.parametrize(
    "selector",
    [
        True,
        False,
        ["metadata.source", "flag"],
        models.PayloadSelectorInclude(include=["text"]),
        models.PayloadSelectorExclude(exclude=["metadata", "items", "place", "tags", "when"]),
    ],
    ids=["all", "none", "list", "include", "exclude"],
)
def test_payload_fields_are_chosen(clients, selector):
    found = [
        [point.payload or {} for point in client.retrieve("docs", [0, 2, 4], selector)]
        for client in clients
    ]
    assert found[0] == found[1]


def test_a_payload_selector_that_is_none_is_refused(clients):
    embedded, _ = clients
    with pytest.raises(SinkError, match="with_payload is"):
        embedded.retrieve("docs", [1], with_payload=7)


@pytest.mark.parametrize("which", [True, False, ["dense"], ("short", "sparse")])
def test_vectors_are_chosen(clients, which):
    found = [client.retrieve("docs", [1, 2], with_vectors=which) for client in clients]
    for mine, theirs in zip(*found, strict=True):
        assert mine.id == theirs.id
        assert (mine.vector is None) == (theirs.vector is None)
        for name, values in (theirs.vector or {}).items():
            if isinstance(values, models.SparseVector):
                assert mine.vector[name].indices == values.indices
                assert mine.vector[name].values == pytest.approx(values.values)
            else:
                assert mine.vector[name] == pytest.approx(values, abs=1e-6)


def test_scrolling_by_pages_sees_each_point_once(clients):
    embedded, _ = clients
    seen, offset = [], None
    while True:
        page, offset = embedded.scroll("docs", limit=7, offset=offset)
        seen += [point.id for point in page]
        if offset is None:
            break
    assert seen == list(range(COUNT))


def test_uuids_come_back_as_text(tmp_path):
    id_ = "9b2f1d36-8f0c-4f0e-9d3b-1a2b3c4d5e6f"
    other = "ab2f1d36-8f0c-4f0e-9d3b-1a2b3c4d5e6f"
    with EmbeddedQdrant(tmp_path) as client:
        client.create_collection("docs", VECTORS, SPARSE)
        for uuid in (id_, other):
            client.upsert("docs", [models.PointStruct(id=uuid, vector={"dense": Q})])
        page, offset = client.scroll("docs", limit=1)
        assert [point.id for point in page] == [id_]
        assert offset == other
        assert [point.id for point in client.scroll("docs", offset=offset)[0]] == [other]
        assert client.query_points("docs", query=Q, using="dense").points[0].id in {id_, other}
