"""Read what stands before a GGUF's weights: its metadata and its list of tensors.

`gguf.GGUFReader` makes an object of every token of a vocabulary and needs 4 to 13 seconds for the
large ones; this reader needs a fraction of one, and doubts every number it reads: a count, a
length or an offset that does not fit the file is a `GGUFError`, never a crash or a huge allocation.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

from corral.errors import GGUFError, ModelNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["GGUFHeader", "TensorInfo", "read_header"]

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_DEFAULT_ALIGNMENT: Final = 32
_MAX_DIMS: Final = 4  # GGML_MAX_DIMS
_MAX_NESTING: Final = 4
# Real files stay far below: 16 Mi array items in all, and 16 MiB in one string.
_MAX_ITEMS: Final = 1 << 24
_MAX_STRING: Final = 1 << 24

_STRING: Final = 8
_ARRAY: Final = 9
# GGUF's number of a scalar type -> its struct code; bool is checked apart.
_SCALARS: Final = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_SIZES: Final = {kind: struct.calcsize(f"<{code}") for kind, code in _SCALARS.items()}
# The least bytes one item takes: a length; a type and a length.
_LEAST_SIZES: Final = {**_SIZES, _STRING: 8, _ARRAY: 12}
_LEAST_PAIR: Final = 8 + 4 + 1
_LEAST_TENSOR: Final = 8 + 4 + 4 + 8

_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of the file.

    Attributes:
        shape: As numpy and PyTorch write it, rows first: the reverse of ggml's `ne`.
        type: ggml's name of the type: "F32", "Q8_0", ...
    """

    shape: tuple[int, ...]
    type: str


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """The metadata and the tensors of a GGUF file.

    Attributes:
        metadata: Key to value: int, float, bool, str, or a list of these. Bytes that are not UTF-8
            stand in strings as surrogates (PEP 383), so that no two strings are taken for one.
        tensors: Name to shape and type.
        file_size: Bytes.
    """

    metadata: Mapping[str, object]
    tensors: Mapping[str, TensorInfo]
    file_size: int

    @property
    def architecture(self) -> str:
        """llama.cpp's name of the architecture (`general.architecture`)."""
        return str(self.metadata["general.architecture"])

    def arch(self, key: str, default: object = None) -> object:
        """Return the value of `{architecture}.{key}`, or the default where the file has none."""
        return self.metadata.get(f"{self.architecture}.{key}", default)


def read_header(path: Path) -> GGUFHeader:
    """Read the metadata and the list of tensors of a GGUF, and check that the file is whole.

    Args:
        path: The GGUF.

    Returns:
        The header; `tensors` is empty for a vocabulary-only file.

    Raises:
        ModelNotFoundError: The path is no file, or cannot be opened.
        GGUFError: Not a GGUF of version 2 or 3, cut short, or with numbers that cannot be true.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size == 0:
                raise GGUFError(f"{path} is not a GGUF: the file is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(path, data).header()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelNotFoundError(f"{path} cannot be read as a model file: {reason}") from error


class _Reader:
    """A cursor over the file's bytes that never reads past them."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.size = len(data)
        self.at = 0
        self.items_left = _MAX_ITEMS

    def header(self) -> GGUFHeader:
        """Read everything, in the file's order."""
        self.check_start()
        n_tensors = self.count(_LEAST_TENSOR, "tensors", ahead=8)
        n_pairs = self.count(_LEAST_PAIR, "metadata pairs")
        metadata = self.pairs(n_pairs)
        tensors = self.tensors(n_tensors, _alignment(self.path, metadata))
        _check_metadata(self.path, metadata)
        return GGUFHeader(metadata, tensors, self.size)

    def check_start(self) -> None:
        """Check the magic and the version."""
        found = self.data[: len(_MAGIC)]
        if found != _MAGIC:
            raise GGUFError(
                f"{self.path} is not a GGUF: it starts with {found!r} and not with {_MAGIC!r}. "
                "Models in other formats (safetensors, .bin, ONNX) have to be converted to GGUF."
            )
        self.at = len(_MAGIC)
        version = self.u32("version")
        if version not in _VERSIONS:
            raise GGUFError(
                f"{self.path} is a GGUF of version {version}; versions 2 and 3, little-endian, "
                "can be read. Convert the model again with a current converter."
            )

    def take(self, n_bytes: int, what: str) -> int:
        """Step over `n_bytes` and return where they start."""
        start = self.at
        if n_bytes > self.size - start:
            raise GGUFError(
                f"truncated GGUF: {self.path} ends at byte {self.size}, inside its header: "
                f"{what} at byte {start} takes {n_bytes} bytes. Fetch the file again."
            )
        self.at = start + n_bytes
        return start

    def u32(self, what: str) -> int:
        """Read an unsigned 32-bit number."""
        value: int = _U32.unpack_from(self.data, self.take(4, what))[0]
        return value

    def u64(self, what: str) -> int:
        """Read an unsigned 64-bit number."""
        value: int = _U64.unpack_from(self.data, self.take(8, what))[0]
        return value

    def count(self, least_size: int, what: str, *, ahead: int = 0) -> int:
        """Read a count of things of at least `least_size` bytes, and check that they fit."""
        count = self.u64(f"the number of {what}")
        room = max(0, self.size - self.at - ahead)
        if count > room // least_size:
            raise GGUFError(
                f"truncated or damaged GGUF: {self.path} says that {count} {what} follow, and has "
                f"{room} bytes left, of which each takes {least_size} or more. "
                "Fetch the file again."
            )
        return count

    def string(self, what: str) -> str:
        """Read a length and so many bytes of UTF-8."""
        length = self.u64(what)
        if length > _MAX_STRING:
            raise GGUFError(
                f"damaged GGUF: {self.path} has a string of {length} bytes at byte {self.at} "
                f"({what}); the limit is {_MAX_STRING}. Fetch the file again."
            )
        start = self.take(length, what)
        return self.data[start : self.at].decode("utf-8", "surrogateescape")

    def pairs(self, n_pairs: int) -> dict[str, object]:
        """Read the metadata."""
        metadata: dict[str, object] = {}
        for _ in range(n_pairs):
            key = self.string("a metadata key")
            if key in metadata:
                raise GGUFError(f"damaged GGUF: {self.path} has the metadata key {key!r} twice")
            metadata[key] = self.value(self.u32(f"the type of {key!r}"), key, 0)
        return metadata

    def value(self, kind: int, key: str, depth: int) -> object:
        """Read one value of the given type."""
        if kind == _STRING:
            return self.string(key)
        if kind == _ARRAY:
            return self.array(key, depth)
        if kind not in _SCALARS:
            raise GGUFError(
                f"damaged GGUF: {self.path} gives {key!r} the type {kind}; "
                "types 0 to 12 are known. Fetch the file again."
            )
        start = self.take(_SIZES[kind], key)
        return struct.unpack_from(f"<{_SCALARS[kind]}", self.data, start)[0]

    def array(self, key: str, depth: int) -> list[object]:
        """Read an array: numbers at once, strings in a tight loop, arrays by descent."""
        kind = self.u32(f"the item type of {key!r}")
        if kind not in _LEAST_SIZES or depth == _MAX_NESTING:
            raise GGUFError(
                f"damaged GGUF: {self.path} has an array {key!r} with items of type {kind} at "
                f"depth {depth + 1}; types 0 to 12 and depths up to {_MAX_NESTING} are known"
            )
        count = self.count(_LEAST_SIZES[kind], f"items of {key!r}")
        self.items_left -= count
        if self.items_left < 0:
            raise GGUFError(
                f"damaged GGUF: {self.path} has more than {_MAX_ITEMS} items in its metadata "
                f"arrays, {count} of them in {key!r}"
            )
        if kind == _STRING:
            return self.strings(count, key)
        if kind == _ARRAY:
            return [self.array(key, depth + 1) for _ in range(count)]
        start = self.take(count * _SIZES[kind], key)
        return list(struct.unpack_from(f"<{count}{_SCALARS[kind]}", self.data, start))

    def strings(self, count: int, key: str) -> list[object]:
        """Read many strings: a vocabulary has up to half a million with its merges."""
        data, size, at = self.data, self.size, self.at
        length_at: Callable[[mmap.mmap, int], tuple[int]] = _U64.unpack_from
        found: list[object] = []
        for _ in range(count):
            start = at + 8
            if start > size:
                break
            at = start + length_at(data, at)[0]
            if at > size:
                break
            found.append(data[start:at].decode("utf-8", "surrogateescape"))
        if len(found) < count:
            raise GGUFError(
                f"truncated GGUF: {self.path} ends at byte {size}, inside its header: "
                f"{key!r} has {count} strings, and {len(found)} are there. Fetch the file again."
            )
        self.at = at
        return found

    def tensors(self, n_tensors: int, alignment: int) -> dict[str, TensorInfo]:
        """Read the list of tensors, and check that the data of each lies inside the file."""
        tensors: dict[str, TensorInfo] = {}
        extents: list[tuple[str, int, int]] = []
        for _ in range(n_tensors):
            name = self.string("a tensor's name")
            if name in tensors:
                raise GGUFError(f"damaged GGUF: {self.path} has the tensor {name!r} twice")
            tensors[name], n_bytes = self.tensor(name)
            extents.append((name, self.u64(f"the offset of {name!r}"), n_bytes))
        data_start = -(-self.at // alignment) * alignment
        for name, offset, n_bytes in extents:
            end = data_start + offset + n_bytes
            if end > self.size:
                raise GGUFError(
                    f"truncated GGUF: {self.path} has {self.size} bytes, and the data of its "
                    f"tensor {name!r} ends at byte {end}. Fetch the file again."
                )
        return tensors

    def tensor(self, name: str) -> tuple[TensorInfo, int]:
        """Read one tensor's shape and type; return them and the bytes of its data."""
        import gguf  # noqa: PLC0415 - costs 0.1 s, which a --help must not pay

        n_dims = self.u32(f"the number of dimensions of {name!r}")
        if n_dims > _MAX_DIMS:
            raise GGUFError(
                f"damaged GGUF: {self.path} gives the tensor {name!r} {n_dims} dimensions; "
                f"the most is {_MAX_DIMS}"
            )
        sizes = tuple(self.u64(f"the shape of {name!r}") for _ in range(n_dims))
        number = self.u32(f"the type of {name!r}")
        try:
            kind = gguf.GGMLQuantizationType(number)
        except ValueError:
            raise GGUFError(
                f"{self.path} gives the tensor {name!r} the type {number}, which this version of "
                "the gguf package does not know: the file is damaged, or newer than the package"
            ) from None
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        n_items = prod(sizes)
        if (sizes[0] if sizes else 1) % block:
            raise GGUFError(
                f"damaged GGUF: {self.path} gives the tensor {name!r} rows of "
                f"{sizes[0] if sizes else 1} items; {kind.name} holds multiples of {block}"
            )
        return TensorInfo(sizes[::-1], kind.name), n_items // block * block_bytes


def _alignment(path: Path, metadata: Mapping[str, object]) -> int:
    """Return the alignment of the tensor data, a power of two."""
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise GGUFError(
            f"damaged GGUF: {path} has general.alignment {alignment!r}; powers of two are valid"
        )
    return alignment


def _check_metadata(path: Path, metadata: Mapping[str, object]) -> None:
    """Check what everything else relies on: an architecture, and tokens that are unique."""
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise GGUFError(
            f"{path} has no general.architecture, which every model's GGUF has: got "
            f"{architecture!r}"
        )
    tokens = metadata.get("tokenizer.ggml.tokens", [])
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise GGUFError(f"damaged GGUF: {path} has tokenizer.ggml.tokens that are not strings")
    if len(set(tokens)) != len(tokens):
        first: dict[str, int] = {}
        token_id, token = next(
            (i, token) for i, token in enumerate(tokens) if first.setdefault(token, i) != i
        )
        raise GGUFError(
            f"{path} has the token {token!r} twice in its vocabulary, with the ids "
            f"{first[token]} and {token_id}: llama.cpp would end the process on it. "
            "Convert the model again."
        )
