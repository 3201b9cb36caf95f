"""What a sequence's token rows give: one vector, a multivector, lexical weights. Pure.

Source: llama-graph.cpp build_pooling for the poolings; FlagEmbedding's BGE-M3 (modeling.py,
inference/embedder/encoder_only/m3.py) for colbert_linear and sparse_linear.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from corral.engine.pooling import PoolingType
from corral.engine.vectors import normalize
from corral.errors import PoolingError, UsageError

__all__ = ["Heads", "Linear", "hold_under", "lexical_weights", "pool_rows"]

Rows = NDArray[np.float32]

_MULTI_NAMES: Final = ("colbert_linear", "linear")
_SPARSE_NAME: Final = "sparse_linear"


def pool_rows(pooling_type: PoolingType, rows: Rows) -> Rows:
    """Make one row of a sequence's, as llama.cpp's pooling of that type does.

    Args:
        pooling_type: MEAN, CLS or LAST.
        rows: (n_tokens, n_embd) float32, n_tokens at least 1.

    Returns:
        (n_embd,) float32.

    Raises:
        PoolingError: the type makes no vector of rows.
    """
    if pooling_type is PoolingType.MEAN:
        mean: Rows = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
        return mean
    if pooling_type in (PoolingType.CLS, PoolingType.LAST):
        row: Rows = rows[0 if pooling_type is PoolingType.CLS else -1]
        return row
    raise PoolingError(
        f"pooling_type {pooling_type.name.lower()} makes no vector of token rows; "
        "mean, cls and last do"
    )


@dataclass(frozen=True, slots=True)
class Linear:
    """A projection of token rows.

    Args:
        weight: (n_out, n_in) float32.
        bias: (n_out,) float32.
    """

    weight: Rows
    bias: Rows

    def __call__(self, rows: Rows) -> Rows:
        """Project (n_tokens, n_in) to (n_tokens, n_out)."""
        return rows @ self.weight.T + self.bias


@dataclass(frozen=True, slots=True)
class Heads:
    """Projections that were trained beside a model, and stand in no GGUF.

    Args:
        multi: of a multivector's rows, or None.
        sparse: of each token's weight, n_out 1, or None.
    """

    multi: Linear | None = None
    sparse: Linear | None = None

    @classmethod
    def read(cls, path: Path, *, n_embd: int) -> "Heads":
        """Read a safetensors file.

        It holds `colbert_linear` and `sparse_linear`, as BGE-M3 publishes them, or one projection
        matrix, `linear` as in ColBERT's checkpoints or under any other name: `.weight` (n_out,
        n_in), with or without a `.bias`.

        Args:
            path: of the file.
            n_embd: width of the model's token rows.

        Raises:
            UsageError: it is no such file, or of another model.
        """
        tensors = _tensors(path)
        layers = sorted(name.removesuffix(".weight") for name in tensors if tensors[name].ndim > 1)
        others = [name for name in layers if name != _SPARSE_NAME]
        named = [name for name in _MULTI_NAMES if name in others]
        if not layers or (len(others) > 1 and not named):
            raise UsageError(
                f"{path} holds {', '.join(tensors) or 'nothing'}; a heads file has colbert_linear "
                "and sparse_linear, each with .weight and .bias, or one projection matrix"
            )
        multi = (named or others or [None])[0]
        return cls(
            multi=None if multi is None else _linear(path, tensors, multi, n_embd),
            sparse=(
                _linear(path, tensors, _SPARSE_NAME, n_embd, n_out=1)
                if _SPARSE_NAME in layers
                else None
            ),
        )


def _tensors(path: Path) -> dict[str, Rows]:
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name).astype(np.float32) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    except FileNotFoundError as error:
        raise UsageError(f"there is no heads file {path}; say where it is: --heads FILE") from error
    except (OSError, SafetensorError, TypeError) as error:
        raise UsageError(
            f"{path} cannot be read as safetensors: {error}. Heads that are published as .pt are "
            "pickles, which may run code: save them with safetensors.torch.save_file first"
        ) from error


def _linear(
    path: Path, tensors: Mapping[str, Rows], name: str, n_embd: int, n_out: int | None = None
) -> Linear:
    weight = tensors[f"{name}.weight" if f"{name}.weight" in tensors else name]
    if weight.ndim != len(("out", "in")) or weight.shape[1] != n_embd:
        raise UsageError(
            f"{path}: {name} has the shape {weight.shape}; the model's token rows are {n_embd} "
            "wide, so that it must be (n, that). The heads are of another model"
        )
    bias = tensors.get(f"{name}.bias", np.zeros(len(weight), dtype=np.float32))
    if bias.shape != weight.shape[:1] or (n_out is not None and len(weight) != n_out):
        raise UsageError(
            f"{path}: {name} has a weight of {weight.shape} and a bias of {bias.shape}"
            + (f"; it must give {n_out} value a token" if n_out is not None else "")
        )
    return Linear(weight, bias)


def hold_under(rows: Rows, most_values: int) -> Rows:
    """Give as many rows of a multivector as a store takes, each the mean of its neighbours.

    Args:
        rows: (n_rows, dim) float32 of unit length.
        most_values: of all rows together, at least dim.

    Returns:
        The rows where they are few enough; else (n, dim) float32 of unit length, each made of
        `ceil(n_rows * dim / most_values)` neighbours or fewer.
    """
    most_rows = most_values // rows.shape[1]
    if len(rows) <= most_rows:
        return rows
    together = -(-len(rows) // most_rows)
    starts = np.arange(0, len(rows), together)
    return normalize(np.add.reduceat(rows, starts, axis=0))


def lexical_weights(
    ids: NDArray[np.int32], weights: Rows, *, special: Collection[int]
) -> dict[int, float]:
    """Give each token id its largest weight, as BGE-M3's reference does.

    Args:
        ids: (n_tokens,) int32.
        weights: (n_tokens,) float32, before the ReLU.
        special: ids that have none.

    Returns:
        Positive weights by id.
    """
    found: dict[int, float] = {}
    for token, weight in zip(ids.tolist(), weights.tolist(), strict=True):
        if weight > 0 and token not in special:
            found[token] = max(weight, found.get(token, 0.0))
    return found
