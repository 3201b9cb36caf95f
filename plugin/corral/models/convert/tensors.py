"""Tensors under llama.cpp's names, and what has to be done to some of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from corral.errors import ModelError
from corral.models.convert.writer import Tensor

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from corral.models.convert.checkpoint import Checkpoint

__all__ = ["changed", "take"]


def take(
    checkpoint: Checkpoint,
    names: Mapping[str, str],
    *,
    unused: re.Pattern[str],
    plain: Callable[[str], str],
) -> dict[str, Tensor]:
    """Return the tensors of a model, all of them and no others.

    Args:
        checkpoint: Whose tensors.
        names: Plain name to llama.cpp's, in the order of the file.
        unused: Plain names that may be there, and are left out.
        plain: From a name in the folder to the plain one.

    Returns:
        By llama.cpp's names.

    Raises:
        ModelError: One is missing, or one more is there: the model is not what its config says.
    """
    sources = {plain(name): name for name in checkpoint.tensor_files}
    missing = [name for name in names if name not in sources]
    if missing:
        raise ModelError(
            f"{checkpoint.folder} lacks {len(missing)} of the {len(names)} tensors that a model of "
            f"its config.json has, the first: {missing[0]}"
        )
    unknown = [name for name in sources if name not in names and not unused.match(name)]
    if unknown:
        raise ModelError(
            f"{checkpoint.folder} has {len(unknown)} tensors that a model of its config.json has "
            f"not, and that a GGUF would lose, the first: {unknown[0]}"
        )
    return {
        target: Tensor(checkpoint.shape(sources[name]), partial(checkpoint.tensor, sources[name]))
        for name, target in names.items()
    }


def changed(
    tensor: Tensor,
    change: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    *,
    n_rows: int | None = None,
) -> Tensor:
    """Return a tensor that is changed when it is read.

    Args:
        tensor: What to change.
        change: From the tensor to the changed one.
        n_rows: Of the changed one; None: as before.
    """
    rows, *rest = tensor.shape
    return Tensor((rows if n_rows is None else n_rows, *rest), lambda: change(tensor.load()))
