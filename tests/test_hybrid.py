"""Words beside meaning: BM25 vectors, rankings in several stages, and searches that fuse both."""

import json
import subprocess
import sys
from contextlib import closing

import numpy as np
import pytest
from langchain_qdrant import QdrantVectorStore, RetrievalMode
from qdrant_stand_in import QdrantStandIn
from retrieving import BERT, PREFIX, QUERY, TEXTS, source_is, write
from sink_contract import SCHEMA, record, sparse, vector

from corral import BM25Embeddings, CorralRetriever, GGUFEmbeddings, RankingOptions
from corral.errors import CollectionError, UsageError
from corral.ranking import ranking_of
from corral.search import search
from corral_sinks import SinkError, SinkOptions
from corral_sinks.qdrant import Bm25, Fused, Nearest, QdrantSink, connect

HYBRID = {"sparse": {"language": "none"}}


def values_of(found):
    return dict(zip(found.indices.tolist(), found.values.tolist(), strict=True))


class TestBm25:
    def test_a_document_is_weighed_as_by_the_formula(self):
        model = Bm25(language="none", k=1.5, b=0.5, avg_len=4)
        found = sorted(model.embed_document("wool wool wool dog gate").values.tolist())
        # Robertson and Zaragoza 2009, section 3.4.3, without the IDF.
        slow = 1.5 * (1 - 0.5 + 0.5 * 5 / 4)
        expected = sorted(tf * 2.5 / (tf + slow) for tf in (3, 1, 1))
        assert found == pytest.approx(expected)

    def test_a_query_counts_each_word_once(self):
        found = Bm25(language="none").embed_query("wool Wool dog")
        assert found.values.tolist() == [1.0, 1.0]

    def test_equal_words_have_equal_indices_in_documents_and_queries(self):
        model = Bm25(language="none")
        document = values_of(model.embed_document("the dog guards the wool"))
        assert set(values_of(model.embed_query("wool dog"))) < set(document)

    @pytest.mark.parametrize(
        ("language", "one", "other", "same"),
        [
            ("english", "running dogs", "run dog", True),
            ("none", "running dogs", "run dog", False),
            ("german", "Schafe laufen", "Schaf lauf", True),
            ("none", "the", "", False),
            ("english", "the", "", True),
        ],
    )
    def test_stems_and_stop_words_are_the_languages(self, language, one, other, same):
        model = Bm25(language=language)
        found = [model.embed_query(text) for text in (one, other)]
        sets = [set() if one is None else set(one.indices.tolist()) for one in found]
        assert (sets[0] == sets[1]) is same

    @pytest.mark.parametrize("text", ["我们在山上放羊。牧羊犬很好", "犬は羊を守る"])
    def test_words_are_found_where_no_spaces_are(self, text):
        words = Bm25(language="none").embed_document(text)
        assert len(words.indices) > 3
        dog = Bm25(language="none").embed_query("犬" if "守" in text else "牧羊")
        assert set(dog.indices.tolist()) <= set(words.indices.tolist())

    def test_a_tokenizer_by_spaces_finds_one_word_there(self):
        text = "我们在山上放羊"
        assert len(Bm25(tokenizer="whitespace").embed_document(text).indices) == 1

    def test_accents_are_folded_on_demand(self):
        pair = "résumé resume"
        found = [
            Bm25(language="none", tokenizer=tokenizer, ascii_folding=folding).embed_query(pair)
            for tokenizer, folding in [("word", False), ("word", True), ("multilingual", False)]
        ]
        assert [len(one.indices) for one in found] == [2, 1, 1]

    @pytest.mark.parametrize("text", ["", "   ", "-- !! --"])
    def test_a_text_without_words_has_no_vector(self, text):
        assert Bm25().embed_document(text) is None
        assert Bm25().embed_query(text) is None

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"language": "klingon"}, "no language 'klingon'; it knows arabic"),
            ({"tokenizer": "letters"}, "no tokenizer 'letters'; it knows multilingual"),
            ({"b": 2.0}, "cannot be set so"),
        ],
    )
    def test_what_it_does_not_know_is_refused(self, options, words):
        with pytest.raises(SinkError, match=words):
            Bm25(**options)


def stores(tmp_path):
    """The three places, each a sink with records whose rankings by two vectors differ."""
    with QdrantStandIn(tmp_path / "server") as server:
        for place in (
            {"path": ":memory:"},
            {"path": str(tmp_path / "db")},
            {"url": server.url},
        ):
            with closing(QdrantSink(SinkOptions(collection="docs", **place))) as sink:
                sink.create(SCHEMA)
                sink.upsert([mixed(number) for number in range(12)])
                yield sink


def mixed(number):
    """A record near to others by its dense vector than by its weights."""
    weights = sparse([1, 2], [1 + (5 * number) % 12, 0.1])
    rows = np.stack([vector(number + 50), vector(number + 70)])
    return record(number, vectors={"dense": vector(number), "weights": weights, "multi": rows})


DENSE = Nearest(vector=vector(3), name="dense", limit=6)
WEIGHTS = Nearest(vector=sparse([1], [1]), name="weights", limit=6)


def ranked(sink, ranking, **options):
    hits = sink.rank(ranking, limit=options.pop("limit", 6), **options)
    return [(hit.id, round(hit.score, 4)) for hit in hits]


def test_a_fusion_by_places_is_the_sum_of_their_reciprocals_everywhere(tmp_path):
    for sink in stores(tmp_path):
        expected = {}
        for part in (DENSE, WEIGHTS):
            for place, (point, _) in enumerate(ranked(sink, part)):
                # Cormack, Clarke and Büttcher 2009; Qdrant counts places from 0, with k = 2.
                expected[point] = expected.get(point, 0.0) + 1 / (2 + place)
        found = ranked(sink, Fused(parts=[DENSE, WEIGHTS]), limit=12)
        assert dict(found) == pytest.approx(expected, abs=1e-3)


def test_weights_dbsf_and_stages_rank_the_same_everywhere(tmp_path):
    rankings = [
        Fused(parts=[DENSE, WEIGHTS], weights=[3.0, 1.0]),
        Fused(parts=[DENSE, WEIGHTS], weights=[0.0, 1.0], k=60),
        Fused(parts=[DENSE, WEIGHTS], method="dbsf"),
        Nearest(vector=np.stack([vector(55), vector(60)]), name="multi", among=DENSE),
        Nearest(vector=vector(9), name="dense", among=Fused(parts=[DENSE, WEIGHTS], limit=4)),
    ]
    found = [
        [[score for _, score in ranked(sink, ranking)] for ranking in rankings]
        for sink in stores(tmp_path)
    ]
    assert found[0] == found[1] == found[2]
    assert len(found[0][4]) == 4
    assert found[0][0] != found[0][1]


def test_a_later_stage_chooses_only_among_what_the_first_found(tmp_path):
    for sink in stores(tmp_path):
        nearest = ranked(sink, DENSE, limit=3)
        first = Nearest(vector=vector(3), name="dense", limit=3)
        found = ranked(sink, Nearest(vector=vector(9), name="dense", among=first))
        assert {point for point, _ in found} == {point for point, _ in nearest}


def test_a_filter_holds_in_every_stage(tmp_path):
    for sink in stores(tmp_path):
        sink.upsert([record(99, "b.md", vectors={"dense": vector(3), "weights": WEIGHTS.vector})])
        found = ranked(sink, Fused(parts=[DENSE, WEIGHTS]), query_filter=source_is("b.md"))
        assert [point for point, _ in found] == [record(99, "b.md").id]


@pytest.mark.parametrize(
    ("ranking", "words"),
    [
        (Fused(parts=[DENSE, WEIGHTS], weights=[1.0]), "1 weights for 2"),
        (Fused(parts=[DENSE], weights=[1.0], method="dbsf"), "dbsf takes none"),
        (Fused(parts=[DENSE, Nearest(vector=vector(1), name="x")]), "vector for 'x'"),
        (Nearest(vector=vector(1, 3), name="dense", among=WEIGHTS), r"shape \(3,\)"),
    ],
)
def test_a_ranking_that_does_not_fit_is_refused(tmp_path, ranking, words):
    with closing(QdrantSink(SinkOptions(collection="docs", path=str(tmp_path / "db")))) as sink:
        sink.create(SCHEMA)
        with pytest.raises(SinkError, match=words):
            sink.rank(ranking, limit=3)


VECTORS = {"dense": vector(1), "sparse": sparse([1], [1]), "full": vector(2, 16)}
KNOWN = ("dense", "full", "sparse")


class TestRankingOf:
    def test_one_vector_is_searched_as_it_is(self):
        found = ranking_of({"dense": vector(1)}, ["dense"], RankingOptions(), limit=5)
        assert found.name == "dense"
        assert found.among is None

    def test_several_are_fused_and_the_short_ones_finds_ordered_by_the_full_one(self):
        found = ranking_of(VECTORS, KNOWN, RankingOptions(), limit=20)
        assert [part.name for part in found.parts] == ["full", "sparse"]
        assert found.parts[0].among.name == "dense"
        assert {part.limit for part in found.parts} == {found.parts[0].among.limit} == {80}

    def test_those_that_are_named_are_used_alone(self):
        only = ranking_of(VECTORS, KNOWN, RankingOptions(using=["sparse"]), limit=5)
        assert only.name == "sparse"
        short = ranking_of(VECTORS, KNOWN, RankingOptions(using=["dense"]), limit=5)
        assert (short.name, short.among) == ("dense", None)
        full = ranking_of(VECTORS, KNOWN, RankingOptions(using=["full"]), limit=5)
        assert (full.name, full.among) == ("full", None)

    def test_a_multivector_orders_all_that_was_found(self):
        vectors = {**VECTORS, "multi": np.ones((2, 4), np.float32)}
        found = ranking_of(vectors, [*KNOWN, "multi"], RankingOptions(candidates=9), limit=5)
        assert found.name == "multi"
        assert found.among.limit == 9
        assert len(found.among.parts) == 2

    def test_a_query_without_words_is_fused_all_the_same_so_that_scores_mean_the_same(self):
        found = ranking_of({"dense": vector(1)}, ["dense", "sparse"], RankingOptions(), limit=5)
        assert len(found.parts) == 1
        assert ranking_of({}, ["sparse"], RankingOptions(), limit=5) is None

    def test_weights_are_of_the_parts_in_order(self):
        options = RankingOptions(weights={"sparse": 3.0})
        assert ranking_of(VECTORS, KNOWN, options, limit=5).weights == [1.0, 3.0]

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"using": ["long"]}, "no vector 'long' to search by; it has dense, full, sparse"),
            ({"weights": {"long": 1.0}}, "no vector 'long'"),
            ({"weights": {"dense": -1.0}}, "weight of dense is -1.0"),
            ({"weights": {"dense": float("nan")}}, "weight of dense is nan"),
            ({"weights": {"dense": 1.0}, "fusion": "dbsf"}, "dbsf takes none"),
            ({"candidates": 4}, "4 candidates are fewer than the 5"),
            ({"using": ["dense"], "fusion": "dbsf"}, "here dense alone finds"),
            ({"using": ["sparse"], "weights": {"sparse": 2.0}}, "here sparse alone finds"),
        ],
    )
    def test_options_that_do_not_fit_are_refused(self, options, words):
        with pytest.raises(UsageError, match=words):
            ranking_of(VECTORS, KNOWN, RankingOptions(**options), limit=5)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hybrid")
    (folder / "docs").mkdir()
    return write(folder / "docs", path=str(folder / "db"), options=HYBRID)


def test_a_hybrid_search_brings_the_text_that_has_the_words(place):
    target = SinkOptions(**place)
    (best, *_) = search("wool shorn", target=target, ranking=RankingOptions(using=["sparse"]))
    assert best.source == "wool.txt"
    by_both = search("wool shorn", target=target, k=5)
    by_meaning = search("wool shorn", target=target, k=5, ranking=RankingOptions(using=["dense"]))
    assert {found.source for found in by_both} == {found.source for found in by_meaning}
    ranks = [found.source for found in by_meaning]
    expected = 1 / 2 + 1 / (2 + ranks.index("wool.txt"))
    (score,) = [found.score for found in by_both if found.source == "wool.txt"]
    assert score == pytest.approx(expected, abs=1e-5)


def test_a_query_without_words_is_searched_by_its_meaning(place):
    target = SinkOptions(**place)
    assert search("!?", target=target, ranking=RankingOptions(using=["sparse"])) == []
    assert len(search("!?", target=target, k=5)) == 5


def test_the_retriever_and_langchains_hybrid_mode_find_what_the_search_finds(place):
    with (
        closing(connect(path=place["path"])) as client,
        GGUFEmbeddings(BERT.path, query_prefix=PREFIX) as embeddings,
    ):
        retriever = CorralRetriever(client=client, collection="docs", k=5, embeddings=embeddings)
        store = QdrantVectorStore(
            client=client,
            collection_name="docs",
            embedding=embeddings,
            vector_name="dense",
            sparse_embedding=BM25Embeddings(language="none"),
            sparse_vector_name="sparse",
            retrieval_mode=RetrievalMode.HYBRID,
        )
        theirs = store.similarity_search_with_score(QUERY, k=5)
        assert {found.id: found.metadata["score"] for found in retriever.invoke(QUERY)} == {
            found.metadata["_id"]: pytest.approx(score) for found, score in theirs
        }
        added = store.add_texts(["the gate is closed", "--"])
        only = CorralRetriever(
            client=client,
            collection="docs",
            embeddings=embeddings,
            ranking=RankingOptions(using=["sparse"]),
        )
        assert only.invoke("gate closed")[0].page_content == "the gate is closed"
        assert store.similarity_search("!?", k=2)
        client.delete("docs", added)


def test_a_second_run_is_of_the_same_words_or_refused(place, tmp_path):
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text)
    write(tmp_path, path=place["path"], options=HYBRID)
    with pytest.raises(CollectionError, match="sparse: the collection has 'bm25', this run has"):
        write(tmp_path, path=place["path"])
    with pytest.raises(CollectionError, match=r"sparse\.language: .*'none'.*'german'"):
        write(tmp_path, path=place["path"], options={"sparse": {"language": "german"}})


def cli(*words):
    command = [sys.executable, "-m", "corral.cli", *words]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def test_the_command_line_searches_by_words_and_weighs(place):
    target = ["--path", place["path"], "--collection", "docs", "--json"]
    found = cli("search", "wool", *target, "--using", "sparse")
    assert json.loads(found.stdout)["source"] == "wool.txt", found.stderr
    heavy = cli("search", "wool", *target, "--weight", "sparse=50", "--weight", "dense=0.1")
    assert json.loads(heavy.stdout.splitlines()[0])["source"] == "wool.txt"
    wrong = cli("search", "wool", *target, "--weight", "sparse:2")
    assert wrong.returncode == 2
    assert "--weight is NAME=NUMBER" in wrong.stderr


def test_the_command_line_refuses_words_without_sparse(tmp_path):
    target = ["--path", str(tmp_path / "db"), "--collection", "docs"]
    wrong = cli("ingest", str(tmp_path), *target, "--sparse-language", "german")
    assert wrong.returncode == 2
    assert "options of --sparse bm25" in wrong.stderr
