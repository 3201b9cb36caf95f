"""A SentencePiece BPE of Llama 2's kind, with byte fallback, as llama.cpp wants it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from corral.errors import ModelError
from corral.models.convert.frame import read_frame
from corral.models.convert.vocabulary import read_tokens, require_fast, steps_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from corral.models.convert.checkpoint import Checkpoint

__all__ = ["is_spm", "metadata"]

_UNKNOWN: Final = 2  # gguf.TokenType
_BYTE: Final = 6
_SPACE: Final = "▁"
_PREPENDS: Final = {"type": "Prepend", "prepend": _SPACE}
_REPLACES: Final = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
_BYTES: Final = frozenset(f"<0x{byte:02X}>" for byte in range(256))


def is_spm(fast: Mapping[str, Any]) -> bool:
    """Tell SentencePiece's BPE from a byte-level one."""
    return bool(fast["model"].get("byte_fallback"))


def metadata(checkpoint: Checkpoint) -> dict[str, object]:
    """Return the `tokenizer.ggml.*` pairs.

    A tokenizer.json has SentencePiece's scores no more; the ranks of its merges stand for them:
    both say which of two neighbouring joins comes first.

    Raises:
        ModelError: There is no tokenizer.json, it normalises in another way, or has no token for
            what is unknown.
    """
    fast = require_fast(checkpoint, "BPE")
    model, where = fast["model"], checkpoint.folder / "tokenizer.json"
    prefixed = _puts_blank_first(fast)
    if prefixed is None:
        raise ModelError(
            f"{where} treats blanks in a way (normalizer, pre_tokenizer) that is none of Llama "
            "2's: Prepend and Replace, or Metaspace. Use llama.cpp's convert_hf_to_gguf.py"
        )
    if model.get("unk_token") not in model["vocab"]:
        raise ModelError(f"{where} has no token for what is unknown (unk_token), as Llama 2's has")
    tokens = read_tokens(checkpoint, fast, {i: text for text, i in model["vocab"].items()})
    unknown = model["vocab"][model["unk_token"]]
    tokens.types[unknown] = _UNKNOWN
    for byte in _BYTES & tokens.ids.keys():
        tokens.types[tokens.ids[byte]] = _BYTE
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens.texts,
        "tokenizer.ggml.scores": _scores(tokens.texts, model["merges"]),
        "tokenizer.ggml.token_type": tokens.types,
        "tokenizer.ggml.add_space_prefix": prefixed,
        **read_frame(checkpoint, fast).metadata(checkpoint, tokens.ids),
        "tokenizer.ggml.unknown_token_id": unknown,
    }


def _puts_blank_first(fast: Mapping[str, Any]) -> bool | None:
    """Tell whether a text gets a blank in front; None where blanks are treated in another way."""
    normalizers = steps_of(fast.get("normalizer"), "normalizers")
    cutters = steps_of(fast.get("pre_tokenizer"), "pretokenizers")
    replaces = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    if not cutters and normalizers in (
        [{"type": "Prepend", "prepend": _SPACE}, replaces],
        [replaces],
    ):
        return len(normalizers) > 1
    if not normalizers and [step["type"] for step in cutters] == ["Metaspace"]:
        (step,) = cutters
        if step["replacement"] == _SPACE and not step.get("split"):
            return bool(step["prepend_scheme"] != "never")
    return None


def _scores(tokens: Sequence[str], merges: Sequence[str | Sequence[str]]) -> list[float]:
    """Return minus the rank of the merge that makes a token; of what none makes, the lowest."""
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in merges)
    ranks: dict[str, int] = {}
    for rank, pair in enumerate(pairs):
        ranks.setdefault("".join(pair), rank)
    return [-float(ranks.get(token, len(merges))) for token in tokens]
