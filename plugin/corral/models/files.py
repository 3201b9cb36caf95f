"""The cache folder, and files that are whole or not there."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["atomic_target", "cache_dir"]


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
