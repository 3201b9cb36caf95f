"""The embedded engine's optimiser in a process of its own: it holds the GIL for minutes."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from corral_sinks import SinkError
from corral_sinks.qdrant._errors import Place

__all__ = ["optimize_apart"]

_CODE: Final = """
import os
import sys
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, 9)
if os.getppid() != int(sys.argv[2]):
    raise SystemExit("nobody waits for it")
from qdrant_edge import EdgeShard
shard = EdgeShard.load(sys.argv[1])
done = shard.optimize()
shard.flush()
shard.close()
print(int(done))
"""
"""Ends with its parent, however that ends: else it would keep the shard from the next run.

The engine holds the GIL, so that no thread could look after that; Linux does it by
PR_SET_PDEATHSIG (1) and SIGKILL (9), see prctl(2).
"""
_TELL_SECONDS: Final = 1.0


def optimize_apart(
    folder: Path, place: Place, *, tell: Callable[[], None], seconds: float = _TELL_SECONDS
) -> bool:
    """Optimise a shard that is closed here, and wait; False if nothing was to do.

    Whatever ends this ends the other process, too. That loses nothing: what is optimised is a copy.

    Args:
        folder: of the shard.
        place: for messages.
        tell: is called now and then.
        seconds: between two calls.

    Raises:
        SinkError: the engine failed; its own words are in the message.
    """
    command = [sys.executable, "-P", "-c", _CODE, str(folder), str(os.getpid())]
    with subprocess.Popen(  # noqa: S603 - our own code
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            said, complaint = _waited(child, tell, seconds)
        except BaseException:
            child.kill()
            raise
    if child.returncode:
        words = complaint.strip().splitlines()[-1:] or [f"exit code {child.returncode}"]
        raise SinkError(f"{place.name} could not be optimised: {words[0]}.")
    return said.strip() == "1"


def _waited(
    child: "subprocess.Popen[str]", tell: Callable[[], None], seconds: float
) -> tuple[str, str]:
    while True:
        try:
            return child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            tell()
