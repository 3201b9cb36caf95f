"""How a module of ours is started in a process of its own.

It sees the modules that this process sees, and none of the folder that it happens to be in: that
may be a folder of strangers' documents, and hold a numpy.py. Keys that it does not need stay here.
"""

import os
import sys
from pathlib import Path
from typing import Final

__all__ = ["child_command", "child_environment"]

_SECRETS: Final = frozenset({"QDRANT_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})


def child_command(module: str, *arguments: str) -> list[str]:
    """Give the command that runs a module."""
    return [sys.executable, "-P", "-m", module, *arguments]


def child_environment() -> dict[str, str]:
    """Give the environment for it."""
    kept = {name: value for name, value in os.environ.items() if name not in _SECRETS}
    places = os.pathsep.join(place or str(Path.cwd()) for place in sys.path)
    return {**kept, "PYTHONPATH": places}
