"""From what the user wrote as `--model` to a GGUF on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from corral.errors import GGUFError, ModelError, ModelNotFoundError
from corral.gguf_header import read_header
from corral.models.builtin import BUILTINS, pull
from corral.models.files import sha256_of
from corral.models.hub import HUB_PREFIX, fetch
from corral.models.profiles import find_profile

if TYPE_CHECKING:
    from corral.gguf_header import GGUFHeader
    from corral.models.profiles import Profile

__all__ = ["ResolvedModel", "resolve"]


@dataclass(frozen=True)
class ResolvedModel:
    """A model that is on this machine and looks whole.

    Attributes:
        ref: As the user wrote it.
        path: The GGUF, absolute.
        header: Its metadata and tensors.
        profile: What is known of its family; None: nothing.
    """

    ref: str
    path: Path
    header: GGUFHeader
    profile: Profile | None

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the whole file in hexadecimal, kept until the file's size or time changes."""
        return sha256_of(self.path)


def resolve(ref: str) -> ResolvedModel:
    """Find the GGUF that a reference names; bring it where it is not on this machine yet.

    Args:
        ref: The name of a built-in model, the path of a GGUF, or hf:owner/repo[:file-or-quant].
            A file that is named like a built-in one is written as ./NAME.

    Returns:
        The model.

    Raises:
        ModelNotFoundError: Nothing is there under that name, or it could not be fetched.
        GGUFError: The file is no whole GGUF, or holds no weights.
        ModelError: It is one of several parts, or is not what the hub says it is.
        UsageError: The user's profiles are not valid.
    """
    path = _locate(ref).absolute()
    header = read_header(path)
    _check_usable(path, header)
    return ResolvedModel(ref, path, header, find_profile(header))


def _locate(ref: str) -> Path:
    """Return the path that a reference stands for."""
    if ref in BUILTINS:
        return pull(BUILTINS[ref])
    if ref.startswith(HUB_PREFIX):
        return fetch(ref)
    path = Path(ref).expanduser()
    if path.is_dir():
        raise ModelNotFoundError(f"{ref} is a folder; a model is one GGUF file{_ggufs_in(path)}")
    if not path.exists():
        is_path = path.suffix.lower() == ".gguf" or path.name != ref
        raise ModelNotFoundError(
            f"{f'there is no file {ref}' if is_path else f'there is no model {ref!r}'}. "
            f"Give the path of a GGUF, hf:owner/repo[:file-or-quant], or the name of a built-in "
            f"model: {', '.join(BUILTINS)}."
        )
    return path


def _ggufs_in(folder: Path) -> str:
    """Return the GGUF files of a folder as the end of an error."""
    names = sorted(path.name for path in folder.glob("*.gguf"))
    return f". Give one of those in it: {', '.join(names)}" if names else ", and none is in it."


def _check_usable(path: Path, header: GGUFHeader) -> None:
    """Refuse files that are sound and yet no model."""
    if not header.tensors:
        raise GGUFError(
            f"{path} is a vocabulary-only GGUF: it has a tokenizer and no weights. "
            "Give the model's own GGUF."
        )
    n_parts = header.metadata.get("split.count", 1)
    if isinstance(n_parts, int) and n_parts > 1:
        raise ModelError(
            f"{path} is one of {n_parts} parts of a model (split.count). "
            "Put them together with `llama-gguf-split --merge FIRST_PART OUT.gguf`, and give that."
        )
