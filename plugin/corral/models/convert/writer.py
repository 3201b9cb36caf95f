"""Put a converted model on disk: one GGUF, whole or not at all, the same bytes each time."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final, Literal

import gguf
import numpy as np

from corral.models.files import atomic_target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["Conversion", "ModelCard", "Tensor", "write"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """What a GGUF says of itself; an empty string is left out.

    Attributes:
        name: general.name, by which profiles know the model.
        basename: general.basename, the name without version and size.
        organization: Who made the model.
        license: An SPDX identifier.
        source_url: Where the model was published.
    """

    name: str
    basename: str = ""
    organization: str = ""
    license: str = ""
    source_url: str = ""

    def metadata(self) -> dict[str, object]:
        """Return the `general.*` pairs."""
        pairs = {
            "general.type": "model",
            "general.name": self.name,
            "general.basename": self.basename,
            "general.organization": self.organization,
            "general.license": self.license,
            "general.source.url": self.source_url,
        }
        return {key: value for key, value in pairs.items() if value}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor that is read when its turn to be written comes.

    Attributes:
        shape: Rows first, as numpy writes it.
        load: Returns it as float32 of that shape.
    """

    shape: Sequence[int]
    load: Callable[[], NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Conversion:
    """A model in GGUF's terms.

    Attributes:
        architecture: llama.cpp's name of it.
        metadata: Everything but `general.*`. A bool, int, float, str or list is written as
            GGUF's bool, uint32, float32, string or array; bytes as an array of uint8.
        tensors: By llama.cpp's names, in the file's order.
    """

    architecture: str
    metadata: Mapping[str, object]
    tensors: Mapping[str, Tensor]


# Small, and what a little less exactness would show in; llama.cpp wants norms as F32.
_ALWAYS_F32: Final = ("position_embd.", "token_types.", "cls.")


def write(
    conversion: Conversion, card: ModelCard, target: Path, *, weights: Literal["f32", "f16"] = "f32"
) -> None:
    """Write a GGUF, one tensor in memory at a time.

    Args:
        conversion: What to write.
        card: The `general.*` metadata.
        target: Where; replaced where it exists, once the new file is whole.
        weights: Type of the matrices; all else is F32.
    """
    kinds = {
        name: np.dtype(np.float16 if weights == "f16" and _is_matrix(name, tensor) else np.float32)
        for name, tensor in conversion.tensors.items()
    }
    file_type = gguf.LlamaFileType.ALL_F32 if weights == "f32" else gguf.LlamaFileType.MOSTLY_F16
    with atomic_target(target) as partial:
        writer = gguf.GGUFWriter(partial, conversion.architecture)
        try:
            for key, value in {**card.metadata(), **conversion.metadata}.items():
                _add(writer, key, value)
            writer.add_file_type(file_type)
            for name, tensor in conversion.tensors.items():
                n_bytes = kinds[name].itemsize * prod(tensor.shape)
                writer.add_tensor_info(name, tensor.shape, kinds[name], n_bytes)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
            for name, tensor in conversion.tensors.items():
                writer.write_tensor_data(tensor.load().astype(kinds[name], copy=False))
        finally:
            writer.close()


def _is_matrix(name: str, tensor: Tensor) -> bool:
    """Tell whether a tensor is one of the many large ones."""
    return len(tensor.shape) > 1 and not name.startswith(_ALWAYS_F32)


def _add(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    """Add one metadata pair with the GGUF type of the value's Python type."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, list | bytes):
        writer.add_array(key, value)
    else:
        writer.add_string(key, str(value))
