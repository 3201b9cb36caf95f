"""GGUF files from the Hugging Face hub, through the optional huggingface_hub package."""

from __future__ import annotations

import hashlib
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from corral.errors import ModelError, ModelNotFoundError
from corral.models.files import SHA256_DIGITS, sha256_of

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["HUB_PREFIX", "fetch"]

HUB_PREFIX: Final = "hf:"

_log = logging.getLogger(__name__)
_HASH: Final = re.compile(r"[0-9a-f]{64}|[0-9a-f]{40}")


def fetch(ref: str) -> Path:
    """Download the GGUF that a reference names, unless the hub's own cache has it.

    Args:
        ref: hf:owner/repo, with :file-or-quant where the repository has several GGUF files.

    Returns:
        The file, in huggingface_hub's cache.

    Raises:
        ModelNotFoundError: huggingface_hub is not installed, the hub does not have it or does not
            answer, or the reference fits no file or several.
        ModelError: The file is not what the hub says it is; it is deleted.
    """
    repo, _, wanted = ref.removeprefix(HUB_PREFIX).partition(":")
    if repo.count("/") != 1 or not all(repo.split("/")):
        raise ModelNotFoundError(
            f"{ref!r} is no hub reference; write hf:owner/repo[:file-or-quant]"
        )
    hub = _hub(ref)
    if not wanted.lower().endswith(".gguf"):
        wanted = _choose(ref, _list_files(hub, ref, repo), wanted)
    try:
        path = Path(hub.hf_hub_download(repo, wanted))
    except Exception as error:
        raise _not_fetched(ref, error) from error
    _check(ref, path, _promised(hub, repo, wanted, path))
    return path


def _promised(hub: ModuleType, repo: str, name: str, path: Path) -> str | None:
    """Return the hash that the hub gives of a file, which is its ETag there; None: it gives none.

    It is a SHA-256 of what is in LFS or Xet, as all large files are, and git's own of a small one.
    Source: huggingface_hub.file_download.get_hf_file_metadata.
    """
    if path.is_symlink():  # to where the hub's cache keeps the file, under its ETag
        return path.resolve().name
    revision = path.parents[name.count("/")].name
    try:
        tag: str | None = hub.get_hf_file_metadata(
            hub.hf_hub_url(repo, name, revision=revision)
        ).etag
    except Exception as error:  # noqa: BLE001 - the HTTP client's errors differ by version
        _log.debug("the hub does not tell the hash of %s: %s", path, error)
        return None
    return tag


def _check(ref: str, path: Path, promised: str | None) -> None:
    """Refuse and delete a file that is not the one that the hub has."""
    if promised is None or not _HASH.fullmatch(promised):
        _log.warning("%s: the hub gives no hash of %s, so it is not checked", ref, path.name)
        return
    found = sha256_of(path) if len(promised) == SHA256_DIGITS else _git_hash(path)
    if found == promised:
        return
    for file in (path.resolve(), path):
        file.unlink(missing_ok=True)
    raise ModelError(
        f"{ref}: {path.name} has the hash {found}; the hub says {promised}. It was damaged on its "
        "way or on this disk, or is not the hub's, and is deleted from the hub's cache. Run the "
        "same again to fetch it anew."
    )


def _git_hash(path: Path) -> str:
    """Return the SHA-1 by which git knows a file."""
    start = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: start).hexdigest()


def _list_files(hub: ModuleType, ref: str, repo: str) -> list[str]:
    """Return the names of a repository's files; without the hub, of those in its cache."""
    try:
        return list(hub.HfApi().list_repo_files(repo))
    except Exception as error:  # noqa: BLE001 - the HTTP client's errors differ by version
        try:
            folder = Path(hub.snapshot_download(repo, local_files_only=True))
        except Exception:  # noqa: BLE001 - the first failure is the one to tell
            raise _not_fetched(ref, error) from error
        return [file.relative_to(folder).as_posix() for file in folder.rglob("*.gguf")]


def _not_fetched(ref: str, error: Exception) -> ModelNotFoundError:
    """Return our error for one of huggingface_hub's, or of its HTTP client, which has its own."""
    reason = " ".join(str(error).split())
    return ModelNotFoundError(f"{ref} could not be fetched from the hub: {reason}")


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
