"""A SentencePiece Unigram of XLM-RoBERTa's kind as llama.cpp wants it."""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING, Any, Final

from corral.errors import ModelError
from corral.models.convert.frame import read_frame
from corral.models.convert.vocabulary import read_tokens, require_fast, steps_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from corral.models.convert.checkpoint import Checkpoint

__all__ = ["metadata"]

_UNKNOWN: Final = 2  # gguf.TokenType
_FILLER_SCORE: Final = -10_000.0
_NORMALIZERS: Final = frozenset({"Precompiled", "Strip", "Replace"})
_PRE_TOKENIZERS: Final[tuple[list[str], ...]] = (
    [],
    ["Metaspace"],
    ["WhitespaceSplit", "Metaspace"],
)


def metadata(checkpoint: Checkpoint) -> dict[str, object]:
    """Return the `tokenizer.ggml.*` pairs.

    Raises:
        ModelError: There is no tokenizer.json, or it normalises in another way.
    """
    fast = require_fast(checkpoint, "Unigram")
    model = fast["model"]
    normalizers = steps_of(fast.get("normalizer"), "normalizers")
    cutters = steps_of(fast.get("pre_tokenizer"), "pretokenizers")
    kinds = [step["type"] for step in cutters]
    if not {step["type"] for step in normalizers} <= _NORMALIZERS or kinds not in _PRE_TOKENIZERS:
        raise ModelError(
            f"{checkpoint.folder / 'tokenizer.json'} has the normalizers "
            f"{[step['type'] for step in normalizers]} and the pre-tokenizers {kinds}; "
            "XLM-RoBERTa's kind is converted alone: Precompiled, Strip, Replace; WhitespaceSplit, "
            "Metaspace"
        )
    tokens = read_tokens(checkpoint, fast, {i: text for i, (text, _) in enumerate(model["vocab"])})
    tokens.types[model["unk_id"]] = _UNKNOWN
    scores = [float(score) for _, score in model["vocab"]]
    scores += [_FILLER_SCORE] * (len(tokens.texts) - len(scores))
    charsmaps = [b64decode(s["precompiled_charsmap"]) for s in normalizers if _is_charsmap(s)]
    prefixed = any(s.get("prepend_scheme", "always") != "never" for s in cutters)
    squeezed = "WhitespaceSplit" in kinds or any(s["type"] == "Replace" for s in normalizers)
    return {
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens.texts,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": tokens.types,
        "tokenizer.ggml.add_space_prefix": prefixed,
        "tokenizer.ggml.remove_extra_whitespaces": squeezed,
        **({"tokenizer.ggml.precompiled_charsmap": charsmaps[0]} if charsmaps else {}),
        **read_frame(checkpoint, fast).metadata(checkpoint, tokens.ids),
        "tokenizer.ggml.unknown_token_id": model["unk_id"],
    }


def _is_charsmap(step: Mapping[str, Any]) -> bool:
    """Tell whether a normalizer is SentencePiece's own table, and has one."""
    return step["type"] == "Precompiled" and bool(step["precompiled_charsmap"])
