"""GGUFEmbeddings: what comes back for which text, and what the object survives."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
import reference_models
import tiny_models
from langchain_tests.integration_tests import EmbeddingsIntegrationTests
from langchain_tests.unit_tests import EmbeddingsUnitTests
from texts import BLANK_TEXTS, LONE_SURROGATE, TEXTS
from tiny_models import Shape

import corral
from corral import GGUFEmbeddings
from corral.engine import _llama
from corral.errors import EngineError, PoolingError, UsageError

BERT = tiny_models.bert(shape=Shape(n_embd=64))
QWEN3 = tiny_models.qwen3(pooling="last")
SHORT = ["one", "two words", "a b c d e f g", "one"]


def opened(model=BERT, **options):
    return GGUFEmbeddings(model.path, **options)


class TestUnit(EmbeddingsUnitTests):
    @property
    def embeddings_class(self):
        return GGUFEmbeddings

    @property
    def embedding_model_params(self):
        return {"model": str(BERT.path)}


class TestIntegration(EmbeddingsIntegrationTests):
    @property
    def embeddings_class(self):
        return GGUFEmbeddings

    @property
    def embedding_model_params(self):
        return {"model": str(BERT.path)}


def test_the_package_offers_what_it_says_and_nothing_else():
    assert corral.GGUFEmbeddings is GGUFEmbeddings
    assert corral.__version__
    with pytest.raises(AttributeError, match="no attribute 'GGUF'"):
        _ = corral.GGUF


def test_vectors_are_float32_rows_of_unit_length_and_lists_of_python_floats():
    with opened() as embeddings:
        rows = embeddings.embed(SHORT)
        lists = embeddings.embed_documents(SHORT)
        query = embeddings.embed_query("one")
    assert (rows.shape, rows.dtype) == ((4, embeddings.dim), np.float32)
    np.testing.assert_allclose(np.linalg.norm(rows.astype(np.float64), axis=1), 1, atol=1e-6)
    assert all(type(value) is float for row in [*lists, query] for value in row)
    np.testing.assert_allclose(lists, rows, atol=1e-3)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ("one string", "got str in place"),
        (["a", None], "got NoneType in it"),
        ([3], "got int in it"),
        ((text for text in ["a"]), "got generator in place"),
    ],
)
def test_what_is_no_list_of_strings_is_refused(texts, said):
    with opened() as embeddings:
        for embed in (embeddings.embed, embeddings.embed_documents):
            with pytest.raises(UsageError, match=said):
                embed(texts)


@pytest.mark.parametrize("which", ["query_prefix", "document_prefix"])
def test_a_prefix_that_leaves_no_room_is_refused_at_once(which):
    with pytest.raises(UsageError, match="none is left for text"):
        opened(n_ubatch=16, **{which: "word " * 50})


def test_a_limit_below_the_special_tokens_is_refused_with_them():
    with pytest.raises(UsageError, match=r"adds 2 tokens .* of 2 \(n_ubatch\) none is left"):
        opened(n_ubatch=2)


def test_layers_for_a_gpu_that_the_build_has_not_are_warned_of(monkeypatch, caplog):
    monkeypatch.setattr(_llama.llama, "llama_supports_gpu_offload", lambda: False)
    opened(n_gpu_layers=3).close()
    assert "n_gpu_layers is 3, and this build of llama.cpp has no GPU" in caplog.text


def test_no_texts_give_no_rows():
    with opened() as embeddings:
        assert embeddings.embed([]).shape == (0, embeddings.dim)
        assert embeddings.embed_documents([]) == []


@pytest.mark.parametrize("model", [BERT, QWEN3, tiny_models.llama(pooling="mean")])
def test_blank_odd_and_broken_texts_have_one_result_each_and_disturb_no_other(model):
    odd = [*BLANK_TEXTS.values(), "", " ", "\u200b", "\x00", LONE_SURROGATE, "</s>", "[SEP] [CLS]"]
    with opened(model) as embeddings:
        alone = [embeddings.embed([text])[0] for text in odd]
        mixed = embeddings.embed(["plain", *odd, "plain"])
        plain = embeddings.embed(["plain"])[0]
    np.testing.assert_allclose(mixed[1:-1], alone, atol=2e-3)
    np.testing.assert_allclose(mixed[[0, -1]], [plain, plain], atol=2e-3)


def test_text_that_looks_like_a_control_token_is_text():
    with opened() as embeddings:
        ids = embeddings.sequences("").build(["[SEP]"])[0].pieces[0].ids.tolist()
        special = {*embeddings.tokenizer.head, *embeddings.tokenizer.tail}
    assert not special.intersection(ids[1:-1])


def test_info_tells_tokens_truncation_and_the_model():
    with opened(n_ubatch=8) as embeddings:
        rows, infos = embeddings.embed(["a", "a b c d e f g h i j k l"], return_info=True)
        assert len(rows) == 2
        assert [info.truncated for info in infos] == [False, True]
        assert infos[0].n_tokens == 3
        assert infos[1].n_tokens > 8
        assert {info.model for info in infos} == {str(BERT.path)}


def test_truncation_equals_embedding_what_is_left():
    words = "a b c d e f g h i j k l"
    with opened(n_ubatch=8) as embeddings:
        kept = embeddings.sequences("").build([words])[0].pieces[0].ids
        assert len(kept) == 8
        assert kept[-1] == embeddings.tokenizer.tail[0]
        cut, whole = embeddings.embed([words, "a b c d e f"])
    np.testing.assert_allclose(cut, whole, atol=1e-3)


def test_windows_are_the_token_weighted_mean_of_their_parts():
    with opened(n_ubatch=8, over_length="window", normalize="none") as embeddings:
        (built,) = embeddings.sequences("").build(["a b c d e f g h i j k l"])
        parts = [reference_models.row(BERT, piece.ids, "mean") for piece in built.pieces]
        (row,), (info,) = embeddings.embed(["a b c d e f g h i j k l"], return_info=True)
    expected = np.average(parts, axis=0, weights=[piece.weight for piece in built.pieces])
    assert len(parts) > 1
    assert not info.truncated
    np.testing.assert_allclose(row, expected, atol=5e-3)


def test_prefixes_stand_before_the_text_and_differ_for_queries():
    options = {"query_prefix": "query: ", "document_prefix": "passage: "}
    with opened(**options) as embeddings, opened() as bare:
        np.testing.assert_allclose(
            embeddings.embed_query("word"), bare.embed_query("query: word"), atol=1e-3
        )
        np.testing.assert_allclose(
            embeddings.embed(["word"]), bare.embed(["passage: word"]), atol=1e-3
        )
        assert embeddings.embed_query("word") != embeddings.embed_documents(["word"])[0]


@pytest.mark.parametrize("add_eos", [True, False])
def test_a_last_model_reads_its_eos_once(add_eos):
    model = tiny_models.qwen3(pooling="last", add_eos=add_eos)
    with opened(model, over_length="truncate") as embeddings:
        long = "word " * model.shape.n_ctx_train
        for text in ("word", "", long):
            ids = embeddings.sequences("").build([text])[0].pieces[0].ids.tolist()
            eos = embeddings.tokenizer.eos_id
            assert ids[-1] == eos
            assert ids.count(eos) == 1


def test_rows_of_tokens_come_without_normalisation_and_not_through_langchain():
    with opened(tiny_models.qwen3(pooling="none")) as embeddings:
        rows = embeddings.embed(["a", "a b c"])
        lengths = [embeddings.sequences("").count(text) for text in ("a", "a b c")]
        assert [row.shape for row in rows] == [(n, embeddings.dim) for n in lengths]
        assert not np.allclose(np.linalg.norm(rows[1], axis=1), 1)
        with pytest.raises(PoolingError, match="a row for each token"):
            embeddings.embed_documents(["a"])
        with pytest.raises(PoolingError, match="a row for each token"):
            embeddings.embed_query("a")


def test_token_rows_can_be_windowed_and_normalised():
    none = tiny_models.bert(pooling="none")
    options = {"n_ubatch": 8, "over_length": "window", "normalize": "l2"}
    with opened(none, pooling_type="none", **options) as embeddings:
        (rows,) = embeddings.embed(["a b c d e f g h i j k l"])
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    assert len(rows) > 12


def test_scores_of_a_rank_model_come_raw():
    model = tiny_models.bert(pooling="rank", labels=("no", "maybe", "yes"))
    with opened(model) as embeddings:
        assert embeddings.dim == 3
        ids = embeddings.sequences("").build(["a b"])[0].pieces[0].ids
        expected = reference_models.row(model, ids, "rank")
        np.testing.assert_allclose(embeddings.embed(["a b"])[0], expected, atol=5e-3)


@pytest.mark.parametrize(("normalize", "order"), [("l1", 1), ("l2", 2), (3, 3)])
def test_normalisation_is_chosen_by_name_or_number(normalize, order):
    with opened(normalize=normalize) as embeddings:
        rows = embeddings.embed(SHORT).astype(np.float64)
    np.testing.assert_allclose(np.linalg.norm(rows, ord=order, axis=1), 1, atol=1e-6)


def test_a_dim_that_was_not_trained_is_refused_unless_forced():
    with pytest.raises(UsageError, match="dim is 16; the model was trained for 64"):
        opened(dim=16)
    with pytest.raises(UsageError, match="dim is 65; the model gives 64"):
        opened(dim=65, force_dim=True)
    with opened(dim=16, force_dim=True) as short, opened() as full:
        assert short.dim == 16
        rows = full.embed(SHORT)[:, :16].astype(np.float64)
        expected = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        np.testing.assert_allclose(short.embed(SHORT), expected, atol=1e-3)


def test_long_texts_go_whole_to_the_long_model_and_it_is_named():
    long = "word " * 50
    with opened(QWEN3) as far, opened(n_ubatch=16, long_model=far) as embeddings:
        rows, infos = embeddings.embed(["short", long, "too"], return_info=True)
        assert [info.model for info in infos] == [str(BERT.path), str(QWEN3.path), str(BERT.path)]
        assert not any(info.truncated for info in infos)
        np.testing.assert_allclose(rows[1], far.embed([long])[0], atol=1e-3)
        np.testing.assert_allclose(rows[2], embeddings.embed(["too"])[0], atol=1e-3)


def test_a_long_model_is_opened_by_path_and_must_pool_by_last():
    with opened(n_ubatch=16, long_model=QWEN3.path) as embeddings:
        (_, info) = embeddings.embed(["word " * 50], return_info=True)
        assert info[0].model == str(QWEN3.path)
    with pytest.raises(PoolingError, match="pools by mean"):
        opened(long_model=BERT.path)


def test_a_text_without_a_usable_vector_is_an_error_that_names_it(monkeypatch):
    class Spoiled(_llama.Context):
        def pooled_row(self, sequence):
            return super().pooled_row(sequence) * np.nan

    monkeypatch.setattr(_llama, "Context", Spoiled)
    with opened() as embeddings:
        with pytest.raises(EngineError, match="2 of 2 texts .* text 0: .* not finite"):
            embeddings.embed(["a", "b"])
        assert set(embeddings.embed_checked(["a", "b"]).defects) == {0, 1}


def test_eight_threads_on_one_object_give_what_one_gives():
    texts = list(TEXTS.values())[:24]
    with opened() as embeddings:
        serial = [embeddings.embed_query(text) for text in texts]
        with ThreadPoolExecutor(8) as threads:
            parallel = list(threads.map(embeddings.embed_query, texts))
    np.testing.assert_allclose(parallel, serial, atol=2e-3)


def test_the_async_twins_give_the_same_and_do_not_block_the_loop():
    many = SHORT * 50

    async def run():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticker = asyncio.create_task(tick())
        with opened() as embeddings:
            found = await asyncio.gather(
                embeddings.aembed_documents(many), embeddings.aembed_query("one")
            )
            ticker.cancel()
            return found, embeddings.embed_documents(many), ticks

    (documents, query), expected, ticks = asyncio.run(run())
    np.testing.assert_allclose(documents, expected, atol=1e-3)
    np.testing.assert_allclose(query, expected[0], atol=1e-3)
    assert ticks > 10


def test_a_closed_object_says_so():
    embeddings = opened()
    embeddings.close()
    embeddings.close()
    with pytest.raises(EngineError, match="closed"):
        embeddings.embed(["a"])


def test_a_text_that_comes_again_in_a_call_is_read_once(monkeypatch):
    seen = []
    with opened(over_length="window") as embeddings:
        run = embeddings._open.engine.run
        monkeypatch.setattr(
            embeddings._open.engine, "run", lambda read: seen.append(len(read)) or run(read)
        )
        long = " ".join(f"w{number}" for number in range(400))
        texts = ["one", "two", "one", long, "one", long]
        rows, infos = embeddings.embed(texts, return_info=True)
        apart = embeddings.embed(["one"]), embeddings.embed(["two"]), embeddings.embed([long])
    assert seen[3] > 1
    assert seen[0] == sum(seen[1:])
    one, two, window = (vector[0] for vector in apart)
    np.testing.assert_allclose(rows, [one, two, one, window, one, window], atol=2e-3)
    assert infos[3] == infos[5]
    assert infos[3].n_tokens > infos[0].n_tokens


def test_opening_and_closing_leaves_memory_and_threads_as_they_were():
    process = psutil.Process()

    def rounds(n):
        for _ in range(n):
            with opened() as embeddings:
                embeddings.embed(SHORT)
        return process.memory_info().rss

    settled = rounds(15)
    threads = threading.active_count()
    assert rounds(50) - settled < 20 * 2**20
    assert threading.active_count() == threads


def test_settings_name_what_decides_the_vectors():
    with opened() as one, opened(dim=16, force_dim=True) as other:
        differing = {key for key in one.settings if one.settings[key] != other.settings[key]}
    assert differing == {"dim"}
