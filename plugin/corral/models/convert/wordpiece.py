"""A WordPiece vocabulary as llama.cpp wants it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from corral.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from corral.models.convert.checkpoint import Checkpoint

__all__ = ["Vocabulary", "metadata", "read_vocabulary", "with_unused"]

_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5  # gguf.TokenType
_WORD_START = "\u2581"
_CONTINUATION = "##"
_MASK, _PAD, _UNK = "[MASK]", "[PAD]", "[UNK]"
_CLS, _SEP = "[CLS]", "[SEP]"
# "seperator" is how GGUF spells it; bos and eos are what llama.cpp puts around a text.
_IDS = {
    "bos_token_id": _CLS,
    "eos_token_id": _SEP,
    "seperator_token_id": _SEP,
    "unknown_token_id": _UNK,
    "padding_token_id": _PAD,
    "mask_token_id": _MASK,
    "cls_token_id": _CLS,
}
_BY_ID = ("tokens", "token_type")
_REQUIRED = (_CLS, _SEP, _UNK)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A WordPiece tokenizer as Hugging Face's files give it.

    Attributes:
        tokens: By id; "##" marks a piece that continues a word.
        special: Ids of tokens that a user's text never yields.
        added: Ids of tokens that were added as whole words.
        lowercase: Whether text is lowercased.
        strip_accents: Whether accents are dropped.
    """

    tokens: tuple[str, ...]
    special: frozenset[int]
    added: frozenset[int] = field(default_factory=frozenset)
    lowercase: bool = True
    strip_accents: bool = True


def read_vocabulary(checkpoint: Checkpoint) -> Vocabulary:
    """Read the vocabulary from tokenizer.json, or else from vocab.txt.

    Raises:
        ModelError: Neither is there, or it is no WordPiece of BERT's kind.
    """
    fast = checkpoint.json("tokenizer.json")
    return _from_fast(checkpoint, fast) if fast else _from_text(checkpoint)


def metadata(vocabulary: Vocabulary, vocab_size: int) -> dict[str, object]:
    """Return the `tokenizer.ggml.*` pairs.

    Args:
        vocabulary: The tokenizer.
        vocab_size: Rows of the embedding matrix; more than tokens are filled up as unused ones.

    Raises:
        ModelError: More tokens than rows, or two tokens that would be one in a GGUF.
    """
    n_tokens = len(vocabulary.tokens)
    if n_tokens > vocab_size:
        raise ModelError(
            f"the vocabulary has {n_tokens} tokens, and the model has rows for {vocab_size} "
            "(vocab_size in config.json): the tokenizer's files belong to another model"
        )
    kinds = [_kind(vocabulary, i) for i in range(n_tokens)]
    pieces = [
        token if kind == _CONTROL else _piece(token)
        for token, kind in zip(vocabulary.tokens, kinds, strict=True)
    ]
    pieces += [f"[UNUSED_ROW_{i}]" for i in range(n_tokens, vocab_size)]
    kinds += [_UNUSED] * (vocab_size - n_tokens)
    if len(set(pieces)) < vocab_size:
        raise ModelError(
            "the vocabulary has a token twice, which llama.cpp cannot load: "
            f"{next(piece for piece in pieces if pieces.count(piece) > 1)!r}"
        )
    ids = {token: i for i, token in enumerate(vocabulary.tokens) if token in _IDS.values()}
    return {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.normalizer.lowercase": vocabulary.lowercase,
        "tokenizer.ggml.normalizer.strip_accents": vocabulary.strip_accents,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.add_sep_token": True,
        **{f"tokenizer.ggml.{key}": ids[token] for key, token in _IDS.items() if token in ids},
    }


def with_unused(pairs: Mapping[str, object], tokens: list[str]) -> dict[str, object]:
    """Return the pairs of a vocabulary that change when tokens are added that no text gives."""
    texts, kinds = (cast("list[Any]", pairs[f"tokenizer.ggml.{k}"]) for k in _BY_ID)
    return {
        f"tokenizer.ggml.{_BY_ID[0]}": [*texts, *tokens],
        f"tokenizer.ggml.{_BY_ID[1]}": [*kinds, *[_UNUSED] * len(tokens)],
    }


def _from_fast(checkpoint: Checkpoint, fast: Mapping[str, Any]) -> Vocabulary:
    """Read tokenizer.json."""
    path = checkpoint.folder / "tokenizer.json"
    model = fast["model"]
    normalizer = fast.get("normalizer") or {}
    kinds = (model.get("type"), normalizer.get("type"))
    if kinds != ("WordPiece", "BertNormalizer"):
        raise ModelError(
            f"{path} has a tokenizer of the kind {kinds[0]} with the normalizer {kinds[1]}; "
            "a BERT model is converted with WordPiece and BertNormalizer only"
        )
    added = {entry["id"]: entry for entry in fast.get("added_tokens", [])}
    by_id = {i: token for token, i in model["vocab"].items()}
    by_id |= {i: entry["content"] for i, entry in added.items()}
    lowercase = bool(normalizer.get("lowercase", True))
    return Vocabulary(
        tokens=_dense(by_id, str(path)),
        special=frozenset(i for i, entry in added.items() if entry.get("special")),
        added=frozenset(i for i, entry in added.items() if not entry.get("special")),
        lowercase=lowercase,
        strip_accents=_strip_accents(normalizer, lowercase=lowercase),
    )


def _from_text(checkpoint: Checkpoint) -> Vocabulary:
    """Read vocab.txt, one token a line, and the flags of tokenizer_config.json."""
    path = checkpoint.folder / "vocab.txt"
    if not path.is_file():
        raise ModelError(
            f"{checkpoint.folder} has neither tokenizer.json nor vocab.txt: no vocabulary to write"
        )
    # Not splitlines: a vocabulary may hold U+2028 and its like.
    lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    tokens = _dense(dict(enumerate(line.rstrip("\r") for line in lines)), str(path))
    config = checkpoint.json("tokenizer_config.json") or {}
    lowercase = bool(config.get("do_lower_case", True))
    return Vocabulary(
        tokens=tokens,
        special=frozenset(i for i, token in enumerate(tokens) if token in _IDS.values()),
        lowercase=lowercase,
        strip_accents=_strip_accents(config, lowercase=lowercase),
    )


def _strip_accents(config: Mapping[str, Any], *, lowercase: bool) -> bool:
    """Return the flag, which follows `lowercase` where it is null."""
    flag = config.get("strip_accents")
    return lowercase if flag is None else bool(flag)


def _dense(by_id: Mapping[int, str], path: str) -> tuple[str, ...]:
    """Return the tokens in the order of their ids, of which none may lack."""
    tokens = tuple(by_id.get(i, "") for i in range(len(by_id)))
    missing = [token for token in _REQUIRED if token not in tokens]
    if missing or not all(tokens):
        what = f"lacks {', '.join(missing)}" if missing else "has ids without a token"
        raise ModelError(f"{path} {what}: this is not a BERT vocabulary")
    return tokens


def _kind(vocabulary: Vocabulary, token_id: int) -> int:
    """Return GGUF's type of a token."""
    if token_id in vocabulary.special:
        return _CONTROL
    return _USER_DEFINED if token_id in vocabulary.added else _NORMAL


def _piece(token: str) -> str:
    """Return llama.cpp's spelling: a mark where a word starts, none where it goes on."""
    if token.startswith(_CONTINUATION) and token != _CONTINUATION:
        return token.removeprefix(_CONTINUATION)
    return _WORD_START + token
