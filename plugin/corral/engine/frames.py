"""Messages between a process and its child over pipes: a head in JSON, then arrays. No pickle."""

import json
import struct
import threading
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Message", "Outbox", "receive"]

_SIZES: Final = struct.Struct("<QQ")


class Message(NamedTuple):
    """What was sent.

    Args:
        head: JSON.
        arrays: int32, int64 or float32, of any shape.
    """

    head: dict[str, Any]
    arrays: list[NDArray[Any]]


class Outbox:
    """The writing end of a pipe, for any number of threads: each message goes whole.

    Args:
        stream: unbuffered or buffered; it is flushed after each message.
    """

    def __init__(self, stream: BinaryIO) -> None:
        """Write to the stream."""
        self._stream = stream
        self._lock = threading.Lock()

    def send(self, head: Mapping[str, Any], arrays: Sequence[NDArray[Any]] = ()) -> None:
        """Send a message.

        Raises:
            OSError: the reading end is gone.
        """
        shapes = [[array.dtype.str, array.shape] for array in arrays]
        packed = json.dumps({**head, "arrays": shapes}).encode()
        bodies = [np.ascontiguousarray(array).tobytes() for array in arrays]
        with self._lock:
            self._stream.write(_SIZES.pack(len(packed), sum(map(len, bodies))))
            self._stream.write(packed)
            for body in bodies:
                self._stream.write(body)
            self._stream.flush()


def receive(stream: BinaryIO) -> Message | None:
    """Wait for the next message; None where the writing end is gone."""
    sizes = stream.read(_SIZES.size)
    if len(sizes) < _SIZES.size:
        return None
    n_head, n_body = _SIZES.unpack(sizes)
    packed, body = stream.read(n_head), bytearray(stream.read(n_body))
    if len(packed) < n_head or len(body) < n_body:
        return None
    head = json.loads(packed)
    arrays, at = [], 0
    for kind, shape in head.pop("arrays"):
        array = np.empty(shape, dtype=kind)
        array.reshape(-1).view(np.uint8)[:] = np.frombuffer(body, np.uint8, array.nbytes, at)
        arrays.append(array)
        at += array.nbytes
    return Message(head, arrays)
