"""The cache folder, files that are whole or not there, and what is in them by hash."""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import platformdirs

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SHA256_DIGITS", "atomic_target", "cache_dir", "sha256_of"]

SHA256_DIGITS: Final = 64

_log = logging.getLogger(__name__)


def cache_dir() -> Path:
    """Return corral's cache folder: CORRAL_CACHE, or else the platform's place for it."""
    return Path(os.environ.get("CORRAL_CACHE") or platformdirs.user_cache_path("corral"))


@contextmanager
def atomic_target(target: Path) -> Iterator[Path]:
    """Yield a path to write to, which takes the target's place once the block has ended well.

    The folder is made where it is missing. After an error nothing is left, and a target that was
    there before is as it was.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    # Not tempfile.mkstemp, whose files only their owner may read.
    partial = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        yield partial
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal, kept until its size or time changes."""
    stat = path.stat()
    identity = f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}".encode("utf-8", "surrogateescape")
    note = cache_dir() / "sha256" / hashlib.sha256(identity).hexdigest()
    try:
        known = note.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        known = ""
    if len(known) == SHA256_DIGITS:
        return known
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        with atomic_target(note) as partial:
            partial.write_text(found, encoding="ascii")
    except OSError as error:
        _log.debug("the SHA-256 of %s is not kept: %s", path, os.strerror(error.errno or 0))
    return found
