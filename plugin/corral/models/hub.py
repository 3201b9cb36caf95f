"""GGUF files from the Hugging Face hub, through the optional huggingface_hub package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from corral.errors import ModelNotFoundError

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["HUB_PREFIX", "fetch"]

HUB_PREFIX: Final = "hf:"


def fetch(ref: str) -> Path:
    """Download the GGUF that a reference names, unless the hub's own cache has it.

    Args:
        ref: hf:owner/repo, with :file-or-quant where the repository has several GGUF files.

    Returns:
        The file, in huggingface_hub's cache.

    Raises:
        ModelNotFoundError: huggingface_hub is not installed, the hub does not have it or does not
            answer, or the reference fits no file or several.
    """
    repo, _, wanted = ref.removeprefix(HUB_PREFIX).partition(":")
    if repo.count("/") != 1 or not all(repo.split("/")):
        raise ModelNotFoundError(
            f"{ref!r} is no hub reference; write hf:owner/repo[:file-or-quant]"
        )
    hub = _hub(ref)
    try:
        if not wanted.lower().endswith(".gguf"):
            wanted = _choose(ref, list(hub.HfApi().list_repo_files(repo)), wanted)
        return Path(hub.hf_hub_download(repo, wanted))
    except (OSError, ValueError) as error:
        # The hub's own errors and those of its HTTP client are OSErrors and ValueErrors.
        reason = " ".join(str(error).split())
        raise ModelNotFoundError(f"{ref} could not be fetched from the hub: {reason}") from error


def _hub(ref: str) -> ModuleType:
    """Import huggingface_hub, which only these references need."""
    try:
        import huggingface_hub  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ModelNotFoundError(
            f"{ref} needs the package huggingface_hub: pip install 'corral[hub]'"
        ) from error
    return huggingface_hub


def _choose(ref: str, names: list[str], wanted: str) -> str:
    """Return the one GGUF whose name contains what is wanted."""
    ggufs = sorted(name for name in names if name.lower().endswith(".gguf"))
    found = [name for name in ggufs if wanted.lower() in name.lower()]
    if len(found) == 1:
        return found[0]
    if not ggufs:
        raise ModelNotFoundError(f"{ref}: the repository has no GGUF file")
    state = f"{len(found)} GGUF files fit" if found else f"no GGUF file has {wanted!r} in its name"
    raise ModelNotFoundError(
        f"{ref}: {state}. Add one of these names after a colon: {', '.join(found or ggufs)}"
    )
