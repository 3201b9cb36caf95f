"""GGUF files from the Hugging Face hub, through the optional huggingface_hub package."""

from __future__ import annotations

import hashlib
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from corral.errors import ModelError, ModelNotFoundError
from corral.models.files import SHA256_DIGITS, cache_dir, sha256_of

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["HUB_PREFIX", "fetch"]

HUB_PREFIX: Final = "hf:"
_PIN: Final = "@sha256:"

_log = logging.getLogger(__name__)
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_HASH: Final = re.compile(r"[0-9a-f]{64}|[0-9a-f]{40}")


def fetch(ref: str) -> Path:
    """Download the GGUF that a reference names, unless the hub's own cache has it.

    It is never used without having been compared with a hash: the one in the reference, else the
    one that the hub gives of it.

    Args:
        ref: hf:owner/repo, with :file-or-quant where the repository has several GGUF files, and
            with @sha256:HASH for that file and no other.

    Returns:
        The file, in huggingface_hub's cache.

    Raises:
        ModelNotFoundError: huggingface_hub is not installed, the hub does not have it or does not
            answer, or the reference fits no file or several.
        ModelError: The file is not what the hub or the reference says it is, and is deleted; or
            neither says it.
    """
    repo, wanted, pinned = _parse(ref)
    hub = _hub(ref)
    if not wanted.lower().endswith(".gguf"):
        wanted = _choose(ref, _list_files(hub, ref, repo), wanted)
    try:
        path = Path(hub.hf_hub_download(repo, wanted))
    except Exception as error:
        raise _not_fetched(ref, error) from error
    if pinned:
        _compare(ref, path, pinned, "the reference")
    elif (promised := _promised(hub, repo, wanted, path)) is not None:
        _compare(ref, path, promised, "the hub")
    elif not _stamp(path).exists():
        raise _unchecked(ref, path)
    return path


def _parse(ref: str) -> tuple[str, str, str]:
    """Return the repository, what is wanted of it, and the SHA-256 that the file must have."""
    name, pin, pinned = ref.removeprefix(HUB_PREFIX).partition(_PIN)
    repo, _, wanted = name.partition(":")
    if repo.count("/") != 1 or not all(repo.split("/")):
        raise ModelNotFoundError(
            f"{ref!r} is no hub reference; write hf:owner/repo[:file-or-quant][{_PIN}HASH]"
        )
    if pin and not _SHA256.fullmatch(pinned.lower()):
        raise ModelNotFoundError(
            f"{ref!r}: behind {_PIN} stand the {SHA256_DIGITS} hexadecimal digits of a SHA-256; "
            f"there are {len(pinned)} characters"
        )
    return repo, wanted, pinned.lower()


def _promised(hub: ModuleType, repo: str, name: str, path: Path) -> str | None:
    """Return the hash that the hub gives of a file, if its ETag there is one.

    It is a SHA-256 of what is in LFS or Xet, as all large files are, and git's own of a small one.
    Source: huggingface_hub.file_download.get_hf_file_metadata.
    """
    tag: str | None
    if path.is_symlink():  # to where the hub's cache keeps the file, under its ETag
        tag = path.resolve().name
    else:
        revision = path.parents[name.count("/")].name
        try:
            tag = hub.get_hf_file_metadata(hub.hf_hub_url(repo, name, revision=revision)).etag
        except Exception as error:  # noqa: BLE001 - the HTTP client's errors differ by version
            _log.debug("the hub does not tell the hash of %s: %s", path, error)
            return None
    return tag if tag and _HASH.fullmatch(tag) else None


def _compare(ref: str, path: Path, promised: str, said_by: str) -> None:
    """Refuse and delete a file that is another one; keep in mind one that is the right one."""
    found = sha256_of(path) if len(promised) == SHA256_DIGITS else _git_hash(path)
    if found == promised:
        stamp = _stamp(path)
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.touch()
        return
    for file in (path.resolve(), path):
        file.unlink(missing_ok=True)
    raise ModelError(
        f"{ref}: {path.name} has the hash {found}; {said_by} says {promised}. It was damaged on "
        "its way or on this disk, or is not the one meant, and is deleted from the hub's cache. "
        "Run the same again to fetch it anew."
    )


def _stamp(path: Path) -> Path:
    """Give the file that says that what is there came through a comparison before."""
    return cache_dir() / "compared" / sha256_of(path)


def _unchecked(ref: str, path: Path) -> ModelError:
    return ModelError(
        f"{ref}: no hash is known of {path.name}, neither from the hub (mirrors may give none) nor "
        "from an earlier check, so it cannot be told from a damaged or another file. Its SHA-256 "
        f"is {sha256_of(path)}: where its maker names the same one, take "
        f"{ref}{_PIN}{sha256_of(path)}"
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
