"""A Hugging Face folder, read file by file and tensor by tensor."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open

from corral.errors import ModelError, PoolingError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["Checkpoint"]

_POOLING_NAMES = {"mean": "mean", "cls": "cls", "lasttoken": "last"}
_LEGACY_POOLING_NAMES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
_DEFAULT_LABELS = 2  # transformers' PretrainedConfig
# sentence-transformers' modules that GGUF and our own normalisation stand for.
_KNOWN_MODULES = ("Transformer", "Pooling", "Normalize")


class Checkpoint:
    """The files of one model as its authors published them."""

    def __init__(self, folder: Path) -> None:
        """Look at a folder; nothing is read yet.

        Args:
            folder: Holds config.json, the tokenizer's files and the weights.
        """
        self.folder = folder

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """config.json.

        Raises:
            ModelError: Not there, or not JSON.
        """
        return self.require_json("config.json")

    @property
    def architecture(self) -> str:
        """Name of the class that config.json was saved with; "" where it has none."""
        return str((self.config.get("architectures") or [""])[0])

    @property
    def labels(self) -> list[str]:
        """Names of a classifier's labels, by their number."""
        names = self.config.get("id2label") or {}
        n_labels = self.config.get("num_labels") or len(names) or _DEFAULT_LABELS
        return [str(names.get(str(i), f"LABEL_{i}")) for i in range(n_labels)]

    def max_tokens(self) -> int | None:
        """Return sentence-transformers' limit in tokens, special tokens included, or None."""
        settings = self.json("sentence_bert_config.json")
        limit = settings.get("max_seq_length") if isinstance(settings, dict) else None
        return limit if isinstance(limit, int) and limit > 0 else None

    def size(self, key: str) -> int:
        """Return a size that config.json must give.

        Raises:
            ModelError: Not there, or not a positive whole number.
        """
        value = self.config.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ModelError(
                f"{self.folder / 'config.json'}: {key} must be a positive whole number, "
                f"got {value!r}"
            )
        return value

    def require_json(self, name: str) -> Mapping[str, Any]:
        """Return an object from a JSON file that must be there.

        Raises:
            ModelError: Not there, or not a JSON object.
        """
        found = self.json(name)
        if not isinstance(found, dict):
            state = "is missing" if found is None else "is not a JSON object"
            raise ModelError(f"{self.folder / name} {state}; a Hugging Face model folder has one")
        return found

    def json(self, name: str) -> Any:  # noqa: ANN401 - JSON is what it is
        """Return what a JSON file holds, or None where there is no such file.

        Raises:
            ModelError: Not JSON.
        """
        path = self.folder / name
        if not path.is_file():
            return None
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ModelError(f"{path} is not JSON: {error}") from error

    @property
    def modules(self) -> Mapping[str, str]:
        """sentence-transformers' modules: kind to folder; none where there is no modules.json."""
        modules = self.json("modules.json") or []
        return {str(module["type"]).rpartition(".")[2]: module["path"] for module in modules}

    def pooling(self) -> str:
        """Return "mean", "cls" or "last", as sentence-transformers' files in the folder say.

        Raises:
            PoolingError: There are no such files, or they name another pooling.
            ModelError: The model has modules after the pooling that a GGUF would lose.
        """
        kinds = self.modules
        lost = [kind for kind in kinds if kind not in _KNOWN_MODULES]
        if lost:
            raise ModelError(
                f"{self.folder / 'modules.json'} has the modules {', '.join(lost)}, which the "
                f"GGUF would lose; {', '.join(_KNOWN_MODULES)} can be converted"
            )
        if "Pooling" not in kinds:
            raise PoolingError(
                f"{self.folder} does not say how the model pools: no modules.json with a Pooling "
                f"module. Give the pooling: {', '.join(_POOLING_NAMES.values())}."
            )
        name = f"{kinds['Pooling']}/config.json"
        mode = _pooling_mode(self.require_json(name))
        if mode not in _POOLING_NAMES:
            raise PoolingError(
                f"{self.folder / name} pools by {mode!r}; llama.cpp can pool by "
                f"{', '.join(_POOLING_NAMES.values())}"
            )
        return _POOLING_NAMES[mode]

    @cached_property
    def tensor_files(self) -> Mapping[str, Path]:
        """The safetensors file of each tensor.

        Raises:
            ModelError: There are no safetensors, or they are damaged.
        """
        index = self.json("model.safetensors.index.json")
        if index is not None:
            return {name: self.folder / file for name, file in index["weight_map"].items()}
        path = self.folder / "model.safetensors"
        if not path.is_file():
            raise ModelError(
                f"{path} is missing. Pickled weights (pytorch_model.bin) can run code and are not "
                "read: save the model again with save_pretrained(..., safe_serialization=True)."
            )
        try:
            with safe_open(path, framework="numpy") as file:
                return dict.fromkeys(file.keys(), path)
        except SafetensorError as error:
            raise ModelError(f"{path} is not a whole safetensors file: {error}") from error

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape, without reading its data."""
        path = self.tensor_files[name]
        try:
            with safe_open(path, framework="numpy") as file:
                return tuple(file.get_slice(name).get_shape())
        except (SafetensorError, OSError) as error:
            raise ModelError(f"cannot read {name!r} from {path}: {error}") from error

    def tensor(self, name: str) -> NDArray[np.float32]:
        """Read one tensor.

        Args:
            name: As in the file.

        Returns:
            float32 of the file's shape.

        Raises:
            ModelError: The file is not whole, or the tensor holds no floating-point numbers.
        """
        path = self.tensor_files[name]
        try:
            with safe_open(path, framework="numpy") as file:
                kind = file.get_slice(name).get_dtype()
                if kind in {"F64", "F32", "F16"}:
                    return np.ascontiguousarray(file.get_tensor(name), dtype=np.float32)
            if kind == "BF16":
                return _bfloat16(path, name)
        except (SafetensorError, OSError) as error:
            raise ModelError(f"cannot read {name!r} from {path}: {error}") from error
        raise ModelError(
            f"{path}: {name!r} is of type {kind}; F64, F32, F16 and BF16 can be converted"
        )


def _pooling_mode(config: Mapping[str, Any]) -> str:
    """Return the one pooling mode of a Pooling module, in either of its two spellings."""
    mode = config.get("pooling_mode")
    modes = [mode] if isinstance(mode, str) else list(mode or [])
    modes += [name for key, name in _LEGACY_POOLING_NAMES.items() if config.get(key)]
    return "+".join(modes)


def _bfloat16(path: Path, name: str) -> NDArray[np.float32]:
    """Read a tensor of a type that numpy does not have: the upper half of a float32.

    Source: https://github.com/huggingface/safetensors#format
    """
    with path.open("rb") as file:
        n_header = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(n_header))[name]
        start, end = entry["data_offsets"]
        file.seek(8 + n_header + start)
        halves = np.frombuffer(file.read(end - start), dtype="<u2").reshape(entry["shape"])
    return (halves.astype(np.uint32) << 16).view(np.float32)
