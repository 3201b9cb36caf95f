"""Qwen3 and Llama: embedding models that pool the last token, and Qwen3's rerankers.

Source: llama.cpp's src/models/{qwen3,llama}.cpp and conversion/{qwen,llama}.py.
"""

from __future__ import annotations

import math
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from corral.errors import ModelError
from corral.models.convert import bpe, spm
from corral.models.convert.common import embedding_metadata, limit_metadata, rank_metadata
from corral.models.convert.tensors import changed, take
from corral.models.convert.vocabulary import require_fast
from corral.models.convert.writer import Conversion, Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from corral.models.convert.checkpoint import Checkpoint

__all__ = ["RERANK_TEMPLATE", "describe"]

RERANK_TEMPLATE: Final = (
    "<|im_start|>system\n"
    "Judge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n"
    "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
    "<Query>: {query}\n"
    "<Document>: {document}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
"""Source: Qwen3-Reranker's model card; the same as llama.cpp's converter writes."""

_SEQUENCE_CLASSIFIER: Final = "Qwen3ForSequenceClassification"
_KNOWN: Final = {
    "qwen3": ("Qwen3Model", "Qwen3ForCausalLM", _SEQUENCE_CLASSIFIER),
    "llama": ("LlamaModel", "LlamaForCausalLM"),
}
# An embedding model has no use for the language model's head.
_UNUSED: Final = re.compile(r"(lm_head\.|layers\.\d+\.self_attn\.rotary_emb\.inv_freq$)")
_OUTER: Final = {"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}
_LAYER: Final = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_QWEN3_LAYER: Final = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
_ANSWERS: Final = ("yes", "no")
_LOGIT_SCORE: Final = "LogitScore"  # sentence-transformers' module behind a language model


def describe(checkpoint: Checkpoint, pooling: str | None) -> Conversion:
    """Return a Qwen3 or Llama embedding model, or a Qwen3 reranker, in GGUF's terms.

    Args:
        checkpoint: The model's folder.
        pooling: "mean", "cls", "last" or "rank"; None: as the folder says.

    Raises:
        ModelError: Another kind of head, a variant that llama.cpp's is not, or tensors that lack.
        PoolingError: Nothing says how the model pools.
    """
    kind = str(checkpoint.config["model_type"])
    _check(checkpoint, kind)
    head = _head(checkpoint, pooling) if kind == "qwen3" else None
    layer = _LAYER | (_QWEN3_LAYER if kind == "qwen3" else {})
    names = _OUTER | {
        f"layers.{i}.{source}.weight": f"blk.{i}.{target}.weight"
        for i in range(checkpoint.size("num_hidden_layers"))
        for source, target in layer.items()
    }
    unused = re.compile(rf"{_UNUSED.pattern}|score\.") if head else _UNUSED
    tensors = take(checkpoint, names, unused=unused, plain=_plain)
    if kind == "llama":
        _pair_up(checkpoint, tensors)
        tensors |= _rope_factors(checkpoint)
    if head:
        tensors["cls.output.weight"] = head
    return Conversion(
        architecture=kind,
        metadata={
            **_sizes(checkpoint, kind),
            **_purpose(checkpoint, kind, pooling, head),
            **limit_metadata(checkpoint),
            **_vocabulary(checkpoint),
        },
        tensors=tensors,
    )


def _vocabulary(checkpoint: Checkpoint) -> dict[str, object]:
    """Return the tokenizer: GPT-2's kind of BPE, or Llama 2's."""
    if spm.is_spm(require_fast(checkpoint, "BPE")):
        return spm.metadata(checkpoint)
    return bpe.metadata(checkpoint)


def _check(checkpoint: Checkpoint, kind: str) -> None:
    """Refuse what would convert without an error and give other values than the reference."""
    config, known = checkpoint.config, _KNOWN[kind]
    if checkpoint.architecture not in {"", *known}:
        raise ModelError(
            f"{checkpoint.folder} holds a {checkpoint.architecture}; of the type {kind} these can "
            f"be converted: {', '.join(known)}"
        )
    if config.get("hidden_act", "silu") != "silu" or config.get("use_sliding_window"):
        raise ModelError(
            f"{checkpoint.folder} has hidden_act {config.get('hidden_act')!r} and "
            f"use_sliding_window {config.get('use_sliding_window')!r}; llama.cpp's {kind} has "
            "'silu' and no sliding window"
        )
    scaling = str(_rope(checkpoint).get("rope_type", "default"))
    if scaling not in {"default", "llama3" if kind == "llama" else "default"}:
        raise ModelError(
            f"{checkpoint.folder} scales its rotary positions by {scaling!r} (config.json), which "
            "cannot be converted. Use llama.cpp's convert_hf_to_gguf.py"
        )


def _rope(checkpoint: Checkpoint) -> Mapping[str, Any]:
    """Return the settings of the rotary positions, in the spelling of transformers 5."""
    config = checkpoint.config
    older = config.get("rope_scaling") or {}
    return {
        "rope_theta": config.get("rope_theta", 10_000.0),
        "rope_type": older.get("type", "default"),
        **older,
        **(config.get("rope_parameters") or {}),
    }


def _sizes(checkpoint: Checkpoint, kind: str) -> dict[str, object]:
    """Return the sizes and constants of a causal model."""
    width = _head_width(checkpoint)
    return {
        f"{kind}.vocab_size": checkpoint.size("vocab_size"),
        f"{kind}.context_length": checkpoint.size("max_position_embeddings"),
        f"{kind}.embedding_length": checkpoint.size("hidden_size"),
        f"{kind}.block_count": checkpoint.size("num_hidden_layers"),
        f"{kind}.feed_forward_length": checkpoint.size("intermediate_size"),
        f"{kind}.attention.head_count": checkpoint.size("num_attention_heads"),
        f"{kind}.attention.head_count_kv": _n_head_kv(checkpoint),
        f"{kind}.attention.key_length": width,
        f"{kind}.attention.value_length": width,
        f"{kind}.attention.layer_norm_rms_epsilon": float(
            checkpoint.config.get("rms_norm_eps", 1e-6)
        ),
        f"{kind}.attention.causal": True,
        f"{kind}.rope.dimension_count": width,
        f"{kind}.rope.freq_base": float(_rope(checkpoint)["rope_theta"]),
    }


def _purpose(
    checkpoint: Checkpoint, kind: str, pooling: str | None, head: Tensor | None
) -> dict[str, object]:
    """Return what the model is for: vectors, or scores by its template."""
    if head is None:
        return embedding_metadata(checkpoint, kind, pooling)
    n_labels, _ = head.shape
    labels = _ANSWERS if n_labels == len(_ANSWERS) else checkpoint.labels
    return {
        **rank_metadata(checkpoint, kind, pooling, labels),
        "tokenizer.chat_templates": ["rerank"],
        "tokenizer.chat_template.rerank": RERANK_TEMPLATE,
    }


def _head(checkpoint: Checkpoint, pooling: str | None) -> Tensor | None:
    """Return the head of a Qwen3 reranker, or None for an embedding model.

    llama.cpp takes the softmax over the rows. One label's row gets a row of zeros beside it, whose
    softmax is the sigmoid of the one; of a language model the rows of "yes" and "no" are taken.
    """
    if checkpoint.architecture == _SEQUENCE_CLASSIFIER:
        score = _weight(checkpoint, "score.weight")
        return changed(score, _with_zeros, n_rows=2) if score.shape[0] == 1 else score
    if pooling == "rank" or (pooling is None and _is_reranker(checkpoint)):
        tied = bool(checkpoint.config.get("tie_word_embeddings", False))
        rows = _weight(checkpoint, "embed_tokens.weight" if tied else "lm_head.weight")
        ids = _answer_ids(checkpoint)
        return changed(rows, lambda matrix: matrix[ids], n_rows=len(ids))
    return None


def _answer_ids(checkpoint: Checkpoint) -> list[int]:
    """Return the ids of both answers: what sentence-transformers' files say, or "yes" and "no"."""
    if _LOGIT_SCORE in checkpoint.modules:
        name = f"{checkpoint.modules[_LOGIT_SCORE]}/config.json"
        settings = checkpoint.require_json(name)
        named = [settings.get("true_token_id"), settings.get("false_token_id")]
        ids = [i for i in named if isinstance(i, int)]
        if len(ids) < len(named):
            raise ModelError(
                f"{checkpoint.folder / name} has the token ids {named} for true and false; both "
                "must be numbers"
            )
        return ids
    return bpe.token_ids(checkpoint, *_ANSWERS)


def _is_reranker(checkpoint: Checkpoint) -> bool:
    """Tell whether a language model is published as Qwen3-Reranker, by llama.cpp's own marks."""
    if "Pooling" in checkpoint.modules:
        return False
    card = checkpoint.folder / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    names = (checkpoint.folder.resolve().name, str(checkpoint.config.get("_name_or_path", "")))
    return "# qwen3-reranker" in text.lower() or any(
        "qwen3-reranker" in name.lower() for name in names
    )


def _weight(checkpoint: Checkpoint, plain: str) -> Tensor:
    """Return one tensor by its plain name."""
    name = next((name for name in checkpoint.tensor_files if _plain(name) == plain), None)
    if name is None:
        raise ModelError(f"{checkpoint.folder} lacks the tensor {plain}, the head of a reranker")
    return Tensor(checkpoint.shape(name), partial(checkpoint.tensor, name))


def _with_zeros(row: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.concatenate((row, np.zeros_like(row)))


def _plain(name: str) -> str:
    """Return a tensor's name without the model's prefix."""
    return name.removeprefix("model.")


def _head_width(checkpoint: Checkpoint) -> int:
    """Return the width of one attention head."""
    if checkpoint.config.get("head_dim"):
        return checkpoint.size("head_dim")
    return checkpoint.size("hidden_size") // checkpoint.size("num_attention_heads")


def _n_head_kv(checkpoint: Checkpoint) -> int:
    """Return the number of heads of keys and values."""
    grouped = checkpoint.config.get("num_key_value_heads") is not None
    return checkpoint.size("num_key_value_heads" if grouped else "num_attention_heads")


def _pair_up(checkpoint: Checkpoint, tensors: dict[str, Tensor]) -> None:
    """Reorder the rows of queries and keys: llama.cpp's llama turns pairs of neighbours.

    transformers turns row i of a head with row i + half. Source: conversion/llama.py, permute.
    """
    width = _head_width(checkpoint)

    def change(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
        halves = matrix.reshape(-1, 2, width // 2, matrix.shape[1])
        return halves.swapaxes(1, 2).reshape(matrix.shape)

    for name, tensor in tensors.items():
        if name.endswith((".attn_q.weight", ".attn_k.weight")):
            tensors[name] = changed(tensor, change)


def _rope_factors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Return by what Llama 3.1 and later divide the speeds of their rotary positions.

    Source: transformers, _compute_llama3_parameters; conversion/llama.py.
    """
    rope = _rope(checkpoint)
    if rope["rope_type"] != "llama3":
        return {}
    width = _head_width(checkpoint)
    speeds = float(rope["rope_theta"]) ** (-np.arange(0, width, 2) / width)
    lengths = 2 * math.pi / speeds
    low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
    share = (float(rope["original_max_position_embeddings"]) / lengths - low) / (high - low)
    share = np.clip(share, 0, 1)  # 1: as they are, 0: divided by the whole factor
    factors = 1 / ((1 - share) / float(rope["factor"]) + share)
    return {"rope_freqs.weight": Tensor(factors.shape, lambda: factors.astype(np.float32))}
