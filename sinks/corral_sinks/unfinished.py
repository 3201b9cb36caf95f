"""Files that take long to write: what a run that was broken off leaves is there for the next.

It stands in a hidden folder beside the file until that is whole; one process at a time owns it.
"""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from corral_sinks import JSON, Record, Schema
from corral_sinks._files import sync_folder, writing
from corral_sinks._lock import OwnerLock

__all__ = ["Folder", "IsStill", "Unfinished"]

_LOCK: Final = "lock"

IsStill = Callable[[str, Mapping[str, JSON]], bool]
"""Whether a record of this id and payload is what comes next."""


class Folder:
    """The folder beside a file that holds what is written of it.

    Args:
        file: that is to be.

    Attributes:
        path: of the folder.
        was_there: whether a run before this one has left it.

    Raises:
        SinkUnavailableError: another process writes the same file.
        OSError: the folder cannot be made.
    """

    def __init__(self, file: Path) -> None:
        """Make it where it is missing, and own it."""
        self._file = file
        self.path = file.with_name(f".{file.name}.unfinished")
        self.was_there = self.path.exists()
        self.path.mkdir(exist_ok=True)
        self._lock = OwnerLock(self.path / _LOCK, f"the unfinished {file}")

    def give_name(self, whole: Path) -> None:
        """Move what is whole, and safe on the disk, out of the folder, and delete the rest."""
        whole.replace(self._file)
        sync_folder(self._file.parent)
        self.remove()

    def leave(self, *, empty: bool) -> None:
        """Let another have it; one that holds nothing of use is deleted."""
        if empty:
            self.remove()
        self._lock.release()

    def remove(self) -> None:
        """Delete it."""
        self._lock.release()
        shutil.rmtree(self.path, ignore_errors=True)


class Unfinished(ABC):
    """A file that is being written, record by record.

    Law: whatever ends the process, what `write` took is whole or cut off by the next `resume`, but
    for what the form holds in memory; the file has its name only once `finish` returns, and is then
    the same, byte by byte, however many runs it took. Only SinkError is raised.

    Args:
        file: that is to be.
        schema: of its records.

    Attributes:
        folder: holds it meanwhile.
        n_records: that it has.
        last: id of the last one; None where there is none.

    Raises:
        SinkUnavailableError: another process writes it.
        SinkError: it cannot be written.
    """

    def __init__(self, file: Path, schema: Schema) -> None:
        """Own the folder."""
        self.n_records = 0
        self.last: str | None = None
        self._file = file
        self._schema = schema
        with writing(file):
            self.folder = Folder(file)

    @abstractmethod
    def resume(self, is_still: IsStill) -> None:
        """Keep of what an earlier run left all up to the first record that is not as it was.

        Args:
            is_still: is asked for one record after the other, in their order.

        Raises:
            SinkError: it cannot be read or cut.
        """

    @abstractmethod
    def write(self, record: Record) -> None:
        """Add a record.

        Raises:
            SinkError: it does not fit the schema, or cannot be written.
        """

    @abstractmethod
    def finish(self) -> None:
        """Let the file have its name.

        Raises:
            SinkError: it cannot be written.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of it; what was written stays for the next run, unless that is nothing."""
