"""One process that reads what may crash, hang or eat memory, started again when it has.

Parsers of large formats have faults, and files that use them are about. So they run in a child
process with a limit of memory, with no way to the store and none of our keys, that is ended when it
takes too long over a file. It lives from file to file, since a start takes longer than most files.
Only JSON comes back from it.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Final

from corral.errors import ReadError
from corral.readers import wire
from corral.readers.contract import RawFile, ReaderOptions
from corral_chunkers import Document

__all__ = ["ReadingProcess"]

_MODULE: Final = "corral.readers.child"
_FILES: Final = 200
"""Files after which a process is replaced: what its libraries leak ends with it."""

_SECRETS: Final = ("KEY", "TOKEN", "SECRET", "PASSWORD")


class ReadingProcess:
    """Reads files in a child process, one at a time; close it.

    Args:
        seconds: most that one file may take, not counting what its documents wait for us.
        memory: most bytes of address space that the process may have.
    """

    def __init__(self, *, seconds: float, memory: int) -> None:
        """Keep the limits; the process is started for the first file."""
        self._seconds = seconds
        self._memory = memory
        self._child: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._n_files = 0

    def read(self, name: str, file: RawFile, options: ReaderOptions) -> Iterator[Document]:
        """Yield what the reader of that name makes of the file.

        Raises:
            ReadError: as the reader does; or it died, took too long, or needed too much memory.
        """
        finished = False
        try:
            connection = self._connected()
            with self._said(file, name):
                connection.send_bytes(wire.pack(name, file, options))
                connection.send_bytes(file.raw)
            left = self._seconds
            while True:
                before = time.monotonic()
                with self._said(file, name):
                    if not connection.poll(max(left, 0)):
                        raise ReadError(
                            f"{file.path} kept the {name} reader busy for more than "
                            f"{self._seconds:g} s; it may be made to. Give it longer with "
                            "--reader-seconds, or leave it out with --exclude."
                        )
                    answer = wire.unpack(connection.recv_bytes())
                left -= time.monotonic() - before
                if isinstance(answer, Document):
                    yield answer
                    continue
                finished = True
                if answer is not None:
                    raise answer
                return
        finally:
            self._n_files += 1
            if not finished or self._n_files >= _FILES:
                self.close()

    def close(self) -> None:
        """End the process; twice is harmless, and a later file starts another."""
        child, connection = self._child, self._connection
        self._child = self._connection = None
        if child is not None:
            child.kill()
            child.wait()
        if connection is not None:
            connection.close()

    def _connected(self) -> Connection:
        if self._connection is not None and self._child and self._child.poll() is None:
            return self._connection
        self.close()
        self._n_files = 0
        ours, theirs = Pipe()
        with theirs:
            # -P: the folder that we stand in may hold a docx.py of a stranger's.
            self._child = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-P", "-m", _MODULE, str(theirs.fileno()), str(self._memory),
                 str(self._seconds)],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )  # fmt: skip
        self._connection = ours
        return ours

    @contextlib.contextmanager
    def _said(self, file: RawFile, name: str) -> Iterator[None]:
        """Say of what the process died, where it does while the block talks to it."""
        try:
            yield
        except (OSError, EOFError) as error:
            end = self._ended()
            raise ReadError(
                f"the {name} reader {end} over {file.path}: the file is damaged, is made to do "
                f"that, or needs more than {self._memory:,} bytes of memory. Give it more with "
                "--reader-memory, or leave it out with --exclude."
            ) from error

    def _ended(self) -> str:
        child = self._child
        if child is None:
            return "was closed"
        try:
            code = child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "stopped answering"
        if code < 0:
            return f"died of {signal.Signals(-code).name}"
        return f"ended with exit code {code}"


def _environment() -> dict[str, str]:
    """What the process is to know of our environment: where modules are, and no key."""
    kept = {k: v for k, v in os.environ.items() if not k.upper().endswith(_SECRETS)}
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
