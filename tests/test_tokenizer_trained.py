"""Ids and offsets from a GGUF, against the tokenizer that the vocabulary was taken from."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import LONE_SURROGATE
from tokenizer_cases import ALL, XQUAD
from trained_vocabularies import KINDS, trained
from vocab_ggufs import LlamaVocabulary

from corral.engine.tokenizer import GGUFTokenizer, load_tokenizer
from corral.gguf_header import read_header

# With `llama_tokenize` for its ids, and offsets by alignment.
FALLBACK = "llama"


@cache
def tokenizer(kind: str) -> GGUFTokenizer:
    with TemporaryDirectory() as folder:
        path = Path(folder, "vocabulary.gguf")
        if kind != FALLBACK:
            return load_tokenizer(read_header(trained(kind).write(path)), _no_llama)
        trained("bpe, gpt-2").write(path)
        llama = LlamaVocabulary(path)
        header = read_header(path)
        unknown = {**header.metadata, "tokenizer.ggml.pre": "not known"}
        return load_tokenizer(type(header)(unknown, {}, 0), llama.tokenize)


def _no_llama(text: str):
    raise AssertionError(f"llama_tokenize was asked for {text!r}")


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_the_original_tokenizers(kind):
    different = [
        name
        for name, text in ALL.items()
        if tokenizer(kind).encode(text).ids.tolist() != trained(kind).ids(text)
    ]
    assert different == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("language", XQUAD)
def test_ids_of_paragraphs_are_the_original_tokenizers(kind, language):
    texts = XQUAD[language]
    if not texts:
        pytest.skip("shared/data/xquad-* does not lie beside the checkout")
    for text, ids in zip(texts, tokenizer(kind).encode_batch(texts), strict=True):
        assert ids.tolist() == trained(kind).ids(text)


def test_fallback_gives_llama_cpps_ids_which_are_gpt2s():
    texts = list(ALL.values())
    ours, original = tokenizer(FALLBACK), trained("bpe, gpt-2")
    assert [i.tolist() for i in ours.encode_batch(texts)] == [original.ids(t) for t in texts]


@pytest.mark.parametrize("kind", KINDS)
def test_text_of_control_tokens_is_text(kind):
    special = set(range(4)) - {tokenizer(kind).unk_id}
    ids = tokenizer(kind).encode("</s> x<s>y <pad></s>").ids
    assert len(ids) > 4
    assert not special & set(ids.tolist())


@pytest.mark.parametrize("kind", [*KINDS, FALLBACK])
def test_lone_surrogate_reads_as_a_replacement_character(kind):
    found = tokenizer(kind).encode(LONE_SURROGATE)
    expected = tokenizer(kind).encode(LONE_SURROGATE.replace("\ud83d", "\ufffd"))
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.offsets.tolist() == expected.offsets.tolist()
    assert tokenizer(kind).encode_batch([LONE_SURROGATE])[0].tolist() == expected.ids.tolist()


@pytest.mark.parametrize("kind", [*KINDS, FALLBACK])
@pytest.mark.parametrize("character", ["a", " ", "漢"])
def test_a_line_of_200_kilobytes_is_read_to_its_end(kind, character):
    text = f"start {character * 200_000} end"
    found = tokenizer(kind).encode(text)
    check_offsets(text, found)
    assert found.offsets[-1, 1] == len(text)
    assert found.offsets[0, 0] == 0


ALPHABET = st.one_of(
    st.sampled_from(
        [
            *("a", "Z", "é", "e\u0301", "ß", "İ", "ﬁ", "㍿", "漢", "한", "\u1112\u1161\u11ab"),
            *("क़", "क\u093c", "ไ", "👩‍👩‍👧", "🇩🇪", "\u0627\u064b", "\u0301", "\u0323\u0301"),
            *(" ", "  ", "\n", "\r\n", "\t", "\0", "\x85", "\u00a0", "\u200b", "\ufeff", "\u3000"),
            *("▁", "##", "</s>", "<s>", "[SEP]", "<0x41>", "'s", "123", "\ufffd", "\ud800"),
            *("word", " word", "A" * 120),
        ]
    ),
    st.characters(),
)
AWKWARD = st.lists(ALPHABET, max_size=24).map("".join)


def check_offsets(text, found):
    ids, offsets = found
    assert ids.dtype == np.int32
    assert ids.ndim == 1
    assert offsets.dtype == np.int64
    assert offsets.shape == (len(ids), 2)
    starts, ends = offsets.T
    assert (np.diff(starts) >= 0).all()
    assert (np.diff(ends) >= 0).all()
    assert (starts >= 0).all()
    assert (starts <= ends).all()
    assert (ends <= len(text)).all()
    depth = np.zeros(len(text) + 1, np.int64)
    np.add.at(depth, starts, 1)
    np.add.at(depth, ends, -1)
    uncovered = np.flatnonzero(np.cumsum(depth)[:-1] == 0)
    assert not len(ids) or all(text[i].isspace() for i in uncovered)


@pytest.mark.parametrize("kind", [*KINDS, FALLBACK])
@settings(max_examples=40, deadline=None)  # times the kinds
@given(text=AWKWARD)
def test_offsets_ascend_stay_inside_and_cover_all_but_white_space(kind, text):
    found = tokenizer(kind).encode(text)
    check_offsets(text, found)
    assert tokenizer(kind).encode_batch([text])[0].tolist() == found.ids.tolist()


@pytest.mark.parametrize("kind", [*KINDS, FALLBACK])
@settings(max_examples=40, deadline=None)  # times the kinds
@given(text=AWKWARD)
def test_every_token_but_a_leading_blank_has_text(kind, text):
    starts, ends = tokenizer(kind).encode(text).offsets.T
    # SentencePiece puts a blank in front of the text, which may become a token of its own.
    first = 1 if kind in {"spm, Llama", "unigram"} else 0
    assert (starts < ends)[first:].all()


@pytest.mark.parametrize(
    "kind", ["bpe, gpt-2", "bpe, qwen2", "bpe, starcoder", "spm, Gemma", FALLBACK]
)
@settings(max_examples=40, deadline=None)  # times the kinds
@given(text=AWKWARD)
def test_tokenizers_that_keep_white_space_cover_the_whole_text(kind, text):
    starts, ends = tokenizer(kind).encode(text).offsets.T
    edges = [0, *ends.tolist()]
    assert all(start <= edge for start, edge in zip(starts, edges, strict=False))
    assert edges[-1] == len(text)
