"""From pooled rows to the vectors that are stored. Pure.

Order of operations: layer norm where the model's authors ask for it, truncation to `dim`,
normalisation. Source: llama.cpp common_embd_normalize for the modes; Matryoshka Representation
Learning (arXiv 2205.13147) for truncation; nomic-embed-text-v1.5's model card for the layer norm.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from corral.errors import UsageError

__all__ = ["MIN_NORM", "NORM_NAMES", "defect", "finish", "normalize", "parse_norm", "sound"]

MIN_NORM: Final = 1e-6
"""A row of a smaller L2 norm points nowhere: Qdrant would store it unnormalised."""

_MAX_INT16: Final = 32760.0
_LAYER_NORM_EPS: Final = 1e-5

NORM_NAMES: Final = {"none": -1, "max-int16": 0, "l1": 1, "l2": 2}
"""Names of the modes, with llama.cpp's numbers; any number p >= 1 is the p-norm."""


def parse_norm(value: str | int) -> int:
    """Read a normalisation mode: a name of NORM_NAMES, or llama.cpp's number.

    Raises:
        UsageError: it is neither.
    """
    number = NORM_NAMES.get(str(value).lower())
    if number is None:
        number = int(value) if str(value).lstrip("-").isdecimal() else -2
    if number < min(NORM_NAMES.values()):
        names = ", ".join(NORM_NAMES)
        raise UsageError(f"normalize {value!r} is unknown; it is one of {names}, or p >= 1")
    return number


def normalize(rows: NDArray[np.float32], norm: int = 2) -> NDArray[np.float32]:
    """Scale each row to length one; a row of zeros stays.

    Args:
        rows: (..., dim) float32.
        norm: -1 none, 0 largest magnitude to 32760, p >= 1 the p-norm (2 is Euclid's).

    Returns:
        The same shape, float32, a new array.
    """
    exact = rows.astype(np.float64)
    if norm < 0:
        return rows.copy()
    magnitude = np.abs(exact)
    peak = magnitude.max(axis=-1, keepdims=True)
    safe = np.where(peak > 0, peak, 1.0)
    if norm == 0:
        length = safe / _MAX_INT16
    else:
        length = safe * ((magnitude / safe) ** norm).sum(axis=-1, keepdims=True) ** (1.0 / norm)
        length = np.where(length > 0, length, 1.0)
    return (exact / length).astype(np.float32)


def finish(
    rows: NDArray[np.float32], *, dim: int | None = None, layer_norm: bool = False, norm: int = 2
) -> NDArray[np.float32]:
    """Make vectors of pooled rows.

    Args:
        rows: (..., n_embd_out) float32.
        dim: leading dimensions to keep; None keeps all.
        layer_norm: whether to apply layer norm (no weights) before truncation.
        norm: as in `normalize`.

    Returns:
        (..., dim) float32.
    """
    if layer_norm:
        exact = rows.astype(np.float64)
        centred = exact - exact.mean(axis=-1, keepdims=True)
        rows = (centred / np.sqrt(exact.var(axis=-1, keepdims=True) + _LAYER_NORM_EPS)).astype(
            np.float32
        )
    return normalize(rows[..., :dim], norm)


def defect(row: NDArray[np.float32], *, may_be_zero: bool = False) -> str | None:
    """Say what makes a row of the model unusable, or None.

    Args:
        row: of any shape.
        may_be_zero: whether its length says nothing (scores).
    """
    if not np.isfinite(row).all():
        return "it holds values that are not finite"
    norm = float(np.linalg.norm(row.astype(np.float64)))
    if norm < MIN_NORM and not may_be_zero:
        return f"its length is {norm:.3g}, under {MIN_NORM:g}"
    return None


def sound(rows: Sequence[NDArray[np.float32]], *, may_be_zero: bool = False) -> bool:
    """Tell at a glance whether no row has a defect; where it cannot tell, the answer is False.

    Args:
        rows: of any shapes.
        may_be_zero: as in `defect`.
    """
    if len({row.shape for row in rows}) != 1:
        return False
    flat = np.stack(rows).reshape(len(rows), -1)
    with np.errstate(all="ignore"):  # too large gives infinity, too small 0: both answer False
        squares = np.einsum("ij,ij->i", flat, flat)
    least = -1.0 if may_be_zero else 2 * MIN_NORM**2
    return bool(np.all((squares > least) & (squares < np.inf)))
