"""Forward passes of the tiny models in numpy and float64: a reference that is not llama.cpp.

They take the weights as a GGUF holds them. tests/golden/check_references.py compares them with
transformers.

Source: arXiv 1810.04805 (BERT), 2302.13971 (Llama), 2505.09388 (Qwen3), 2104.09864 (RoPE).
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tiny_models import Pooling, TinyModel

__all__ = ["hidden_states", "pool", "row", "score"]

Array = NDArray[np.float64]


def row(
    model: TinyModel, ids: NDArray[np.int32], pooling: Pooling, *, causal: bool | None = None
) -> Array:
    """Embed or score one sequence, special tokens included in the ids.

    Returns:
        (n_embd,) float64; with "none" (n_tokens, n_embd); with "rank" (n_labels,).
    """
    states = hidden_states(model, ids, causal=causal)
    return score(model, states) if pooling == "rank" else pool(states, pooling)


def pool(states: Array, pooling: Pooling) -> Array:
    """Make one row of the rows of a sequence's tokens; "none" keeps them all."""
    if pooling == "none":
        return states
    pooled: Array = {"mean": states.mean(axis=0), "cls": states[0], "last": states[-1]}[pooling]
    return pooled


def score(model: TinyModel, states: Array) -> Array:
    """Apply the rank head; (n_labels,) float64: bert's logits, qwen3's probabilities."""
    weights = _Weights(model)
    if model.architecture == "qwen3":
        return _softmax(weights["cls.output.weight"] @ states[-1])
    first = states[:1]
    if "cls.weight" in model.weights:
        first = np.tanh(weights.linear("cls", first))
    logits: Array = weights.linear("cls.output", first)[0]
    return logits


def hidden_states(
    model: TinyModel,
    ids: NDArray[np.int32],
    *,
    causal: bool | None = None,
    token_types: NDArray[np.int32] | None = None,
) -> Array:
    """Run the blocks and the output norm.

    Args:
        model: whose weights to use.
        ids: (n_tokens,) int32, special tokens included.
        causal: attention; None takes the model's.
        token_types: (n_tokens,) int32, of a bert; None for all zero.

    Returns:
        (n_tokens, n_embd) float64.
    """
    causal = model.causal if causal is None else causal
    if model.architecture == "bert":
        types = np.zeros_like(ids) if token_types is None else token_types
        return _bert(model, ids, types)
    return _causal(model, ids, causal=causal)


def _bert(model: TinyModel, ids: NDArray[np.int32], types: NDArray[np.int32]) -> Array:
    w = _Weights(model)
    x = (
        w["token_embd.weight"][ids]
        + w["position_embd.weight"][: len(ids)]
        + w["token_types.weight"][types]
    )
    x = w.layer_norm("token_embd_norm", x)
    for block in w.blocks():
        q, k, v = (w.heads(w.linear(f"{block}.attn_{name}", x)) for name in "qkv")
        attended = _attend(q, k, v, causal=False)
        x = w.layer_norm(
            f"{block}.attn_output_norm", x + w.linear(f"{block}.attn_output", attended)
        )
        inner = _gelu(w.linear(f"{block}.ffn_up", x))
        x = w.layer_norm(f"{block}.layer_output_norm", x + w.linear(f"{block}.ffn_down", inner))
    return x


def _causal(model: TinyModel, ids: NDArray[np.int32], *, causal: bool) -> Array:
    w = _Weights(model)
    x = w["token_embd.weight"][ids]
    for block in w.blocks():
        normed = w.rms_norm(f"{block}.attn_norm", x)
        q, k, v = (w.heads(w.linear(f"{block}.attn_{name}", normed)) for name in "qkv")
        if model.architecture == "qwen3":
            q = w.rms_norm(f"{block}.attn_q_norm", q)
            k = w.rms_norm(f"{block}.attn_k_norm", k)
        attended = _attend(_rotate(model, q), _rotate(model, k), v, causal=causal)
        x = x + w.linear(f"{block}.attn_output", attended)
        normed = w.rms_norm(f"{block}.ffn_norm", x)
        gate = _silu(w.linear(f"{block}.ffn_gate", normed))
        x = x + w.linear(f"{block}.ffn_down", gate * w.linear(f"{block}.ffn_up", normed))
    return w.rms_norm("output_norm", x)


class _Weights:
    """A model's weights in float64, and the layers that are one weight and one formula."""

    def __init__(self, model: TinyModel) -> None:
        self._model = model

    def __getitem__(self, name: str) -> Array:
        return self._model.weights[name].astype(np.float64)

    def blocks(self) -> list[str]:
        return [f"blk.{i}" for i in range(self._model.shape.n_layer)]

    def heads(self, x: Array) -> Array:
        """Turn (n_tokens, n_heads * width) into (n_heads, n_tokens, width)."""
        return x.reshape(len(x), -1, self._model.shape.n_embd_head).swapaxes(0, 1)

    def linear(self, name: str, x: Array) -> Array:
        y = x @ self[f"{name}.weight"].T
        return y + self[f"{name}.bias"] if f"{name}.bias" in self._model.weights else y

    def layer_norm(self, name: str, x: Array) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        scale = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + self._model.eps)
        y: Array = centred / scale * self[f"{name}.weight"] + self[f"{name}.bias"]
        return y

    def rms_norm(self, name: str, x: Array) -> Array:
        scale = np.sqrt((x**2).mean(axis=-1, keepdims=True) + self._model.eps)
        y: Array = x / scale * self[f"{name}.weight"]
        return y


def _attend(q: Array, k: Array, v: Array, *, causal: bool) -> Array:
    """Attend with (n_head, n_tokens, width) queries; the result is (n_tokens, n_head * width).

    A head of keys and values serves `n_head / n_head_kv` neighbouring heads of queries.
    """
    n_head, n_tokens, width = q.shape
    k, v = (np.repeat(x, n_head // len(x), axis=0) for x in (k, v))
    weights = q @ k.swapaxes(1, 2) / math.sqrt(width)
    if causal:
        weights = np.where(np.tri(n_tokens, dtype=bool), weights, -np.inf)
    return (_softmax(weights) @ v).swapaxes(0, 1).reshape(n_tokens, n_head * width)


def _rotate(model: TinyModel, x: Array) -> Array:
    """Turn pairs of (n_heads, n_tokens, width) by their position.

    A pair is two neighbours in llama's GGUFs (NORM), and one of each half in qwen3's (NEOX).
    """
    _, n_tokens, width = x.shape
    speed = model.rope_freq_base ** (-np.arange(0, width, 2) / width)
    angle = np.arange(n_tokens)[:, None] * speed
    if model.architecture == "llama":
        first, second = slice(0, None, 2), slice(1, None, 2)
    else:
        first, second = slice(0, width // 2), slice(width // 2, None)
    a, b = x[..., first], x[..., second]
    turned = np.empty_like(x)
    turned[..., first] = a * np.cos(angle) - b * np.sin(angle)
    turned[..., second] = a * np.sin(angle) + b * np.cos(angle)
    return turned


_ERF: Final = np.vectorize(math.erf, otypes=[np.float64])


def _gelu(x: Array) -> Array:
    """Give the exact GELU; ggml's approximation is within 1e-3 of it."""
    y: Array = x * 0.5 * (1 + _ERF(x / math.sqrt(2)))
    return y


def _silu(x: Array) -> Array:
    y: Array = x / (1 + np.exp(-x))
    return y


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    shares: Array = powers / powers.sum(axis=-1, keepdims=True)
    return shares
