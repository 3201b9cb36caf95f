"""Files that are whole or not there."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from corral_sinks import SinkError

__all__ = ["collection_name", "reading", "replace", "sync_folder", "whole_file", "writing"]

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
    with whole_file(file) as handle:
        handle.write(content)


@contextlib.contextmanager
def whole_file(file: Path) -> Iterator[BinaryIO]:
    """Open a file to write that gets its name once the block is through; else nothing is left."""
    beside = file.with_name(f".{file.name}.new")
    try:
        with beside.open("wb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)
    sync_folder(file.parent)


@contextlib.contextmanager
def reading(file: Path, *errors: type[Exception]) -> Iterator[None]:
    """Say what a file that is read in the block does not hold, or why it cannot be read.

    Args:
        file: that is read.
        errors: of the library that reads it.

    Raises:
        SinkError: in place of an OSError, of one of those errors, and of what comes of content
            that is not as it should be.
    """
    unread: tuple[type[Exception], ...] = (OSError, *errors)
    try:
        yield
    except unread as error:
        raise SinkError(f"cannot read {file}: {str(error).rstrip('.')}.") from error
    except (KeyError, TypeError, ValueError) as error:
        raise SinkError(f"{file} is damaged or not corral's: {error!r}.") from error


@contextlib.contextmanager
def writing(file: Path, *errors: type[Exception]) -> Iterator[None]:
    """Say why a file that is written in the block cannot be.

    Args:
        file: that is written.
        errors: of the library that writes it.

    Raises:
        SinkError: in place of an OSError and of one of those errors.
    """
    unwritten: tuple[type[Exception], ...] = (OSError, *errors)
    try:
        yield
    except unwritten as error:
        raise SinkError(f"cannot write {file}: {str(error).rstrip('.')}.") from error


def sync_folder(folder: Path) -> None:
    """Make renames in a folder safe against power loss, where the system can."""
    with contextlib.suppress(OSError):  # Windows opens no folders, and needs not.
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
