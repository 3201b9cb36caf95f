"""Real vocabularies, against the classes of transformers and against SentencePiece itself."""

from __future__ import annotations

from importlib import import_module

import pytest
from tokenizer_cases import ALL, XQUAD
from vocab_ggufs import VocabGGUFsMissingError, vocab_ggufs

from corral.engine.tokenizer import load_tokenizer
from corral.gguf_header import read_header

pytestmark = pytest.mark.reference

TEXTS = {
    **ALL,
    **{
        f"{language} {i}": text for language, texts in XQUAD.items() for i, text in enumerate(texts)
    },
}

# `tokenizers` looks graphemes up in XLM-R's table of characters where SentencePiece looks up the
# longest match, and takes U+0085 for a blank.
DIFFERENT_FROM_SENTENCEPIECE = {
    "nomic-bert-moe": {"Hangul jamo", "combining marks", "control characters"}
}


def header_of(name):
    try:
        return read_header(vocab_ggufs() / f"ggml-vocab-{name}.gguf")
    except VocabGGUFsMissingError as error:
        pytest.skip(f"the vocabularies of llama-cpp-python's sdist cannot be fetched: {error}")


def of_gguf(header, key, default=None):
    return header.metadata.get(f"tokenizer.ggml.{key}", default)


def words_of_bert(header):
    types = of_gguf(header, "token_type")
    for token, kind in zip(of_gguf(header, "tokens"), types, strict=True):
        if kind == 3 or (token.startswith("[") and token.endswith("]")):
            yield token
        else:
            yield token[1:] if token.startswith("▁") else f"##{token}"


def from_transformers(name, header):
    transformers = pytest.importorskip("transformers")
    tokens = of_gguf(header, "tokens")
    vocab = {token: i for i, token in enumerate(tokens)}
    merges = [tuple(merge.split(" ")) for merge in of_gguf(header, "merges", [])]
    match name:
        case "bert-bge":
            return transformers.BertTokenizer({w: i for i, w in enumerate(words_of_bert(header))})
        case "command-r":
            return transformers.CohereTokenizer(vocab=vocab, merges=merges)
        case "gpt-2":
            return transformers.GPT2Tokenizer(vocab=vocab, merges=merges)
        case "qwen2":
            return transformers.Qwen2Tokenizer(vocab=vocab, merges=merges)
        case "qwen35":
            module = import_module("transformers.models.qwen3_5.tokenization_qwen3_5")
            return module.Qwen3_5Tokenizer(vocab=vocab, merges=merges)
        case "nomic-bert-moe":
            scored = list(zip(tokens, of_gguf(header, "scores"), strict=True))
            charsmap = bytes(value & 0xFF for value in of_gguf(header, "precompiled_charsmap"))
            return transformers.XLMRobertaTokenizer(scored, _spm_precompiled_charsmap=charsmap)


@pytest.mark.parametrize(
    "name", ["bert-bge", "command-r", "gpt-2", "nomic-bert-moe", "qwen2", "qwen35"]
)
def test_ids_are_those_of_transformers(name):
    header = header_of(name)
    reference, tokenizer = from_transformers(name, header), load_tokenizer(header, None)
    different = [
        text_name
        for text_name, text in TEXTS.items()
        if reference(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        != tokenizer.encode(text).ids.tolist()
    ]
    # `tokenizers` finds "</s>" among XLM-R's pieces, although it was told to split control tokens.
    control = ["control tokens", "control token inside"] if name == "nomic-bert-moe" else []
    assert different == control


def from_sentencepiece(header, model_type):
    sentencepiece = pytest.importorskip("sentencepiece")
    model_proto = pytest.importorskip("sentencepiece.sentencepiece_model_pb2").ModelProto()
    columns = (of_gguf(header, key) for key in ("tokens", "scores", "token_type"))
    for token, score, kind in zip(*columns, strict=True):
        model_proto.pieces.add(piece=token, score=score, type=kind)
    model_proto.trainer_spec.model_type = model_type
    model_proto.trainer_spec.byte_fallback = 6 in of_gguf(header, "token_type")
    model_proto.trainer_spec.unk_id = of_gguf(header, "unknown_token_id", 0)
    normalizer = model_proto.normalizer_spec
    normalizer.add_dummy_prefix = True
    normalizer.escape_whitespaces = True
    normalizer.remove_extra_whitespaces = bool(of_gguf(header, "remove_extra_whitespaces"))
    charsmap = of_gguf(header, "precompiled_charsmap", [])
    normalizer.precompiled_charsmap = bytes(value & 0xFF for value in charsmap)
    return sentencepiece.SentencePieceProcessor(model_proto=model_proto.SerializeToString())


@pytest.mark.parametrize(
    ("name", "model_type"), [("llama-spm", 2), ("baichuan", 2), ("nomic-bert-moe", 1)]
)
def test_ids_are_sentencepieces_but_for_the_known_differences(name, model_type):
    header = header_of(name)
    reference, tokenizer = from_sentencepiece(header, model_type), load_tokenizer(header, None)
    different = {
        text_name
        for text_name, text in TEXTS.items()
        if reference.encode(text) != tokenizer.encode(text).ids.tolist()
    }
    assert different == DIFFERENT_FROM_SENTENCEPIECE.get(name, set())
