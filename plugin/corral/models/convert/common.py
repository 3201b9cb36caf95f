"""What the converters of all architectures share: pooling, labels, limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import gguf

from corral.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from corral.models.convert.checkpoint import Checkpoint

__all__ = [
    "MAX_TOKENS_KEY",
    "SECOND_SEGMENT_KEY",
    "embedding_metadata",
    "limit_metadata",
    "rank_metadata",
]

SECOND_SEGMENT_KEY: Final = "corral.second_segment_offset"
"""What is added to the ids of a pair's second text: the rows from there on hold its type."""

MAX_TOKENS_KEY: Final = "corral.max_tokens"
"""Longest input of sentence-transformers' files, special tokens included."""

_POOLING: Final = {
    "mean": gguf.PoolingType.MEAN,
    "cls": gguf.PoolingType.CLS,
    "last": gguf.PoolingType.LAST,
}


def embedding_metadata(
    checkpoint: Checkpoint, architecture: str, pooling: str | None
) -> dict[str, object]:
    """Return how an embedding model pools.

    Args:
        checkpoint: The model's folder.
        architecture: llama.cpp's name.
        pooling: "mean", "cls" or "last"; None: as the folder says.

    Raises:
        ModelError: The pooling is "rank", and there is no head.
        PoolingError: Nothing says how the model pools.
    """
    if pooling == "rank":
        raise ModelError(
            f"{checkpoint.folder} holds a {checkpoint.architecture or 'model'} without a "
            f"classification head; pooling is one of {', '.join(_POOLING)}"
        )
    return {f"{architecture}.pooling_type": int(_POOLING[pooling or checkpoint.pooling()])}


def rank_metadata(
    checkpoint: Checkpoint, architecture: str, pooling: str | None, labels: Sequence[str]
) -> dict[str, object]:
    """Return what says that a model is a reranker or another classifier.

    Args:
        checkpoint: The model's folder.
        architecture: llama.cpp's name.
        pooling: "rank" or None.
        labels: Of the head's rows.

    Raises:
        ModelError: Another pooling was asked for.
    """
    if pooling not in {None, "rank"}:
        raise ModelError(
            f"{checkpoint.folder} holds a {checkpoint.architecture}; its pooling is rank, not "
            f"{pooling}"
        )
    return {
        f"{architecture}.pooling_type": int(gguf.PoolingType.RANK),
        f"{architecture}.classifier.output_labels": list(labels),
    }


def limit_metadata(checkpoint: Checkpoint) -> dict[str, object]:
    """Return the limit that sentence-transformers' files set; a GGUF has no key for it."""
    limit = checkpoint.max_tokens()
    return {} if limit is None else {MAX_TOKENS_KEY: limit}
