"""Real vocabularies, against the ids that llama.cpp keeps beside them and those it gives itself."""

from __future__ import annotations

import unicodedata

import pytest
from test_tokenizer_trained import check_offsets
from tokenizer_cases import ALL, XQUAD
from vocab_ggufs import LlamaVocabulary, VocabGGUFsMissingError, vectors, vocab_ggufs

from corral.engine.tokenizer import load_tokenizer
from corral.gguf_header import read_header

KINDS = {
    "bert-bge": "wordpiece",
    "command-r": "bpe",
    "deepseek-coder": "llama",
    "deepseek-llm": "llama",
    "falcon": "llama",
    "gemma-4": "llama",
    "gpt-2": "bpe",
    "llama-bpe": "bpe",
    "llama-spm": "spm",
    "mpt": "llama",
    "nomic-bert-moe": "unigram",
    "phi-3": "spm",
    "qwen2": "bpe",
    "qwen35": "bpe",
    "refact": "bpe",
    "starcoder": "bpe",
}

# The reference composes text first (NFC) and llama.cpp does not.
COMPOSING = {"command-r", "qwen2", "qwen35"}

# Where llama.cpp's ids are not the reference's; docs/tokenizers.md tells why.
_COMPOSED = {"combining marks", "Hangul jamo", "more: marks alone"}
DIFFERENT_FROM_LLAMA_CPP = {
    "bert-bge": {
        *("Hindi", "more: Hindi", "Bengali", "Tamil", "Korean", "Korean sentences", "Hangul jamo"),
        *("word of 101 letters", "word of 300 letters", "long word in a sentence"),
        *("more: no spaces", "control characters", "emoji joined"),
    },
    "command-r": _COMPOSED,
    "nomic-bert-moe": {"Hangul jamo", "combining marks", "control characters"},
    "qwen2": _COMPOSED,
    "qwen35": _COMPOSED,
}


@pytest.fixture(scope="module", params=KINDS)
def vocabulary(request):
    try:
        path = vocab_ggufs() / f"ggml-vocab-{request.param}.gguf"
    except VocabGGUFsMissingError as error:
        pytest.skip(f"the vocabularies of llama-cpp-python's sdist cannot be fetched: {error}")
    llama = LlamaVocabulary(path)
    yield request.param, path, llama, load_tokenizer(read_header(path), llama.tokenize)
    llama.close()


def test_ids_are_the_ones_kept_beside_the_vocabulary(vocabulary):
    name, path, _, tokenizer = vocabulary
    assert tokenizer.kind == KINDS[name]
    texts_and_ids = vectors(path)
    assert len(texts_and_ids) >= 46 or name == "nomic-bert-moe"  # which has none
    found = tokenizer.encode_batch(text for text, _ in texts_and_ids)
    different = [
        text for (text, ids), own in zip(texts_and_ids, found, strict=True) if own.tolist() != ids
    ]
    composing = name in COMPOSING
    assert different == [
        text
        for text, _ in texts_and_ids
        if composing and not unicodedata.is_normalized("NFC", text)
    ]


def test_ids_are_llama_cpps_but_for_the_known_differences(vocabulary):
    name, _, llama, tokenizer = vocabulary
    different = {
        text_name
        for text_name, text in ALL.items()
        if tokenizer.encode(text).ids.tolist() != llama.tokenize(text).tolist()
    }
    assert different == DIFFERENT_FROM_LLAMA_CPP.get(name, set())


@pytest.mark.parametrize("language", XQUAD)
def test_ids_of_paragraphs_are_llama_cpps(vocabulary, language):
    if not XQUAD[language]:
        pytest.skip("shared/data/xquad-* does not lie beside the checkout")
    _, _, llama, tokenizer = vocabulary
    for text in XQUAD[language][::4]:
        assert tokenizer.encode_batch([text])[0].tolist() == llama.tokenize(text).tolist()


def test_offsets_of_real_vocabularies_keep_the_laws(vocabulary):
    tokenizer = vocabulary[-1]
    for text in ALL.values():
        check_offsets(text, tokenizer.encode(text))
