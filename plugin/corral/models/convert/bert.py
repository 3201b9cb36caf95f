"""BERT: MiniLM, BGE, E5, GTE, mxbai, snowflake-arctic and their kin, and BERT cross-encoders.

Source: llama.cpp's src/models/bert.cpp (tensors and metadata it reads) and conversion/bert.py.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from corral.errors import ModelError
from corral.models.convert import wordpiece
from corral.models.convert.common import (
    SECOND_SEGMENT_KEY,
    embedding_metadata,
    limit_metadata,
    rank_metadata,
)
from corral.models.convert.tensors import take
from corral.models.convert.writer import Conversion, Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from corral.models.convert.checkpoint import Checkpoint

__all__ = ["check", "describe", "encoder_metadata", "encoder_names", "plain_name"]

# ggml has one GELU for BERT, the tanh approximation; it differs from erf by 1e-4 at most.
_ACTIVATIONS: Final = ("gelu", "gelu_new", "gelu_pytorch_tanh")
# What an embedding model does not use: the pooler (tanh over [CLS]), the pre-training head, and
# buffers that older transformers saved.
_BUFFERS: Final = r"embeddings\.(position|token_type)_ids$"
_UNUSED: Final = re.compile(rf"(pooler\.|cls\.|{_BUFFERS})")
_UNUSED_BY_CLASSIFIERS: Final = re.compile(_BUFFERS)
_CLASSIFIER: Final = "BertForSequenceClassification"
_EMBEDDING_MODELS: Final = ("BertModel", "BertForMaskedLM", "BertForPreTraining")

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
_HEAD: Final = {
    "pooler.dense.weight": "cls.weight",
    "pooler.dense.bias": "cls.bias",
    "classifier.weight": "cls.output.weight",
    "classifier.bias": "cls.output.bias",
}


def describe(checkpoint: Checkpoint, pooling: str | None) -> Conversion:
    """Return a BERT embedding model or cross-encoder in GGUF's terms.

    Args:
        checkpoint: The model's folder.
        pooling: "mean", "cls" or "last"; None: as the folder says.

    Raises:
        ModelError: Another kind of head, a variant that llama.cpp's BERT is not, or tensors that
            lack.
        PoolingError: Nothing says how the model pools.
    """
    check(checkpoint, (*_EMBEDDING_MODELS, _CLASSIFIER))
    ranks = checkpoint.architecture == _CLASSIFIER
    vocab_size = checkpoint.size("vocab_size")
    names = encoder_names(checkpoint) | (_HEAD if ranks else {})
    conversion = Conversion(
        architecture="bert",
        metadata={
            "bert.vocab_size": vocab_size,
            **encoder_metadata(checkpoint, checkpoint.size("max_position_embeddings")),
            **(
                rank_metadata(checkpoint, "bert", pooling, checkpoint.labels)
                if ranks
                else embedding_metadata(checkpoint, "bert", pooling)
            ),
            "tokenizer.ggml.token_type_count": checkpoint.size("type_vocab_size"),
            **limit_metadata(checkpoint),
            **wordpiece.metadata(wordpiece.read_vocabulary(checkpoint), vocab_size),
        },
        tensors=take(
            checkpoint,
            names,
            unused=_UNUSED_BY_CLASSIFIERS if ranks else _UNUSED,
            plain=partial(plain_name, prefix="bert."),
        ),
    )
    two_segments = ranks and checkpoint.size("type_vocab_size") > 1
    return _with_second_segment(conversion) if two_segments else conversion


def check(checkpoint: Checkpoint, known: tuple[str, ...]) -> None:
    """Refuse what would convert without an error and give other values than the reference."""
    config = checkpoint.config
    architecture = checkpoint.architecture
    if "For" in architecture and architecture not in known:
        raise ModelError(
            f"{checkpoint.folder} holds a {architecture}; its head would be lost. "
            f"Of this type these can be converted: {', '.join(known)}"
        )
    position = config.get("position_embedding_type", "absolute")
    activation = config.get("hidden_act", "gelu")
    if position != "absolute" or activation not in _ACTIVATIONS:
        raise ModelError(
            f"{checkpoint.folder} has position_embedding_type {position!r} and hidden_act "
            f"{activation!r}; llama.cpp's BERT has 'absolute' and one of {', '.join(_ACTIVATIONS)}"
        )


def encoder_metadata(checkpoint: Checkpoint, context_length: int) -> dict[str, object]:
    """Return the sizes of an encoder of BERT's kind."""
    eps = float(checkpoint.config.get("layer_norm_eps", 1e-12))
    return {
        "bert.context_length": context_length,
        "bert.embedding_length": checkpoint.size("hidden_size"),
        "bert.feed_forward_length": checkpoint.size("intermediate_size"),
        "bert.block_count": checkpoint.size("num_hidden_layers"),
        "bert.attention.head_count": checkpoint.size("num_attention_heads"),
        "bert.attention.layer_norm_epsilon": eps,
        "bert.attention.causal": False,
    }


def encoder_names(checkpoint: Checkpoint) -> dict[str, str]:
    """Return Hugging Face's name to llama.cpp's, for every tensor of the encoder."""
    layers = {
        f"encoder.layer.{i}.{source}.{part}": f"blk.{i}.{target}.{part}"
        for i in range(checkpoint.size("num_hidden_layers"))
        for source, target in _LAYER.items()
        for part in ("weight", "bias")
    }
    return _EMBEDDINGS | layers


def plain_name(name: str, *, prefix: str) -> str:
    """Return a tensor's name without a model prefix and TensorFlow's names of the norms."""
    plain = name.removeprefix(prefix)
    return re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", plain).replace(
        "LayerNorm.beta", "LayerNorm.bias"
    )


def _with_second_segment(conversion: Conversion) -> Conversion:
    """Return a model whose vocabulary holds each token once more, as part of a second segment.

    llama.cpp adds the first segment's type to every token. Since it adds up word, type and
    position before anything else, word + second type - first type stands for the second segment.
    """
    metadata, tensors = dict(conversion.metadata), dict(conversion.tensors)
    words, kinds = tensors["token_embd.weight"], tensors["token_types.weight"]
    n_tokens, width = words.shape

    def twice() -> NDArray[np.float32]:
        first, second = kinds.load()[:2]
        rows = words.load()
        return np.concatenate((rows, rows + (second - first)))

    tensors["token_embd.weight"] = Tensor((2 * n_tokens, width), twice)
    fillers = [f"[SEGMENT_2_{i}]" for i in range(n_tokens)]
    return Conversion(
        architecture=conversion.architecture,
        metadata={
            **metadata,
            **wordpiece.with_unused(metadata, fillers),
            "bert.vocab_size": 2 * n_tokens,
            SECOND_SEGMENT_KEY: n_tokens,
        },
        tensors=tensors,
    )
