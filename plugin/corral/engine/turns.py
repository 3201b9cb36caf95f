"""Calls that run together, or one alone."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Turns"]


class Turns:
    """Lets calls run together, or one alone."""

    def __init__(self) -> None:
        """Let all in."""
        self._changed = threading.Condition()
        self._together = 0
        self._alone = False

    @contextmanager
    def together(self) -> Iterator[None]:
        """Run beside others, but not beside one that must be alone."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._together += 1
        try:
            yield
        finally:
            with self._changed:
                self._together -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Run beside nobody."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._alone = True
        try:
            with self._changed:
                self._changed.wait_for(lambda: not self._together)
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()
