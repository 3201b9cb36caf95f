"""BERT embedding models: MiniLM, BGE, E5, GTE, mxbai, snowflake-arctic and their kin.

Source: llama.cpp's src/models/bert.cpp (tensors and metadata it reads) and conversion/bert.py.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

import gguf

from corral.errors import ModelError
from corral.models.convert import wordpiece
from corral.models.convert.writer import Conversion, Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from corral.models.convert.checkpoint import Checkpoint

__all__ = ["describe"]

# ggml has one GELU for BERT, the tanh approximation; it differs from erf by 1e-4 at most.
_ACTIVATIONS: Final = ("gelu", "gelu_new", "gelu_pytorch_tanh")
_POOLING: Final = {
    "mean": gguf.PoolingType.MEAN,
    "cls": gguf.PoolingType.CLS,
    "last": gguf.PoolingType.LAST,
}
# What an embedding model does not use: the pooler (tanh over [CLS]), the pre-training head, and
# buffers that older transformers saved.
_UNUSED: Final = re.compile(r"(pooler\.|cls\.|embeddings\.(position|token_type)_ids$)")

_EMBEDDINGS: Final = {
    "embeddings.word_embeddings.weight": "token_embd.weight",
    "embeddings.position_embeddings.weight": "position_embd.weight",
    "embeddings.token_type_embeddings.weight": "token_types.weight",
    "embeddings.LayerNorm.weight": "token_embd_norm.weight",
    "embeddings.LayerNorm.bias": "token_embd_norm.bias",
}
_LAYER: Final = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}


def describe(checkpoint: Checkpoint, pooling: str | None) -> Conversion:
    """Return a BERT embedding model in GGUF's terms.

    Args:
        checkpoint: The model's folder.
        pooling: "mean", "cls" or "last"; None: as the folder says.

    Raises:
        ModelError: A classifier, a variant that llama.cpp's BERT is not, or tensors that lack.
        PoolingError: Nothing says how the model pools.
    """
    _check(checkpoint)
    vocab_size = checkpoint.size("vocab_size")
    return Conversion(
        architecture="bert",
        metadata={
            "bert.vocab_size": vocab_size,
            "bert.context_length": checkpoint.size("max_position_embeddings"),
            "bert.embedding_length": checkpoint.size("hidden_size"),
            "bert.feed_forward_length": checkpoint.size("intermediate_size"),
            "bert.block_count": checkpoint.size("num_hidden_layers"),
            "bert.attention.head_count": checkpoint.size("num_attention_heads"),
            "bert.attention.layer_norm_epsilon": float(
                checkpoint.config.get("layer_norm_eps", 1e-12)
            ),
            "bert.attention.causal": False,
            "bert.pooling_type": int(_POOLING[pooling or checkpoint.pooling()]),
            "tokenizer.ggml.token_type_count": checkpoint.size("type_vocab_size"),
            **wordpiece.metadata(wordpiece.read_vocabulary(checkpoint), vocab_size),
        },
        tensors=_tensors(checkpoint),
    )


def _check(checkpoint: Checkpoint) -> None:
    """Refuse what would convert without an error and give other vectors than the reference."""
    config = checkpoint.config
    heads = [name for name in config.get("architectures") or [] if "For" in name]
    classifiers = [name for name in heads if name not in {"BertForMaskedLM", "BertForPreTraining"}]
    if classifiers:
        raise ModelError(
            f"{checkpoint.folder} holds a {classifiers[0]}; its head would be lost. "
            "Only BERT embedding models (BertModel) can be converted."
        )
    position = config.get("position_embedding_type", "absolute")
    activation = config.get("hidden_act", "gelu")
    if position != "absolute" or activation not in _ACTIVATIONS:
        raise ModelError(
            f"{checkpoint.folder} has position_embedding_type {position!r} and hidden_act "
            f"{activation!r}; llama.cpp's BERT has 'absolute' and one of {', '.join(_ACTIVATIONS)}"
        )


def _tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Return the tensors under llama.cpp's names, in the order of the layers."""
    sources = {_plain(name): name for name in checkpoint.tensor_files}
    names = _names(checkpoint.size("num_hidden_layers"))
    missing = [name for name in names if name not in sources]
    if missing:
        raise ModelError(
            f"{checkpoint.folder} lacks {len(missing)} of the {len(names)} tensors of a BERT of "
            f"{checkpoint.size('num_hidden_layers')} layers (config.json), the first: {missing[0]}"
        )
    unknown = [name for name in sources if name not in names and not _UNUSED.match(name)]
    if unknown:
        raise ModelError(
            f"{checkpoint.folder} has {len(unknown)} tensors that a BERT of "
            f"{checkpoint.size('num_hidden_layers')} layers (config.json) has not, the first: "
            f"{unknown[0]}"
        )
    return {
        target: Tensor(checkpoint.shape(sources[name]), partial(checkpoint.tensor, sources[name]))
        for name, target in names.items()
    }


def _plain(name: str) -> str:
    """Return a tensor's name without a model prefix and TensorFlow's names of the norms."""
    plain = name.removeprefix("bert.")
    return re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", plain).replace(
        "LayerNorm.beta", "LayerNorm.bias"
    )


def _names(n_layers: int) -> Mapping[str, str]:
    """Return Hugging Face's name to llama.cpp's, for every tensor."""
    layers = {
        f"encoder.layer.{i}.{source}.{part}": f"blk.{i}.{target}.{part}"
        for i in range(n_layers)
        for source, target in _LAYER.items()
        for part in ("weight", "bias")
    }
    return _EMBEDDINGS | layers
