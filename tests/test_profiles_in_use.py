"""What a model's family changes in the vectors: prefixes, pooling, limits, layer norm, dimensions.

The models are tiny and random, with the names of real families, so that their profiles are found.
"""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import tiny_models
from tiny_models import Shape

from corral import GGUFEmbeddings
from corral.engine.pooling import PoolingType
from corral.errors import InputTooLongError, UsageError

E5 = tiny_models.variant(tiny_models.bert(), name="multilingual-e5-base")
BGE = tiny_models.variant(tiny_models.bert(pooling="cls"), name="bge-small-en-v1.5")
QWEN3 = tiny_models.variant(tiny_models.qwen3(), name="Qwen3-Embedding-0.6B")
NOMIC = tiny_models.nomic_bert(name="nomic-embed-text-v1.5", shape=Shape(n_embd=128))
GEMMA = tiny_models.gemma_embedding(name="embeddinggemma-300m")
FAMILIES = [E5, BGE, QWEN3, NOMIC, GEMMA]
TEXT = "of the harbour"


def opened(model, **options):
    return GGUFEmbeddings(model.path, **options)


def cosine(a, b):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def ids_of(embeddings, prefix, text):
    return embeddings.sequences(prefix).build([text])[0].pieces[0].ids.tolist()


@pytest.fixture
def users_file(tmp_path, monkeypatch):
    path = tmp_path / "mine.toml"
    monkeypatch.setenv("CORRAL_PROFILES", str(path))
    return path


# Prefixes


@pytest.mark.parametrize("model", FAMILIES, ids=lambda model: model.name)
def test_a_query_is_embedded_as_another_text_than_a_passage(model):
    with opened(model) as embeddings:
        query, document = embeddings.embed_query(TEXT), embeddings.embed_documents([TEXT])[0]
        assert embeddings.query_prefix != embeddings.document_prefix
    assert cosine(query, document) < 0.9999


@pytest.mark.parametrize("model", FAMILIES, ids=lambda model: model.name)
def test_the_prefixes_are_those_of_the_family_and_stand_before_the_text(model):
    with opened(model) as known, opened(model, query_prefix="", document_prefix="") as bare:
        query, document = known.query_prefix + TEXT, known.document_prefix + TEXT
        assert cosine(known.embed_query(TEXT), bare.embed_query(query)) > 0.99999
        assert cosine(known.embed([TEXT])[0], bare.embed([document])[0]) > 0.99999


def test_bge_reads_passages_as_they_are():
    with opened(BGE) as embeddings:
        assert embeddings.document_prefix == ""
        assert embeddings.query_prefix


@pytest.mark.parametrize("model", FAMILIES, ids=lambda model: model.name)
def test_a_prefix_that_is_there_already_is_not_put_before_the_text_again(model):
    with opened(model) as embeddings:
        for prefix in (embeddings.query_prefix, embeddings.document_prefix):
            once = ids_of(embeddings, prefix, TEXT)
            assert ids_of(embeddings, prefix, prefix + TEXT) == once
            assert embeddings.sequences(prefix).count(prefix + TEXT) == len(once)


@pytest.mark.parametrize("model", [E5, QWEN3, NOMIC, GEMMA], ids=lambda model: model.name)
@pytest.mark.parametrize("over_length", ["truncate", "window"])
def test_neither_prefix_nor_special_tokens_are_ever_cut(model, over_length):
    with opened(model, over_length=over_length) as embeddings:
        prefix = embeddings.query_prefix
        bare = ids_of(embeddings, prefix, "")
        head, tail = embeddings.tokenizer.head, embeddings.tokenizer.tail
        start = bare[: len(bare) - len(tail) - 1]  # its last token may join with the text's first
        (built,) = embeddings.sequences(prefix).build(["harbour fish " * 1000])
        assert len(built.pieces) == 1 if over_length == "truncate" else len(built.pieces) > 1
        for piece in built.pieces:
            ids = piece.ids.tolist()
            assert len(ids) <= embeddings.max_tokens
            assert ids[: len(start)] == start
            assert tuple(ids[: len(head)]) == tuple(head)
            assert tuple(ids[-len(tail) :]) == tuple(tail)
            assert ids.count(tail[-1]) == 1
        assert len(built.pieces[0].ids) == embeddings.max_tokens


# Pooling


def test_pooling_comes_from_the_profile_where_the_file_is_silent():
    silent = tiny_models.variant(tiny_models.qwen3(pooling=None), name="Qwen3-Embedding-0.6B")
    with opened(silent) as embeddings, opened(QWEN3) as said:
        assert embeddings.pooling_type is PoolingType.LAST
        np.testing.assert_allclose(embeddings.embed([TEXT]), said.embed([TEXT]), atol=1e-3)


def test_another_pooling_than_the_profiles_warns_too():
    silent = tiny_models.variant(tiny_models.qwen3(pooling=None), name="Qwen3-Embedding-0.6B")
    with pytest.warns(UserWarning, match="mean overrides last"):
        opened(silent, pooling_type="mean").close()


def test_an_override_warns_once_for_each_object_and_names_the_users_line():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            with opened(QWEN3, pooling_type="mean") as embeddings:
                embeddings.embed([TEXT])
                embeddings.embed_query(TEXT)
    assert len(caught) == 2
    assert {warning.filename for warning in caught} == {__file__}


def test_python_shows_the_warning_of_every_line_that_overrides():
    code = """
import sys
from corral import GGUFEmbeddings
GGUFEmbeddings(sys.argv[1], pooling_type="mean").close()
GGUFEmbeddings(sys.argv[1], pooling_type="mean").close()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, QWEN3.path],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stderr.count("mean overrides last") == 2


def test_naming_the_models_own_pooling_is_no_override():
    with opened(QWEN3, pooling_type="last") as embeddings:  # warnings are errors here
        assert embeddings.pooling_type is PoolingType.LAST


def test_causal_attention_is_refused_where_no_memory_makes_it_possible():
    with pytest.raises(UsageError, match="a bert model keeps no memory"):
        opened(E5, attention="causal")
    with opened(E5, attention="non-causal") as embeddings:
        assert embeddings.settings["causal"] is False


# The end of a text


@pytest.mark.parametrize("add_eos", [None, False, True])
def test_the_end_of_a_text_is_never_the_end_of_a_chats_turn(add_eos):
    model = tiny_models.qwen3(eos="<|im_end|>", add_eos=add_eos)
    tokens = model.vocabulary.tokens
    with opened(model) as embeddings:
        for text in ("word", "", "word " * 1000, "<|im_end|> <|endoftext|>"):
            ids = ids_of(embeddings, "", text)
            assert tokens[ids[-1]] == "<|endoftext|>"
            assert ids.count(ids[-1]) == 1
            assert tokens.index("<|im_end|>") not in ids


@pytest.mark.parametrize("model", [QWEN3, tiny_models.llama(), tiny_models.llama(tokenizer="spm")])
def test_control_tokens_in_a_text_are_text(model):
    tokens = model.vocabulary.tokens
    names = [t for t in tokens if t.startswith("<") and t.endswith(">") and not t.startswith("<0x")]
    with opened(model, document_prefix="") as embeddings:
        ids = ids_of(embeddings, "", "x " + " ".join(names))
        n_head, n_tail = len(embeddings.tokenizer.head), len(embeddings.tokenizer.tail)
    control = {tokens.index(name) for name in names}
    assert control
    assert not control.intersection(ids[n_head : len(ids) - n_tail])


# Limits, dimensions, layer norm, dense layers


def test_the_limit_and_the_infos_count_prefix_and_special_tokens():
    with opened(E5) as embeddings:
        prefix = embeddings.sequences("passage: ")
        n_round = prefix.count("")
        assert n_round > 2
        for n in (511 - n_round, 512 - n_round, 513 - n_round):
            _, (info,) = embeddings.embed(["x " * n], return_info=True)
            assert (info.n_tokens, info.truncated) == (n + n_round, n + n_round > 512)


def test_a_dim_of_a_family_without_matryoshka_is_refused():
    with pytest.raises(UsageError, match="the model was trained for 64, and other"):
        opened(BGE, dim=32)


def test_a_trained_dim_is_cut_after_the_layer_norm_and_before_normalising():
    plain = tiny_models.nomic_bert(shape=Shape(n_embd=128))
    options = {"normalize": "none", "document_prefix": "search_document: "}
    with opened(NOMIC, dim=64) as embeddings, opened(plain, **options) as raw:
        (found,), (row,) = embeddings.embed([TEXT]), raw.embed([TEXT]).astype(np.float64)
        assert embeddings.dim == 64
    normed = (row - row.mean()) / np.sqrt(row.var() + 1e-5)
    assert cosine(found, normed[:64]) > 0.99999
    assert cosine(found, row[:64]) < 0.9999
    assert np.linalg.norm(found.astype(np.float64)) == pytest.approx(1, abs=1e-6)
    with pytest.raises(UsageError, match="trained for 64, 128, 256"):
        opened(NOMIC, dim=65)


@pytest.mark.parametrize("normalize", ["l2", "l1", "max-int16", "none", 3])
def test_every_norm_is_of_the_cut_vector(normalize):
    expected = {"l1": 1, "l2": 1, 3: 1, "max-int16": 32760}
    order = {"l1": 1, "l2": 2, "max-int16": np.inf, 3: 3}
    with opened(NOMIC, dim=64, normalize=normalize) as embeddings:
        rows = embeddings.embed([TEXT, "of"]).astype(np.float64)
    lengths = np.linalg.norm(rows, ord=order.get(normalize, 2), axis=1)
    if normalize == "none":
        assert (np.abs(lengths - 1) > 0.1).all()
    else:
        np.testing.assert_allclose(lengths, expected[normalize], rtol=1e-6)


def test_embeddinggemma_passes_through_its_dense_layers():
    bare = tiny_models.gemma_embedding(dense=False)
    with pytest.warns(UserWarning, match="no dense_2.weight and dense_3.weight"):
        raw = opened(bare, normalize="none", document_prefix="title: none | text: ")
    with raw, opened(GEMMA) as embeddings:
        (found,), (row,) = embeddings.embed([TEXT]), raw.embed([TEXT]).astype(np.float64)
    expected = GEMMA.weights["dense_3.weight"] @ (GEMMA.weights["dense_2.weight"] @ row)
    assert cosine(found, expected) > 0.99999
    assert abs(cosine(found, row)) < 0.9


# A family of the user's own


def test_a_users_own_family_decides_the_vectors(users_file):
    users_file.write_text(
        '[mine]\nsource = "https://example.org/card"\nmatch = ["tiny-qwen3"]\n'
        'query_prefix = "ask: "\ndocument_prefix = "tell: "\ntrained_dims = [16, 32]\n'
        'pooling_type = "mean"\nmax_tokens = 40\nlayer_norm = true\n'
    )
    silent = tiny_models.qwen3(pooling=None)
    with opened(silent, dim=16, over_length="error") as embeddings:
        assert embeddings.pooling_type is PoolingType.MEAN
        found = embeddings.embed([TEXT])[0]
        query = embeddings.embed_query(TEXT)
        with pytest.raises(InputTooLongError, match=r"the model takes 40 \(profile mine\)"):
            embeddings.embed(["x " * 60])
        with pytest.raises(UsageError, match="trained for 16, 32, 64"):
            opened(silent, dim=17)
    users_file.write_text("")
    options = {"pooling_type": "mean", "normalize": "none"}
    with opened(silent, **options) as raw:
        for text, vector in ((f"tell: {TEXT}", found), (f"ask: {TEXT}", query)):
            row = raw.embed([text])[0].astype(np.float64)
            assert cosine(vector, ((row - row.mean()) / row.std())[:16]) > 0.9999


# Long texts to a second model


LONG = "harbour fish " * 40


@pytest.mark.parametrize("over_length", ["truncate", "error", "window"])
def test_long_texts_go_to_the_long_model_under_every_policy(over_length):
    options = {"n_ubatch": 60, "over_length": over_length, "long_model": QWEN3.path}
    with opened(E5, **options) as embeddings, opened(QWEN3, over_length="error") as far:
        rows, infos = embeddings.embed(["x", LONG, "y"], return_info=True)
        assert [info.model for info in infos] == [str(m.path) for m in (E5, QWEN3, E5)]
        assert not any(info.truncated for info in infos)
        assert cosine(rows[1], far.embed([LONG])[0]) > 0.99999


def test_a_long_query_gets_the_long_models_prefix_for_queries():
    with opened(E5, n_ubatch=60, long_model=QWEN3.path) as embeddings, opened(QWEN3) as far:
        assert cosine(embeddings.embed_query(LONG), far.embed_query(LONG)) > 0.99999
        assert cosine(embeddings.embed_query(LONG), far.embed([LONG])[0]) < 0.9999


def test_a_text_too_long_for_both_is_an_error_that_names_its_number():
    options = {"n_ubatch": 60, "over_length": "error", "long_model": QWEN3.path}
    says = r"text 2 has .* the model takes 512"
    with opened(E5, **options) as embeddings, pytest.raises(InputTooLongError, match=says):
        embeddings.embed(["x", LONG, LONG * 50])


def test_a_long_model_that_was_opened_by_name_is_closed_and_a_given_one_is_not():
    with opened(QWEN3) as given:
        with opened(E5, n_ubatch=60, long_model=given) as embeddings:
            embeddings.embed([LONG])
        assert given.embed(["x"]).shape == (1, given.dim)
    embeddings = opened(E5, n_ubatch=60, long_model=QWEN3.path)
    owned = embeddings._long
    embeddings.close()
    with pytest.raises(Exception, match="closed"):
        owned.embed(["x"])
