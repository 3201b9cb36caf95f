"""From a Hugging Face folder to one GGUF file, with gguf, safetensors and numpy alone.

One module an architecture: a pure function from a `Checkpoint` to a `Conversion`, which
`writer.write` puts on disk. A further architecture is a further row in `_CONVERTERS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from corral.errors import ModelError
from corral.models.convert import bert, causal, roberta
from corral.models.convert.checkpoint import Checkpoint
from corral.models.convert.writer import Conversion, ModelCard, write

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["ModelCard", "convert"]

_CONVERTERS: Final[Mapping[str, Callable[[Checkpoint, str | None], Conversion]]] = {
    "bert": bert.describe,
    "llama": causal.describe,
    "qwen3": causal.describe,
    "roberta": roberta.describe,
    "xlm-roberta": roberta.describe,
}


_POOLINGS: Final = (None, "mean", "cls", "last", "rank")


def convert(
    folder: Path,
    target: Path,
    *,
    card: ModelCard | None = None,
    pooling: str | None = None,
    weights: Literal["f32", "f16"] = "f32",
) -> None:
    """Write the model of a Hugging Face folder as a GGUF, whole or not at all.

    The same folder gives the same bytes at each conversion.

    Args:
        folder: Holds config.json, the tokenizer's files and model.safetensors, whole or in shards.
        target: The GGUF to write; replaced where it exists.
        card: What the file says of itself; None: the folder's name.
        pooling: "mean", "cls", "last", or of a Qwen3 language model "rank"; None: as the
            folder says.
        weights: Type of the matrices: "f32" is exact, and on a CPU the fastest of a small model.

    Raises:
        ModelError: The folder lacks a file, or holds a model that cannot be converted.
        PoolingError: Nothing says how the model pools.
    """
    if not folder.is_dir():
        raise ModelError(
            f"{folder} is no folder; a model is converted from its Hugging Face folder"
        )
    checkpoint = Checkpoint(folder)
    kind = checkpoint.config.get("model_type")
    converter = _CONVERTERS.get(str(kind))
    if converter is None:
        raise ModelError(
            f"{folder} holds a model of type {kind!r} (config.json); "
            f"only {', '.join(sorted(_CONVERTERS))} can be converted. "
            "For other types use llama.cpp's convert_hf_to_gguf.py."
        )
    if pooling not in _POOLINGS:
        raise ModelError(f"pooling {pooling!r} is unknown; it is one of {', '.join(_POOLINGS[1:])}")
    card = card or ModelCard(name=folder.resolve().name)
    write(converter(checkpoint, pooling), card, target, weights=weights)
