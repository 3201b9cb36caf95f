"""Small vocabularies trained on the spot, as GGUFs, each with the tokenizer that it came from.

What a converter does to a tokenizer is done here to one that we made, so that the ids read back
from the GGUF can be held against the original's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from gguf import GGUFWriter, TokenType
from tokenizer_cases import ALL
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

if TYPE_CHECKING:
    from pathlib import Path

    from tokenizers.normalizers import Normalizer
    from tokenizers.pre_tokenizers import PreTokenizer

__all__ = ["KINDS", "Trained", "trained"]

_SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]
_PAD, _UNK, _BOS, _EOS = range(4)

# The original definitions, as their tokenizer.json or their class in transformers has them.
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class Trained:
    """A vocabulary before it goes into a GGUF.

    Attributes:
        original: the tokenizer it was taken from.
        model: `tokenizer.ggml.model`.
        pre: `tokenizer.ggml.pre`.
        tokens: by id, as a converter writes them.
        types: by id.
        scores: by id, or None.
        merges: or None.
        extra: more keys under `tokenizer.ggml.`
    """

    original: Tokenizer
    model: str
    pre: str
    tokens: list[str]
    types: list[int]
    scores: list[float] | None = None
    merges: list[str] | None = None
    extra: dict[str, bool] | None = None

    def ids(self, text: str) -> list[int]:
        """Return what the original gives."""
        return self.original.encode(text, add_special_tokens=False).ids

    def write(self, path: Path) -> Path:
        """Write a vocabulary-only GGUF."""
        writer = GGUFWriter(path, "bert")
        writer.add_tokenizer_model(self.model)
        writer.add_tokenizer_pre(self.pre)
        writer.add_token_list(self.tokens)
        writer.add_token_types(self.types)
        if self.scores is not None:
            writer.add_token_scores(self.scores)
        if self.merges is not None:
            writer.add_token_merges(self.merges)
        writer.add_token_type_count(1)
        writer.add_pad_token_id(_PAD)
        writer.add_unk_token_id(_UNK)
        writer.add_bos_token_id(_BOS)
        writer.add_eos_token_id(_EOS)
        writer.add_sep_token_id(_EOS)
        for key, value in (self.extra or {}).items():
            writer.add_bool(f"tokenizer.ggml.{key}", value)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        return path


def _by_id(tokenizer: Tokenizer) -> list[str]:
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)


def _types(tokens: list[str]) -> list[int]:
    types = [int(TokenType.NORMAL)] * len(tokens)
    for i in (_PAD, _BOS, _EOS):
        types[i] = int(TokenType.CONTROL)
    types[_UNK] = int(TokenType.UNKNOWN)
    return types


def _without_special_splits(tokenizer: Tokenizer) -> Tokenizer:
    """Make the original read the text of a control token as text."""
    tokenizer.encode_special_tokens = True
    return tokenizer


def _wordpiece(*, lowercase: bool) -> Trained:
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=2500, special_tokens=_SPECIAL, show_progress=False
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    tokens = _by_id(tokenizer)
    written = [
        token
        if i < len(_SPECIAL)
        else token.removeprefix("##")
        if token.startswith("##")
        else "▁" + token
        for i, token in enumerate(tokens)
    ]
    return Trained(
        _without_special_splits(tokenizer),
        "bert",
        "default",
        written,
        _types(tokens),
        extra={"normalizer.lowercase": lowercase},
    )


def _bpe(pre: str, steps: list[PreTokenizer], *, nfc: bool = False) -> Trained:
    tokenizer = Tokenizer(models.BPE())
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=_SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    tokens = _by_id(tokenizer)
    return Trained(
        _without_special_splits(tokenizer),
        "gpt2",
        pre,
        tokens,
        _types(tokens),
        merges=_merges(tokenizer),
    )


def _split(pattern: str) -> list[PreTokenizer]:
    return [
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]


def _merges(tokenizer: Tokenizer) -> list[str]:
    return [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]


def _spm(normalizer: Normalizer, *, prefix: bool) -> Trained:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizer
    # Only for the training: words that go over blanks would be few and long.
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("▁*[^▁]+"), "isolated")
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=_SPECIAL + byte_tokens,
        limit_alphabet=400,
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    tokens = _by_id(tokenizer)
    merges = [tuple(merge.split(" ")) for merge in _merges(tokenizer)]
    # Built again: the trainer's special tokens would be cut out of every text.
    original = Tokenizer(
        models.BPE(
            vocab={token: i for i, token in enumerate(tokens)},
            merges=merges,
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    original.normalizer = normalizer
    types = _types(tokens)
    first = len(_SPECIAL)
    types[first : first + 256] = [int(TokenType.BYTE)] * 256
    rank = {left + right: i for i, (left, right) in enumerate(merges)}
    scores = [-float(rank.get(token, 10_000 + i)) for i, token in enumerate(tokens)]
    return Trained(
        original,
        "llama",
        "default",
        tokens,
        types,
        scores=scores,
        extra={"add_space_prefix": prefix, "add_bos_token": True, "add_eos_token": False},
    )


def _unigram() -> Trained:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    trainer = trainers.UnigramTrainer(
        vocab_size=1500, special_tokens=_SPECIAL, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    scored = json.loads(tokenizer.to_str())["model"]["vocab"]
    tokens = [token for token, _ in scored]
    # SentencePiece's own scores are float32, as the GGUF's are. It takes no control token from a
    # text, while `tokenizers` would take every piece that it is given.
    scores = np.array([score for _, score in scored], np.float32).tolist()
    names = [f" {i}" if i < len(_SPECIAL) else token for i, token in enumerate(tokens)]
    original = Tokenizer(models.Unigram(list(zip(names, scores, strict=True)), _UNK))
    original.pre_tokenizer = tokenizer.pre_tokenizer
    return Trained(
        original,
        "t5",
        "default",
        tokens,
        _types(tokens),
        scores=scores,
        extra={
            "add_space_prefix": True,
            "remove_extra_whitespaces": True,
            "add_bos_token": True,
            "add_eos_token": True,
        },
    )


def _corpus() -> list[str]:
    # Converters of WordPiece write "▁" for the start of a word, and could not write it as a letter.
    return [text for text in ALL.values() for _ in range(2) if "▁" not in text]


_GPT2_STEPS = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
_DIGITS_STEPS = [pre_tokenizers.Digits(individual_digits=True), *_GPT2_STEPS]
_BLANKS = normalizers.Replace(" ", "▁")

_MAKERS = {
    "wordpiece, uncased": lambda: _wordpiece(lowercase=True),
    "wordpiece, cased": lambda: _wordpiece(lowercase=False),
    "bpe, gpt-2": lambda: _bpe("gpt-2", _GPT2_STEPS),
    "bpe, roberta-bpe": lambda: _bpe("roberta-bpe", _GPT2_STEPS),
    "bpe, modern-bert": lambda: _bpe("modern-bert", _GPT2_STEPS, nfc=True),
    "bpe, starcoder": lambda: _bpe("starcoder", _DIGITS_STEPS),
    "bpe, command-r": lambda: _bpe("command-r", _DIGITS_STEPS, nfc=True),
    "bpe, qwen2": lambda: _bpe("qwen2", _split(_QWEN2), nfc=True),
    "bpe, qwen35": lambda: _bpe("qwen35", _split(_QWEN35), nfc=True),
    "bpe, llama-bpe": lambda: _bpe("llama-bpe", _split(_LLAMA3)),
    "spm, Llama": lambda: _spm(
        normalizers.Sequence([normalizers.Prepend("▁"), _BLANKS]), prefix=True
    ),
    "spm, Gemma": lambda: _spm(_BLANKS, prefix=False),
    "unigram": _unigram,
}

KINDS = tuple(_MAKERS)


@cache
def trained(kind: str) -> Trained:
    """Train a vocabulary of a kind, once a session."""
    return _MAKERS[kind]()
