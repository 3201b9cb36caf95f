"""Open a GGUF in a child process first: what makes llama.cpp abort must not take ours along.

llama.cpp checks much of a file with assertions that end the process: odd hyperparameters, head
counts that do not divide, tensors of the wrong shape. No list of checks of ours could be whole, so
a file is opened and run once in a child, and a stamp in the cache folder says that it came through:
for these bytes, with this pooling type and this llama.cpp.
"""

import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

import numpy as np

from corral.engine.options import EngineOptions
from corral.engine.pool import Engine
from corral.engine.pooling import PoolingType
from corral.engine.spawn import child_command, child_environment
from corral.errors import CorralError, GGUFError
from corral.models import ResolvedModel
from corral.models.files import cache_dir

__all__ = ["vet"]

_SECONDS: Final = 600
_SHOWN_LINES: Final = 3


def vet(resolved: ResolvedModel, pooling_type: PoolingType) -> None:
    """See a model come through one run in a child process, once.

    Raises:
        GGUFError: the child died of a signal; llama.cpp's last words are in the message.
    """
    stamp = _stamp(resolved.sha256, pooling_type)
    if stamp.exists():
        return
    command = child_command(__name__, str(resolved.path), pooling_type.name)
    try:
        child = subprocess.run(  # noqa: S603 - our own module
            command, env=child_environment(), capture_output=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise GGUFError(
            f"{resolved.path} kept llama.cpp busy for {_SECONDS} s over three tokens; it is "
            "damaged, or this machine is far too small for it"
        ) from None
    if child.returncode < 0:
        last = child.stderr.decode("utf-8", "replace").strip().splitlines()[-_SHOWN_LINES:]
        name = signal.Signals(-child.returncode).name
        raise GGUFError(
            f"llama.cpp dies of {name} with {resolved.path}: the file is damaged, was converted "
            f"wrongly, or needs another llama.cpp. Its last words: {' | '.join(last) or 'none'}"
        )
    if child.returncode == 0:  # else the same error is raised in this process, as it should be
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.touch()


def _stamp(sha256: str, pooling_type: PoolingType) -> Path:
    name = f"{sha256}-{pooling_type.name.lower()}-{version('llama-cpp-python')}"
    return cache_dir() / "vetted" / name


def _run(path: str, pooling: str) -> int:
    try:
        with Engine(Path(path), EngineOptions(pooling_type=PoolingType[pooling])) as engine:
            engine.run([np.arange(n, dtype=np.int32) for n in (1, 2)])
    except CorralError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_run(*sys.argv[1:]))
