"""Room on the disk: the engine writes through memory maps, and a map on a full disk kills."""

import os
import shutil
from pathlib import Path
from typing import Final

from corral_sinks import SinkError
from corral_sinks.qdrant._errors import Place

__all__ = ["DELETE_BYTES", "WRITE_BYTES", "held_bytes", "require_space"]

WRITE_BYTES: Final = 64 * 2**20
"""Must be free before a write: two segments of the write-ahead log, 32 MiB each, in which also the
largest batch fits.
"""
DELETE_BYTES: Final = 8 * 2**20
"""Must be free before a deletion, which is how room is made."""

_BLOCK_BYTES: Final = 512  # of st_blocks, on every system


def require_space(folder: Path, n_bytes: int, place: Place, *, purpose: str) -> None:
    """Refuse what the disk may have no room for.

    A store to a page that the disk cannot hold is no error that could be caught: the process gets
    SIGBUS. So the room is looked at before.

    Args:
        folder: on the disk.
        n_bytes: that must be free.
        place: for the message.
        purpose: what they are for.

    Raises:
        SinkError: there is less.
    """
    free = shutil.disk_usage(folder).free
    if free < n_bytes:
        raise SinkError(
            f"{place.name}: the disk is full: {free / 2**20:,.0f} MiB are free, and {purpose} "
            f"takes up to {n_bytes / 2**20:,.0f}. What was acknowledged is stored. Make room, "
            "or take a folder on another disk."
        )


def held_bytes(folder: Path) -> int:
    """Bytes that a folder's files take on the disk; holes in them take none."""
    total = 0
    for file in folder.rglob("*"):
        found = os.lstat(file)
        total += getattr(found, "st_blocks", -(-found.st_size // _BLOCK_BYTES)) * _BLOCK_BYTES
    return total
