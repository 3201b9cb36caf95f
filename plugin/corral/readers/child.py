"""The process that reads: `python -P -m corral.readers.child FD MEMORY SECONDS`."""

import resource
import signal
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Final

from corral.errors import ReadError
from corral.readers import calls, wire
from corral.readers.registry import readers

__all__ = ["main"]

_GRACE_SECONDS: Final = 5
_MOST_WRITTEN: Final = 2**20


def main(descriptor: int, memory: int, seconds: float) -> int:
    """Answer requests until the other side is gone.

    Args:
        descriptor: of our end of the pipe.
        memory: most bytes of address space.
        seconds: of CPU for a file, after which the kernel ends us: the one who started us, and
            watches the clock, may be dead.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who started us
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_WRITTEN, _MOST_WRITTEN))
    with Connection(descriptor) as connection:
        try:
            while True:
                request, raw = connection.recv_bytes(), connection.recv_bytes()
                _limit_cpu(seconds)
                for answer in _answers(request, raw):
                    connection.send_bytes(answer)
        except (EOFError, OSError):
            return 0
        except MemoryError:
            return 1


def _limit_cpu(seconds: float) -> None:
    soft = int(time.process_time() + seconds) + _GRACE_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))


def _answers(request: bytes, raw: bytes) -> Iterator[bytes]:
    name, file, options = wire.unpack_request(request, raw)
    try:
        for document in calls.documents(readers()[name], file, options):
            yield wire.pack_document(document)
    except ReadError as error:
        yield wire.pack_error(error)
    else:
        yield wire.END


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
