"""One child process that holds a model, and the parent's side of the talk with it."""

import contextlib
import dataclasses
import itertools
import logging
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from numpy.typing import NDArray

from corral import errors
from corral.engine.frames import Message, Outbox, receive
from corral.engine.latch import Latch
from corral.engine.options import EngineOptions
from corral.engine.spawn import child_command, child_environment
from corral.errors import EngineError

__all__ = ["Child", "DiedError"]

log = logging.getLogger(__name__)

_TICK_SECONDS: Final = 1.0
_SILENT_TICKS: Final = 600
"""A decode takes a large model minutes on a small machine, never ten."""
_SHOWN_LINES: Final = 3
_JOIN_SECONDS: Final = 5.0


class DiedError(Exception):
    """The child died before it answered."""


class _Answer:
    """What comes of a request, and who waits for it."""

    def __init__(self) -> None:
        self.came = Latch()
        self._found: Message | Exception | None = None

    def settle(self, found: Message | Exception) -> None:
        self._found = found
        self.came.open()

    def message(self) -> Message:
        """Give what came; raise it where it is an error."""
        if isinstance(self._found, Exception):
            raise self._found
        return cast("Message", self._found)


class Child:
    """One process, its pipes, and who waits for its answers."""

    def __init__(self, path: Path, options: EngineOptions) -> None:
        """Start it; it begins to load the model."""
        try:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 - our own module
                child_command("corral.engine.serving"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=child_environment(),
            )
        except OSError as error:
            raise EngineError(f"no process can be started for the model: {error}") from error
        stdin, stdout, stderr = _pipes(self._process)
        self._outbox = Outbox(stdin)
        self._numbers = itertools.count()
        self._waiting: dict[int, _Answer] = {}
        self._lock = threading.Lock()
        self._death: str | None = None
        self._why_killed: str | None = None
        self._heard = 0
        self.busy_seconds = 0.0
        self._last_words: deque[str] = deque(maxlen=_SHOWN_LINES)
        self._threads = [
            threading.Thread(target=work, args=(stream,), name=name, daemon=True)
            for name, work, stream in (
                ("corral-worker-words", self._listen, stderr),
                ("corral-worker-replies", self._read, stdout),
            )
        ]
        for thread in self._threads:
            thread.start()
        level = logging.getLogger("corral").getEffectiveLevel()
        opening = {"path": str(path), "options": dataclasses.asdict(options), "log_level": level}
        self._opened = self._send(opening)

    @property
    def is_dead(self) -> bool:
        """Whether it died, of itself or by `kill`."""
        return self._death is not None

    def facts(self) -> Mapping[str, Any]:
        """Wait for the model to be open; tell what it is.

        Raises:
            GGUFError: llama.cpp cannot load it.
            DiedError: the process died.
        """
        return self._wait(self._opened).head

    def ask(self, head: Mapping[str, Any], arrays: Sequence[NDArray[Any]] = ()) -> Message:
        """Have a request answered.

        Raises:
            CorralError: as the engine raised it.
            DiedError: the process died.
        """
        return self._wait(self._send(head, arrays))

    def kill(self, why: str | None = None) -> None:
        """End it at once, if it is not dead yet; who waits for it is told why."""
        self._why_killed = self._why_killed or why
        self._process.kill()

    def join(self) -> None:
        """Wait until nothing is left of it, after `kill`."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_JOIN_SECONDS)

    def _send(self, head: Mapping[str, Any], arrays: Sequence[NDArray[Any]] = ()) -> _Answer:
        answer = _Answer()
        with self._lock:
            if self._death is not None:
                raise DiedError(self._death)
            number = next(self._numbers)
            self._waiting[number] = answer
        try:
            self._outbox.send({**head, "id": number}, arrays)
        except (OSError, ValueError):  # it dies; `_read` finds out of what
            log.debug("the model's process reads no more")
        return answer

    def _wait(self, answer: _Answer) -> Message:
        """Wait, as long as anything is heard of the process now and then."""
        heard, silent = self._heard, 0
        while True:  # counted, so that time in which this process was stopped does not count
            if answer.came.wait(_TICK_SECONDS):
                return answer.message()
            silent = silent + 1 if self._heard == heard else 0
            heard = self._heard
            if silent >= _SILENT_TICKS:
                self.kill(f"was stuck: no decode ended in {_SILENT_TICKS * _TICK_SECONDS:g} s")

    def _read(self, replies: BinaryIO) -> None:
        while (message := receive(replies)) is not None:
            self._heard += 1
            self.busy_seconds = message.head.get("busy", self.busy_seconds)
            if "log" in message.head:
                name, level, words = message.head["log"]
                logging.getLogger(name).log(level, "%s", words)
            elif message.head["id"] is not None:
                self._waiting.pop(message.head["id"]).settle(_found(message))
        self._die()

    def _die(self) -> None:
        """Find out of what, and tell all who wait."""
        self._process.kill()  # it may live on with its pipe closed
        code = self._process.wait()
        self._threads[0].join(_JOIN_SECONDS)
        words = " | ".join(self._last_words) or "none"
        how = self._why_killed or f"{_cause(code)}; its last words: {words}"
        for stream in _pipes(self._process):
            with contextlib.suppress(OSError):  # of stdin, what was not taken is flushed once more
                stream.close()
        with self._lock:
            self._death = how
            waiting = list(self._waiting.values())
            self._waiting.clear()
        for answer in waiting:
            answer.settle(DiedError(how))

    def _listen(self, words: BinaryIO) -> None:
        for line in words:
            said = line.decode("utf-8", "replace").strip()
            if said:
                self._last_words.append(said)
                log.debug("the model's process: %s", said)


def _pipes(process: "subprocess.Popen[bytes]") -> list[BinaryIO]:
    pipes = (process.stdin, process.stdout, process.stderr)
    return [cast("BinaryIO", pipe) for pipe in pipes if pipe is not None]


def _found(message: Message) -> Message | Exception:
    """Give a message, or the error that it tells of."""
    if "error" not in message.head:
        return message
    name, words = message.head["error"]
    error: Exception = getattr(errors, name)(words)
    return error


def _cause(code: int) -> str:
    """Name what a process died of, by its return code."""
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name
    hint = " (as the system does where memory is short)" if name == "SIGKILL" else ""
    return f"died of {name}{hint}"
