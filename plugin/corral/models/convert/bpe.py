"""A byte-level BPE (GPT-2's kind) as llama.cpp wants it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from corral.errors import ModelError
from corral.models.convert.frame import read_frame
from corral.models.convert.vocabulary import read_tokens, require_fast, steps_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from corral.models.convert.checkpoint import Checkpoint

__all__ = ["metadata", "token_ids"]


class _Cut(NamedTuple):
    """How a text is cut into words before merging.

    Attributes:
        pattern: Of Split; "" for ByteLevel's own.
        nfc: Whether texts are brought to Unicode's NFC.
        ignore_merges: Whether a word that is a token is that token, whatever the merges say.
    """

    pattern: str
    nfc: bool
    ignore_merges: bool


_QWEN2: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# llama.cpp knows a way to cut by a name alone (llama-vocab.cpp, tokenizer.ggml.pre).
_NAMES: Final[Mapping[_Cut, str]] = {
    _Cut(_QWEN2, nfc=True, ignore_merges=False): "qwen2",
    _Cut(_LLAMA3, nfc=False, ignore_merges=True): "llama-bpe",
    _Cut("", nfc=False, ignore_merges=False): "gpt-2",
}


def metadata(checkpoint: Checkpoint) -> dict[str, object]:
    """Return the `tokenizer.ggml.*` pairs.

    Raises:
        ModelError: There is no tokenizer.json, or llama.cpp has no name for how it cuts texts.
    """
    fast = require_fast(checkpoint, "BPE")
    model = fast["model"]
    frame = read_frame(checkpoint, fast)
    tokens = read_tokens(checkpoint, fast, {i: text for text, i in model["vocab"].items()})
    name = _name(checkpoint, fast)
    return {
        "tokenizer.ggml.model": "gpt2",
        # RoBERTa cuts as GPT-2 does; its name brings the special tokens along.
        "tokenizer.ggml.pre": "roberta-bpe" if name == "gpt-2" and frame.two_between else name,
        "tokenizer.ggml.tokens": tokens.texts,
        "tokenizer.ggml.token_type": tokens.types,
        "tokenizer.ggml.merges": [
            merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]
        ],
        **frame.metadata(checkpoint, tokens.ids),
    }


def token_ids(checkpoint: Checkpoint, *tokens: str) -> list[int]:
    """Return the ids of tokens that must be in the vocabulary.

    Raises:
        ModelError: One is not.
    """
    vocabulary = require_fast(checkpoint, "BPE")["model"]["vocab"]
    missing = [token for token in tokens if token not in vocabulary]
    if missing:
        raise ModelError(
            f"{checkpoint.folder / 'tokenizer.json'} has no token {missing[0]!r}, whose row of the "
            "language model's head is the reranker's"
        )
    return [vocabulary[token] for token in tokens]


def _name(checkpoint: Checkpoint, fast: Mapping[str, Any]) -> str:
    """Return llama.cpp's name for how a tokenizer.json cuts texts."""
    steps = steps_of(fast.get("pre_tokenizer"), "pretokenizers")
    normalizers = [step["type"] for step in steps_of(fast.get("normalizer"), "normalizers")]
    kinds = [step["type"] for step in steps]
    pattern = None
    if kinds == ["Split", "ByteLevel"] and steps[0]["behavior"] == "Isolated":
        pattern = steps[0]["pattern"].get("Regex")
    elif kinds == ["ByteLevel"] and steps[0].get("use_regex", True):
        pattern = ""
    known = normalizers in ([], ["NFC"]) and not any(s.get("add_prefix_space") for s in steps)
    if pattern is not None and known:
        ignores = bool(fast["model"].get("ignore_merges", False))
        cut = _Cut(pattern, nfc=bool(normalizers), ignore_merges=ignores)
        if cut in _NAMES:
            return _NAMES[cut]
    raise ModelError(
        f"{checkpoint.folder / 'tokenizer.json'} cuts texts in a way (normalizer, pre_tokenizer, "
        f"ignore_merges) that is none of those that can be converted: {', '.join(_NAMES.values())}"
        ", roberta-bpe. For others use llama.cpp's convert_hf_to_gguf.py."
    )
