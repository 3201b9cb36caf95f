"""Values made by reference implementations, beside the scripts that made them."""

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "FOLDERS_JSON",
    "MINILM_JSON",
    "MINILM_NPY",
    "Golden",
    "GoldenFolder",
    "folder",
    "minilm",
    "sha256",
]

FOLDERS_JSON: Final = Path(__file__).with_name("folders.json")
MINILM_JSON: Final = Path(__file__).with_name("minilm.json")
MINILM_NPY: Final = Path(__file__).with_name("minilm.npy")


@dataclass(frozen=True, slots=True)
class Golden:
    """What sentence-transformers made of the texts of tests/texts.py.

    Args:
        ids: token ids by name of the text, special tokens included, not truncated, (n,) int32.
        vectors: by name of the text, (dim,) float32 of unit length, truncated to `max_tokens`.
        max_tokens: most tokens that the reference reads, special tokens included.
    """

    ids: dict[str, NDArray[np.int32]]
    vectors: dict[str, NDArray[np.float32]]
    max_tokens: int


def sha256(text: str) -> str:
    """Tell whether a text is still the one that a golden value was made of."""
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def minilm() -> Golden:
    """Read the golden values of all-MiniLM-L6-v2."""
    record = json.loads(MINILM_JSON.read_text("utf-8"))
    names = [entry["name"] for entry in record["texts"]]
    ids = [np.array(entry["ids"], dtype=np.int32) for entry in record["texts"]]
    vectors: NDArray[np.float32] = np.load(MINILM_NPY)
    return Golden(
        ids=dict(zip(names, ids, strict=True)),
        vectors=dict(zip(names, vectors, strict=True)),
        max_tokens=record["max_tokens"],
    )


@dataclass(frozen=True, slots=True)
class GoldenFolder:
    """What transformers made of a folder of tests/tiny_folders.py.

    Args:
        weights: SHA-256 of the weights that it had.
        ids: token ids of each text or pair, special tokens included, truncated.
        values: of each text its pooled row, of each pair its logits; float64.
    """

    weights: str
    ids: list[list[int]]
    values: NDArray[np.float64]


@cache
def folder(name: str) -> GoldenFolder:
    """Read the golden values of one tiny folder."""
    entry = json.loads(FOLDERS_JSON.read_text("utf-8"))["folders"][name]
    found = entry["values"]
    return GoldenFolder(
        weights=entry["weights"],
        ids=[value["ids"] for value in found],
        values=np.array([value.get("row", value.get("logits")) for value in found]),
    )
