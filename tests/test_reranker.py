"""GGUFReranker on tiny random models: numpy's scores, whatever the company."""

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import reference_models
import tiny_models
from langchain_core.documents import Document
from reranking import documents_of, laid_out, reranker
from tiny_models import Shape

from corral import GGUFEmbeddings, GGUFReranker
from corral.engine import driver
from corral.errors import (
    EngineError,
    GGUFError,
    InputTooLongError,
    ModelNotFoundError,
    PoolingError,
    UsageError,
)

QUERY = "which fish is in the harbour"
BERT = tiny_models.bert(pooling="rank", labels=("score",), pooler=True)
XLM_R = tiny_models.bert(pooling="rank", labels=("score",), pooler=True, tokenizer="unigram")
GRADES = tiny_models.bert(pooling="rank", labels=("bad", "fair", "good"))
QWEN3 = tiny_models.qwen3(pooling="rank", shape=Shape(n_ctx_train=2048))
ALL = pytest.mark.parametrize("model", [BERT, XLM_R, QWEN3], ids=["bert", "xlm-r", "qwen3"])
DOCUMENTS = [*documents_of(5, 17, 1, 60, 9, 150, 33, 2, 80, 400), "", "海 fish <|im_end|>"]


def expected(model, ids):
    """The raw score in numpy."""
    row = reference_models.row(model, ids, "rank")
    return row[0] if len(row) == 1 else np.log(row[0]) - np.log(row[1])


@ALL
def test_raw_scores_are_numpys(model):
    with reranker(model.path, score="raw") as opened:
        scores = opened.rerank(QUERY, DOCUMENTS)
        reference = [expected(model, ids) for ids in laid_out(opened, QUERY, DOCUMENTS)]
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, reference, atol=1.5e-3)
    assert np.ptp(reference) > 0.1


@ALL
def test_probabilities_are_the_sigmoid_of_raw_scores(model):
    with reranker(model.path, score="raw") as opened:
        raw = opened.rerank(QUERY, DOCUMENTS)
    with reranker(model.path) as opened:
        probabilities = opened.rerank(QUERY, DOCUMENTS)
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-raw)), atol=1e-6)


@pytest.mark.parametrize("label", ["bad", "good", 1])
def test_the_named_label_is_the_score(label):
    index = label if isinstance(label, int) else GRADES.labels.index(label)
    with reranker(GRADES.path, score="raw", label=label) as opened:
        scores = opened.rerank(QUERY, DOCUMENTS[:4])
        ids = laid_out(opened, QUERY, DOCUMENTS[:4])
    reference = [reference_models.row(GRADES, i, "rank")[index] for i in ids]
    np.testing.assert_allclose(scores, reference, atol=1.5e-3)


@pytest.mark.parametrize("n_contexts", [1, 3])
@ALL
def test_scores_do_not_depend_on_batch_order_or_company(model, n_contexts):
    with reranker(model.path, score="raw", n_contexts=n_contexts, n_threads=1) as opened:
        together = opened.rerank(QUERY, DOCUMENTS)
        alone = np.concatenate([opened.rerank(QUERY, [text]) for text in DOCUMENTS])
        turned = opened.rerank(QUERY, DOCUMENTS[::-1])[::-1]
        pairs = [opened.rerank(QUERY, DOCUMENTS[i : i + 2]) for i in range(0, len(DOCUMENTS), 2)]
    for other in (alone, turned, np.concatenate(pairs)):
        np.testing.assert_allclose(other, together, atol=1e-3)


def test_small_decodes_are_filled_up_so_that_their_scores_are_the_same(monkeypatch):
    shape = Shape(n_ctx_train=2048, n_embd=256, n_layer=6, n_head=8, n_head_kv=4, n_embd_head=64)
    model = tiny_models.qwen3(pooling="rank", shape=shape)
    documents = documents_of(5, 10, 20, 300)

    def largest_difference():
        with reranker(model.path, score="raw") as opened:
            together = opened.rerank(QUERY, documents)
            alone = [opened.rerank(QUERY, [text])[0] for text in documents]
        return np.abs(together - np.array(alone)).max()

    filled_up = largest_difference()
    monkeypatch.setattr(driver.Driver, "_filler_tokens", lambda _driver, _n_tokens: 0)
    assert filled_up < 1e-4
    assert largest_difference() > 5 * filled_up


def test_eight_threads_get_the_serial_scores():
    with reranker(QWEN3.path, score="raw", n_contexts=2, n_threads=1) as opened:
        queries = [f"{QUERY} {number}" for number in range(8)]
        serial = [opened.rerank(query, DOCUMENTS[:6]) for query in queries]
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda query: opened.rerank(query, DOCUMENTS[:6]), queries))
    np.testing.assert_allclose(found, serial, atol=1e-3)


# Truncation


@ALL
def test_one_huge_document_among_ten_is_flagged_and_changes_no_other_score(model):
    others = documents_of(*range(3, 12))
    huge = "fish " * 50_000
    with reranker(model.path, score="raw") as opened:
        without = opened.rerank(QUERY, others)
        scores, truncated = opened._score(QUERY, [*others[:4], huge, *others[4:]])
        (ids,) = laid_out(opened, QUERY, [huge])
        assert len(ids) == opened.max_tokens
    assert truncated == [False] * 4 + [True] + [False] * 5
    np.testing.assert_allclose(np.delete(scores, 4), without, atol=1e-3)
    np.testing.assert_allclose(scores[4], expected(model, ids), atol=1.5e-3)


def test_a_causal_model_reads_a_document_of_several_decodes():
    (document,) = documents_of(400)
    with reranker(QWEN3.path, score="raw", n_ubatch=64) as opened:
        (score,) = opened.rerank(QUERY, [document])
        (ids,) = laid_out(opened, QUERY, [document])
    assert len(ids) > 1_000
    assert score == pytest.approx(expected(QWEN3, ids), abs=1.5e-3)


def test_an_encoders_pair_of_3000_tokens_is_scored_with_default_settings():
    with reranker(BERT.path) as opened:
        (found,) = opened.compress_documents([Document(*documents_of(3_000))], query="fish")
    assert found.metadata["relevance_truncated"] is True


@ALL
def test_a_query_that_leaves_no_room_is_an_error_with_the_numbers(model):
    with reranker(model.path) as opened:
        limit = model.shape.n_ctx_train
        with pytest.raises(InputTooLongError, match=rf"reads {limit} \(.*context_length\)"):
            opened.rerank("fish " * 2_000, ["a document"])


@ALL
def test_decodes_too_small_for_a_pair_are_an_error_or_many_and_never_an_empty_list(model):
    documents = documents_of(3, 300)
    with reranker(model.path, score="raw", n_ubatch=8) as opened:
        if opened.max_tokens == 8:
            with pytest.raises(InputTooLongError, match=r"reads 8 \(n_ubatch\)"):
                opened.rerank(QUERY, documents)
            return
        found = opened.rerank(QUERY, documents)
        expected_rows = [expected(model, ids) for ids in laid_out(opened, QUERY, documents)]
    np.testing.assert_allclose(found, expected_rows, atol=1.5e-3)


# Empty texts


@ALL
def test_no_documents_give_no_scores(model):
    with reranker(model.path) as opened:
        assert opened.rerank(QUERY, []).shape == (0,)


@ALL
def test_blank_texts_and_queries_count_as_empty_and_leave_the_others_alone(model):
    blank = ["", " ", "\n\t", "\N{NO-BREAK SPACE}"]
    with reranker(model.path, score="raw") as opened:
        scores = opened.rerank(QUERY, [*blank, "fish"])
        (alone,) = opened.rerank(QUERY, ["fish"])
        blank_queries = [opened.rerank(query, ["fish"])[0] for query in blank]
    assert np.isfinite(scores).all()
    np.testing.assert_array_equal(scores[:4], scores[0])
    assert scores[4] == pytest.approx(alone, abs=1e-3)
    assert np.ptp(blank_queries) < 1e-4


# The shared prefix


def decoded_tokens(model, documents, monkeypatch, decodes, *, share):
    """Tokens that one call has decoded."""
    with reranker(model.path, score="raw", n_contexts=1) as opened:
        if not share:
            monkeypatch.setattr(opened._parts.opened.engine, "_shared_prefix", lambda _: 0)
        decodes.clear()
        scores = opened.rerank(QUERY, documents)
    return sum(n_tokens for n_tokens, _ in decodes), scores


def test_template_and_query_are_decoded_once_for_all_documents(monkeypatch, decodes):
    documents = documents_of(*[12] * 20)
    shared, scores = decoded_tokens(QWEN3, documents, monkeypatch, decodes, share=True)
    unshared, same = decoded_tokens(QWEN3, documents, monkeypatch, decodes, share=False)
    with reranker(QWEN3.path) as opened:
        pairs = laid_out(opened, QUERY, documents)
        n_prefix = len(laid_out(opened, QUERY, [""])[0]) - 2  # <|im_end|> and a line end
    assert unshared == pytest.approx(sum(map(len, pairs)), abs=128)
    assert unshared - shared > 0.85 * n_prefix * (len(documents) - 1)
    np.testing.assert_allclose(scores, same, atol=1e-3)


# Refusals


@pytest.mark.parametrize("model", [BERT, QWEN3], ids=["bert", "qwen3"])
def test_a_reranker_without_its_head_is_refused_at_load(model):
    with pytest.raises(PoolingError, match=r"has no tensor cls\.output\.weight"):
        GGUFReranker(tiny_models.rank_without_head(model))


@pytest.mark.parametrize("model", [tiny_models.bert(), tiny_models.qwen3()], ids=["bert", "qwen3"])
def test_an_embedding_model_is_refused_at_load(model):
    with pytest.raises(PoolingError, match="was converted without one, or is no reranker"):
        GGUFReranker(model.path)


def test_several_labels_of_which_none_is_named_are_refused_and_the_model_freed():
    before = threading.active_count()
    with pytest.raises(UsageError, match="label=: 'bad', 'fair', 'good'"), reranker(GRADES.path):
        pass
    assert threading.active_count() == before


def test_a_model_that_is_not_there_is_refused():
    with pytest.raises(ModelNotFoundError, match="there is no file"):
        GGUFReranker("/nowhere/model.gguf")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"score": "logit"}, "score 'logit' is unknown"),
        ({"top_n": 0}, "top_n is 0; it must be at least 1"),
        ({"min_score": 1.5}, "min_score is 1.5; .* from 0 to 1"),
        ({"min_score": -0.1}, "min_score is -0.1"),
    ],
)
def test_an_option_out_of_range_is_refused(options, says):
    with pytest.raises(UsageError, match=says):
        GGUFReranker(BERT.path, **options)


def test_an_instruction_for_a_template_without_a_place_is_refused():
    with pytest.raises(UsageError, match="no place for one"):
        GGUFReranker(QWEN3.path, instruction="Look")


def test_a_score_that_is_not_a_number_is_an_error_that_names_the_document(monkeypatch):
    with reranker(BERT.path) as opened:
        engine = opened._parts.opened.engine
        run = engine.run

        def run_with_a_defect(sequences):
            found = run(sequences)
            return type(found)(found.rows, {1: "it holds values that are not finite"})

        monkeypatch.setattr(engine, "run", run_with_a_defect)
        with pytest.raises(EngineError, match="1 of 2 documents .* document 1: .* not finite"):
            opened.rerank(QUERY, ["a", "b"])


# Life


def test_a_closed_reranker_says_so_and_closes_again():
    with reranker(BERT.path) as opened:
        pass
    opened.close()
    with pytest.raises(EngineError, match="the model is closed"):
        opened.rerank(QUERY, ["a"])


def test_a_reranker_that_goes_takes_its_threads_along():
    before = threading.active_count()
    opened = GGUFReranker(QWEN3.path, n_contexts=2)
    opened.rerank(QUERY, ["a"])
    gone = weakref.ref(opened)
    del opened
    gc.collect()
    assert gone() is None
    assert threading.active_count() == before


def test_its_settings_cannot_be_changed_behind_its_back():
    with reranker(BERT.path, top_n=2) as opened, pytest.raises(ValueError, match="frozen"):
        opened.top_n = 3


def test_a_reranker_opened_for_embedding_gives_its_scores_as_rows():
    with GGUFEmbeddings(QWEN3.path) as opened:
        assert opened.dim == 2


def test_a_template_with_a_broken_place_is_refused(tmp_path):
    raw = QWEN3.path.read_bytes()
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(raw.replace(b"{document}", b"{documend}"))
    with pytest.raises(GGUFError, match="it needs query, and document once"):
        GGUFReranker(broken)
