"""What a model is, told from its header and its profile alone: nothing is loaded."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from corral.models.convert.common import MAX_TOKENS_KEY

if TYPE_CHECKING:
    from corral.gguf_header import GGUFHeader
    from corral.models.profiles import Profile
    from corral.models.resolve import ResolvedModel

__all__ = ["causal_attention", "describe", "head_tensor", "is_causal", "max_tokens", "pooling_type"]

_POOLING_TYPES: Final = ("none", "mean", "cls", "last", "rank")  # llama_pooling_type, from 0
_HEAD_TENSOR: Final = "cls.output.weight"
# Architectures whose graph has the head under another name. Source: llama.cpp's src/models.
_OTHER_HEAD_TENSORS: Final = {"jina-bert-v2": "cls.weight"}
# Architectures that llama.cpp runs without memory, and so always with attention both ways.
# Source: llama.cpp's src/llama-model.cpp, create_memory.
_ENCODERS: Final = frozenset(
    {
        "bert",
        "eurobert",
        "gemma-embedding",
        "jina-bert-v2",
        "jina-bert-v3",
        "modern-bert",
        "neo-bert",
        "nomic-bert",
        "nomic-bert-moe",
    }
)
_TOKENIZERS: Final = {
    "bert": "WordPiece",
    "gpt2": "byte-level BPE",
    "llama": "SentencePiece BPE",
    "t5": "SentencePiece Unigram",
}

_BOTH_WAYS: Final = frozenset({"gemma-embedding", "t5encoder"})


def pooling_type(header: GGUFHeader, profile: Profile | None) -> tuple[str | None, str]:
    """Return how a model pools, and what says so: the GGUF, its head, or the profile.

    Returns:
        "none", "mean", "cls", "last" or "rank", or None where nothing says it; and the source.
    """
    key = f"{header.architecture}.pooling_type"
    number = header.metadata.get(key)
    if isinstance(number, int):
        known = 0 <= number < len(_POOLING_TYPES)
        return (
            (_POOLING_TYPES[number], key)
            if known
            else (None, f"{key} is {number}, none of llama.h's")
        )
    if (head := head_tensor(header)) in header.tensors:
        return "rank", f"the tensor {head}"
    if profile and profile.pooling_type:
        return profile.pooling_type, f"profile {profile.name}"
    return None, f"neither {key} nor a profile"


def causal_attention(header: GGUFHeader) -> bool:
    """Tell whether a model's tokens attend only to those before them.

    Source: llama-hparams.h, causal_attn, which is true unless the GGUF or the architecture says
    otherwise; llama.cpp's encoders keep no memory and always look both ways.
    """
    if "bert" in header.architecture or header.architecture in _BOTH_WAYS:
        return False
    return bool(header.arch("attention.causal", True))  # noqa: FBT003 - a default


def head_tensor(header: GGUFHeader) -> str:
    """Name the tensor that a reranker's scores come from, whether it is there or not."""
    return _OTHER_HEAD_TENSORS.get(header.architecture, _HEAD_TENSOR)


def max_tokens(header: GGUFHeader, profile: Profile | None) -> tuple[int | None, str]:
    """Return the longest input in tokens, special tokens included, and what says so."""
    limits: list[tuple[int, str]] = []
    context_length = header.arch("context_length")
    if isinstance(context_length, int):
        limits.append((context_length, f"{header.architecture}.context_length"))
    if isinstance(own := header.metadata.get(MAX_TOKENS_KEY), int):
        limits.append((own, MAX_TOKENS_KEY))
    if profile and profile.max_tokens:
        limits.append((profile.max_tokens, f"profile {profile.name}"))
    return min(limits, default=(None, f"no {header.architecture}.context_length"))


def is_causal(header: GGUFHeader) -> bool:
    """Tell whether a token sees only those before it."""
    if header.architecture in _ENCODERS:
        return False
    return bool(header.arch("attention.causal", default=True))


def describe(model: ResolvedModel) -> dict[str, object]:
    """Return what there is to know of a model, ready for JSON, in reading order.

    Sizes are in bytes; unknown things are None. The first call for a file reads all of it, for
    its SHA-256.
    """
    header, profile = model.header, model.profile
    pooling, pooling_from = pooling_type(header, profile)
    longest, longest_from = max_tokens(header, profile)
    kind = str(header.metadata.get("tokenizer.ggml.model"))
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    n_embd = header.arch("embedding_length_out", header.arch("embedding_length"))
    dims = [dim for dim in (profile.trained_dims if profile else ()) if _fits(dim, n_embd)]
    return {
        "model": model.ref,
        "name": header.metadata.get("general.name"),
        "architecture": header.architecture,
        "pooling_type": pooling,
        "pooling_type_from": pooling_from,
        "attention": "causal" if is_causal(header) else "non-causal",
        "dimensions": n_embd,
        "trained_dims": dims,
        "context_length": header.arch("context_length"),
        "max_tokens": longest,
        "max_tokens_from": longest_from,
        "tokenizer": _TOKENIZERS.get(kind, kind),
        "n_vocab": len(tokens) if isinstance(tokens, list) else None,
        "query_prefix": profile.query_prefix if profile else "",
        "document_prefix": profile.document_prefix if profile else "",
        "layer_norm": bool(profile and profile.layer_norm),
        "score": profile.score if profile else None,
        "profile": profile.name if profile else None,
        "model_card": profile.source if profile else header.metadata.get("general.source.url"),
        "note": profile.note if profile else "",
        "license": header.metadata.get("general.license"),
        "weights": _weights(header),
        "path": str(model.path),
        "size": header.file_size,
        "sha256": model.sha256,
    }


def _fits(dim: int, n_embd: object) -> bool:
    """Tell whether a family's dimension applies to a model of this width."""
    return not isinstance(n_embd, int) or dim <= n_embd


def _weights(header: GGUFHeader) -> str:
    """Return the type that most of the matrices are of."""
    kinds = Counter(info.type for info in header.tensors.values() if len(info.shape) > 1)
    return kinds.most_common(1)[0][0] if kinds else "none"
