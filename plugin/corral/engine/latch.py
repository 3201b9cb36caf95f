"""What an interrupt may come upon at any moment: waiting for a thing to happen, and for one's turn.

Python looks for signals as a function begins and behind each call. `threading.Condition`, and with
it Event and Future, take their lock in a function of Python's, so that a KeyboardInterrupt as that
returns leaves the lock taken for ever: whoever wants to tell the news waits for it. Here locks are
taken by `with` alone, of the kind that is written in C, where no such moment is.
"""

import threading

__all__ = ["Latch", "Turns"]


class Latch:
    """Opened once, and waited for by any number of threads."""

    def __init__(self) -> None:
        """Begin closed."""
        self.is_open = False
        self._closed = threading.Lock()
        self._closed.acquire()

    def open(self) -> None:
        """Let all go on who wait, once."""
        self.is_open = True
        self._closed.release()

    def wait(self, seconds: float = -1) -> bool:
        """Wait until it is open, or for so long; say whether it is.

        An interrupt in here may keep others that wait without a limit from seeing it open.
        """
        if not self.is_open and self._closed.acquire(timeout=seconds):
            self._closed.release()
        return self.is_open


class Turns:
    """Lets calls run together, or one alone.

    A call that runs beside others holds a lock of its own until it ends, by whatever::

        with (turn := threading.Lock()):
            turns.enter(turn)
            ...

    One that must be alone holds the door, where nobody enters then::

        with turns.door:
            turns.wait_for_others()
            ...
    """

    def __init__(self) -> None:
        """Let all in."""
        self.door = threading.Lock()
        self._inside: list[threading.Lock] = []

    def enter(self, turn: threading.Lock) -> None:
        """Enter when nobody is alone.

        Args:
            turn: is held by who enters.
        """
        with self.door:
            self._inside = [*(other for other in self._inside if other.locked()), turn]

    def wait_for_others(self) -> None:
        """Wait until all have ended who entered; hold the door."""
        for turn in self._inside:
            with turn:
                pass
