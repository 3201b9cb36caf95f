"""Commands that begin quickly."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["imports"]


@contextmanager
def imports() -> Iterator[None]:
    """Import what a command needs without looking for garbage, of which importing makes none.

    The collector would go over a million new objects again and again, and once more when the
    process ends, a third of the time of a short command. What was imported it leaves out from then
    on.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
