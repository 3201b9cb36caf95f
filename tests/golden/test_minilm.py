"""GGUFEmbeddings against sentence-transformers, all-MiniLM-L6-v2."""

import numpy as np
import pytest
from texts import BLANK_TEXTS, LONE_SURROGATE, TEXTS

from corral.embeddings import GGUFEmbeddings
from golden import minilm

LEAST_COSINE = 0.9999
NAMES = [*TEXTS, *BLANK_TEXTS]
ALL_TEXTS = {**TEXTS, **BLANK_TEXTS}


@pytest.fixture(scope="module", params=[1, 3], ids=["1 context", "3 contexts"])
def embeddings(request, minilm_path):
    with GGUFEmbeddings("minilm", n_contexts=request.param, n_threads=1) as model:
        assert model.model_path == minilm_path
        yield model


def assert_golden(vectors, names):
    expected = np.stack([minilm().vectors[name] for name in names])
    cosines = (vectors * expected).sum(axis=1)  # both are of unit length
    assert {n: c for n, c in zip(names, cosines, strict=True) if c < LEAST_COSINE} == {}


def test_a_batch_gives_the_reference_vectors(embeddings):
    vectors = embeddings.embed(list(ALL_TEXTS.values()))
    assert vectors.shape == (len(NAMES), 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert_golden(vectors, NAMES)


@pytest.mark.parametrize("seed", [1, 2])
def test_neither_order_nor_company_matters(embeddings, seed):
    names = np.random.default_rng(seed).permutation(NAMES * 2).tolist()
    for start, stop in ((0, 7), (7, 60), (60, len(names))):
        part = names[start:stop]
        assert_golden(embeddings.embed([ALL_TEXTS[name] for name in part]), part)


@pytest.mark.parametrize("name", NAMES)
def test_a_text_alone_gives_its_reference_vector(embeddings, name):
    assert_golden(embeddings.embed([ALL_TEXTS[name]]), [name])
    assert_golden(np.array([embeddings.embed_query(ALL_TEXTS[name])]), [name])


@pytest.mark.parametrize("name", NAMES)
def test_the_token_ids_are_the_reference_tokenizers(embeddings, name):
    expected = minilm().ids[name][1:-1]
    np.testing.assert_array_equal(embeddings.tokenizer.encode(ALL_TEXTS[name]).ids, expected)


def test_every_text_is_told_its_length_and_whether_it_was_cut(embeddings):
    golden = minilm()
    _, infos = embeddings.embed(list(ALL_TEXTS.values()), return_info=True)
    assert [info.n_tokens for info in infos] == [len(golden.ids[name]) for name in NAMES]
    cut = {name for name, info in zip(NAMES, infos, strict=True) if info.truncated}
    assert cut == {"prose of 600 tokens"}


def test_a_lone_surrogate_leaves_its_neighbours_alone(embeddings):
    vectors = embeddings.embed([TEXTS["Hindi"], LONE_SURROGATE, TEXTS["Korean"]])
    assert_golden(vectors[[0, 2]], ["Hindi", "Korean"])
    assert np.linalg.norm(vectors[1]) == pytest.approx(1, abs=1e-6)
