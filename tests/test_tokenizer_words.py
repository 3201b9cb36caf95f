"""WordPiece that remembers words gives what WordPiece gives that remembers nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from texts import TEXTS

from corral.engine.tokenizer import _wordpiece, load_tokenizer
from corral.engine.tokenizer._wordpiece import _WordPieceEncoder
from corral.gguf_header import read_header

# What BERT drops, and what it or Python takes for white space.
ODD = "\x00\x0b\x1c\x85\xad\u0301\u0327\u200b\u2028\u3000\ufffd\ufeff"
WORDS = st.text(st.sampled_from("aAÉe\u0301中.-'\u017f" + ODD + " \t\n\r"), max_size=12)
WRITING = st.lists(WORDS | st.text(max_size=8) | st.sampled_from(["the", "harbour", "x" * 120]))


@pytest.fixture(scope="module")
def plain(minilm_path):
    return load_tokenizer(read_header(minilm_path), None).encoder._encoder


def agree(remembering, plain, text):
    expected = plain.encode(text)
    for _ in range(2):
        ids, offsets = remembering.encode(text)
        np.testing.assert_array_equal(ids, expected.ids)
        np.testing.assert_array_equal(remembering.encode_ids(text), expected.ids)
        assert (np.diff(offsets, axis=0) >= 0).all()
        starts, ends = offsets.T
        gaps = zip([0, *ends], [*starts, len(text)], strict=True)
        assert not len(ids) or all(not text[low:high].strip() for low, high in gaps)
        # A span holds what the token is of, or more.
        assert (starts <= expected.offsets[:, 0]).all() or ids.size == 0


@given(st.lists(WRITING.map(" ".join), min_size=1, max_size=4))
def test_any_texts_have_the_tokens_that_they_have_without_memory(plain, texts):
    remembering = _WordPieceEncoder(plain)
    for text in texts:
        agree(remembering, plain, text)


@pytest.mark.parametrize("name", TEXTS)
def test_awkward_texts_too(plain, name):
    agree(_WordPieceEncoder(plain), plain, TEXTS[name])


@pytest.mark.parametrize(
    ("texts", "spans"),
    [
        (["ship \u0301goat", "goat ship"], [[(0, 4), (5, 10)], [(0, 4), (5, 9)]]),
        (["ship \u0301 goat"], [[(0, 6), (7, 11)]]),
        (["\u0301 ship"], [[(0, 6)]]),
        (["goat\x1cship"], [[(0, 6), (6, 9)]]),  # goats, ##hip
    ],
)
def test_what_bert_drops_belongs_to_the_word_that_it_stands_in(plain, texts, spans):
    remembering = _WordPieceEncoder(plain)
    for text, expected in zip(texts, spans, strict=True):
        assert [tuple(span) for span in remembering.encode(text).offsets.tolist()] == expected


def test_words_are_forgotten_before_they_take_much_memory(plain, monkeypatch):
    monkeypatch.setattr(_wordpiece, "_KEPT_CHARACTERS", 100)
    remembering = _WordPieceEncoder(plain)
    for number in range(100):
        agree(remembering, plain, f"number {number} of a hundred")
        assert sum(map(len, remembering._known)) <= 100 + len(f"number {number} of a hundred")


def test_threads_share_it(plain, monkeypatch):
    monkeypatch.setattr(_wordpiece, "_KEPT_CHARACTERS", 500)
    remembering = _WordPieceEncoder(plain)
    texts = [text[at : at + 200] for text in TEXTS.values() for at in range(0, 4000, 200)]
    with ThreadPoolExecutor(4) as threads:
        for text, ids in zip(texts, threads.map(remembering.encode_ids, texts), strict=True):
            np.testing.assert_array_equal(ids, plain.encode_ids(text))
