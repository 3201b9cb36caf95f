"""One owner for a folder or file, told by name to whoever comes second."""

import contextlib
import errno
import json
import os
import socket
from pathlib import Path
from typing import TextIO

import portalocker

from corral_sinks import SinkError, SinkUnavailableError

__all__ = ["OwnerLock"]


class OwnerLock:
    """An advisory lock on a file that names its holder.

    The operating system holds it, so it ends with its process, however that ends; the file stays
    behind and blocks no one.

    Args:
        file: the lock's file, made where it is missing; its folder must exist.
        what: what the lock guards, for messages.

    Raises:
        SinkUnavailableError: another client, here or in another process, holds it.
        SinkError: the file cannot be opened or locked.
    """

    def __init__(self, file: Path, what: str) -> None:
        """Take the lock at once, or raise."""
        try:
            self._handle: TextIO = file.open("a+", encoding="utf-8")
        except OSError as error:
            way = ""
            if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
                way = " Reading needs the lock, too: copy the folder to where you may write."
            raise SinkError(f"cannot lock {what}: {error}.{way}") from error
        try:
            portalocker.lock(self._handle, portalocker.LOCK_EX | portalocker.LOCK_NB)
        except portalocker.AlreadyLocked as error:
            message = f"{what} is held by {_holder(self._handle)}."
            self._handle.close()
            raise SinkUnavailableError(message) from error
        except portalocker.LockException as error:
            self._handle.close()
            raise SinkError(f"cannot lock {what}: {error}. Is it on a network disk?") from error
        self._sign()

    def _sign(self) -> None:
        self._handle.seek(0)
        self._handle.truncate()
        json.dump({"pid": os.getpid(), "host": socket.gethostname()}, self._handle)
        self._handle.flush()

    def release(self) -> None:
        """Let go; twice is harmless."""
        self._handle.close()


def _holder(handle: TextIO) -> str:
    """Who signed the lock's file, and the way out."""
    owner: dict[str, object] = {}
    with contextlib.suppress(OSError, ValueError):
        handle.seek(0)
        owner = dict(json.load(handle))
    pid, host = owner.get("pid"), owner.get("host")
    if host == socket.gethostname() and pid == os.getpid():
        return f"another client in this process ({pid}). Share that one, or close it first"
    if pid is None:
        return "another process. Wait until it ends, or use another folder"
    return f"process {pid} on {host}. Wait until it ends, or use another folder"
