"""The child's side of a worker: an engine that answers over pipes until its parent is gone.

    python -P -m corral.engine.serving

The first message says which model and how; its answer, what the model is. Each further message is
a request with a number, answered under that number, in any order. Beside the answers go log records
and, every second in which a decode ended, a beat, so that the parent can tell slow from stuck.
"""

import contextlib
import logging
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from corral.engine.frames import Message, Outbox, receive
from corral.engine.options import EngineOptions
from corral.engine.pool import Engine
from corral.engine.pooling import PoolingType
from corral.errors import CorralError

__all__ = ["joined", "parted", "serve"]

_FACTS: Final = ("causal", "n_embd_out", "n_cls_out", "max_tokens")
_BEAT_SECONDS: Final = 1.0

_Answer = tuple[Mapping[str, Any], Sequence[NDArray[Any]]]


def serve(requests: BinaryIO, replies: BinaryIO, *, make_engine: Callable[..., Engine]) -> None:
    """Open a model and answer requests until there are no more.

    Args:
        requests: is read.
        replies: is written to.
        make_engine: makes the engine, as Engine's constructor does.
    """
    outbox = Outbox(replies)
    opening = receive(requests)
    if opening is None:
        return
    with _forwarded_log(outbox, opening.head["log_level"]):
        try:
            engine = make_engine(Path(opening.head["path"]), _options(opening.head["options"]))
        except CorralError as error:
            outbox.send({"id": 0, "error": _told(error)})
            return
        over = threading.Event()
        try:
            outbox.send({"id": 0, **{name: getattr(engine, name) for name in _FACTS}})
            threading.Thread(target=_beat, args=(engine, outbox, over), daemon=True).start()
            while (request := receive(requests)) is not None:
                work = (engine, outbox, request)
                threading.Thread(target=_answer, args=work, daemon=True).start()
        finally:
            over.set()


def _options(given: Mapping[str, Any]) -> EngineOptions:
    return EngineOptions(**{**given, "pooling_type": PoolingType(given["pooling_type"])})


def _answer(engine: Engine, outbox: Outbox, request: Message) -> None:
    """Do what was asked; what goes wrong is the answer, and not this process's end."""
    number = request.head["id"]
    try:
        head, arrays = _HANDLERS[request.head["what"]](engine, request)
    except Exception as error:  # noqa: BLE001 - told to the parent, which raises it
        head, arrays = {"error": _told(error)}, ()
    with contextlib.suppress(OSError):  # the parent is gone, and this process goes too
        outbox.send({"id": number, "busy": engine.busy_seconds, **head}, arrays)


def _told(error: Exception) -> list[str]:
    """Give an error's name and words; of a bug, where it happened."""
    if isinstance(error, CorralError):
        return [type(error).__name__, str(error)]
    return ["EngineError", "".join(traceback.format_exception(error)).strip()]


def _run(engine: Engine, request: Message) -> _Answer:
    rows = engine.run(parted(request.arrays))
    return {"defects": list(rows.defects.items())}, joined(rows.rows)


def _retune(engine: Engine, request: Message) -> _Answer:
    engine.retune(**request.head["setting"])
    return {}, ()


def _tokenize(engine: Engine, request: Message) -> _Answer:
    return {}, [engine.tokenize(request.head["text"])]


_HANDLERS: Final[Mapping[str, Callable[[Engine, Message], _Answer]]] = {
    "run": _run,
    "retune": _retune,
    "tokenize": _tokenize,
}


def joined(several: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Put arrays that differ at most in their first length into one, and the lengths into another.

    Args:
        several: at least one; (n, ...) each.
    """
    return [np.concatenate(several), np.asarray(list(map(len, several)), dtype=np.int64)]


def parted(two: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Undo `joined`."""
    whole, lengths = two
    return np.split(whole, np.cumsum(lengths)[:-1])


def _beat(engine: Engine, outbox: Outbox, over: threading.Event) -> None:
    """Tell of decodes that ended."""
    before = engine.n_decodes
    with contextlib.suppress(OSError):
        while not over.wait(_BEAT_SECONDS):
            if before != (before := engine.n_decodes):
                outbox.send({"id": None, "busy": engine.busy_seconds})


class _LogForwarder(logging.Handler):
    """Sends log records to the parent, whose handlers they are for."""

    def __init__(self, outbox: Outbox) -> None:
        super().__init__()
        self._outbox = outbox

    def emit(self, record: logging.LogRecord) -> None:
        told = [record.name, record.levelno, record.getMessage()]
        with contextlib.suppress(OSError):
            self._outbox.send({"id": None, "log": told})


@contextlib.contextmanager
def _forwarded_log(outbox: Outbox, level: int) -> Iterator[None]:
    ours = logging.getLogger("corral")
    forwarder = _LogForwarder(outbox)
    ours.addHandler(forwarder)
    ours.setLevel(level)
    try:
        yield
    finally:
        ours.removeHandler(forwarder)


def main(make_engine: Callable[..., Engine] = Engine) -> None:
    """Serve the parent over stdin and stdout, and end at once when it is gone.

    Args:
        make_engine: makes the engine, as Engine's constructor does.
    """
    # A terminal's Ctrl-C, and the SIGTERM of who ends a whole group, reach this process too. The
    # parent decides.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # What libraries print goes to stderr: stdout is the parent's.
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        serve(requests, replies, make_engine=make_engine)
    except BaseException:  # noqa: BLE001 - it is this process's last word
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # whatever llama.cpp is at


if __name__ == "__main__":
    main()
