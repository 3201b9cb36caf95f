"""Files that are whole or not there."""

import contextlib
import os
from pathlib import Path

from corral_sinks import SinkError

__all__ = ["collection_name", "replace", "sync_folder"]

_FORBIDDEN = frozenset('<>:"/\\|?*\x7f') | {chr(code) for code in range(32)}
_LONGEST = 200


def collection_name(given: str) -> str:
    r"""Return a collection's name if it can name a file.

    Qdrant's own server refuses `<>:"/\|?*` and control characters too; 200 bytes leave room for
    what file systems (255) and this package add.

    Raises:
        SinkError: it cannot; says why.
    """
    odd = sorted(_FORBIDDEN & set(given))
    if odd:
        raise SinkError(f"a collection's name may not hold {', '.join(map(repr, odd))}: {given!r}.")
    if not given.strip(" .") or given != given.strip(" ") or given.startswith("."):
        raise SinkError(f"a collection's name may not be empty or begin with a dot: {given!r}.")
    try:
        length = len(given.encode())
    except UnicodeEncodeError as error:
        raise SinkError(f"a collection's name must be Unicode text: {given!r}.") from error
    if length > _LONGEST:
        raise SinkError(f"a collection's name has at most {_LONGEST} bytes; this has {length}.")
    return given


def replace(file: Path, content: bytes) -> None:
    """Write a file so that after a power cut it holds either the old content or the new."""
    beside = file.with_name(f".{file.name}.new")
    with beside.open("wb") as handle:
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())
    beside.replace(file)
    sync_folder(file.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder safe against power loss, where the system can."""
    with contextlib.suppress(OSError):  # Windows opens no folders, and needs not.
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
