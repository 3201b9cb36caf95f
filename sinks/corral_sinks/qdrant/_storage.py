"""How vectors are kept, in Qdrant's models and back."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from qdrant_client import models

from corral_sinks import SinkError, Storage

__all__ = ["bytes_per_vector", "search_params", "storage_arguments", "storage_of"]

_QUANTIZATIONS: Final[Mapping[str, Callable[[models.Memory | None], Any]]] = {
    "scalar": lambda memory: models.ScalarQuantization(
        scalar=models.ScalarQuantizationConfig(type=models.ScalarType.INT8, memory=memory)
    ),
    **{
        f"product:{ratio.value}": lambda memory, ratio=ratio: models.ProductQuantization(  # type: ignore[misc]
            product=models.ProductQuantizationConfig(compression=ratio, memory=memory)
        )
        for ratio in models.CompressionRatio
    },
    **{
        f"binary:{bits}": lambda memory, encoding=encoding: models.BinaryQuantization(  # type: ignore[misc]
            binary=models.BinaryQuantizationConfig(encoding=encoding, memory=memory)
        )
        for bits, encoding in (
            ("1", models.BinaryQuantizationEncoding.ONE_BIT),
            ("1.5", models.BinaryQuantizationEncoding.ONE_AND_HALF_BITS),
            ("2", models.BinaryQuantizationEncoding.TWO_BITS),
        )
    },
    **{
        f"turbo:{size.value.removeprefix('bits').replace('_', '.')}": (
            lambda memory, size=size: models.TurboQuantization(  # type: ignore[misc]
                turbo=models.TurboQuantQuantizationConfig(bits=size, memory=memory)
            )
        )
        for size in models.TurboQuantBitSize
    },
}
_BITS: Final = {"float32": 32, "float16": 16, "turbo16": 16, "turbo8": 8, "turbo4": 4}
_WHOLE_NUMBERS: Final = "uint8"


def storage_arguments(storage: Storage) -> dict[str, Any]:
    """Give the arguments of `models.VectorParams` that keep a vector so.

    Raises:
        SinkError: there is no such datatype or quantisation, or it ruins a unit vector.
    """
    datatype, quantization = storage.datatype, storage.quantization
    if datatype == _WHOLE_NUMBERS:
        raise SinkError(
            "datatype uint8 keeps whole numbers from 0 to 255, and those of a unit vector are "
            "fractions: all would be 0. The datatype turbo8 takes a byte a dimension as well, and "
            "so does the quantization scalar."
        )
    if datatype not in _BITS:
        raise SinkError(f"there is no datatype {datatype!r}; there are {', '.join(_BITS)}.")
    if quantization is not None and quantization not in _QUANTIZATIONS:
        raise SinkError(
            f"there is no quantization {quantization!r}; there are {', '.join(_QUANTIZATIONS)}."
        )
    pinned = models.Memory.PINNED if storage.on_disk else None
    return {
        "datatype": None if datatype == "float32" else models.Datatype(datatype),
        "quantization_config": quantization and _QUANTIZATIONS[quantization](pinned),
        "memory": models.Memory.COLD if storage.on_disk else None,
    }


def storage_of(found: models.VectorParams) -> Storage:
    """Read how a vector is kept."""
    return Storage(
        datatype="float32" if found.datatype is None else found.datatype.value,
        quantization=_name_of(found.quantization_config),
        on_disk=found.memory is models.Memory.COLD or bool(found.on_disk),
    )


def _name_of(given: Any) -> str | None:  # noqa: ANN401 - of four kinds
    """Name a quantisation; one of no name here, as with a quantile of its own, by its kind."""
    if given is None:
        return None
    for memory in (None, models.Memory.PINNED):
        for name, make in _QUANTIZATIONS.items():
            if make(memory) == given:
                return name
    return str(next(iter(given.model_dump())))


def bytes_per_vector(size: int, storage: Storage) -> int:
    """Bytes that a vector takes, without its quantised copy and the graph."""
    return size * _BITS.get(storage.datatype, 8) // 8


def search_params(
    *, exact: bool = False, rescore: bool | None = None, oversampling: float | None = None
) -> models.SearchParams:
    """Say how a search looks for vectors.

    Args:
        exact: compare with every vector itself, by no graph and no quantised copy.
        rescore: whether those that the copies found are compared anew by the vectors themselves;
            None lets Qdrant choose by the kind of copy.
        oversampling: how many times as many to find by the copies, to choose from.
    """
    quantization = models.QuantizationSearchParams(
        ignore=exact, rescore=rescore, oversampling=oversampling
    )
    return models.SearchParams(exact=exact, quantization=quantization)
