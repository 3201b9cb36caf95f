"""The child's side of a worker whose engine dies of sequences that hold a poisonous token.

TEST_POISON in the environment is a JSON object: token id to what it does.
"""

import ctypes
import json
import os
import signal
import time
from pathlib import Path

import numpy as np

from corral.engine import _llama, serving
from corral.engine.pool import Engine


def _assertion(engine: Engine) -> None:
    """Let ggml's own assertion fail."""
    _llama.Context._check = lambda *_: None
    run, n = super(Poisoned, engine).run, engine.max_tokens
    engine.max_tokens = 10 * n
    run([np.full(5 * n, 7, np.int32)])


def _hang(_: Engine) -> None:
    while True:
        time.sleep(1)


def _once(_: Engine) -> None:
    """Be killed, unless it happened before."""
    try:
        Path(os.environ["TEST_KILLED"]).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def _beat(engine: Engine) -> None:
    """Take long, and end decodes meanwhile."""
    for _ in range(8):
        time.sleep(0.5)
        engine._drivers[0].n_decodes += 1


def _spoil(value: float) -> None:
    """Let every row be of one value from here on, as a faulty kernel does."""
    right = _llama.Context.pooled_row
    _llama.Context.pooled_row = lambda *given: np.full_like(right(*given), value)


DEATHS = {
    "abort": lambda _: os.abort(),
    "assertion": _assertion,
    "segfault": lambda _: ctypes.string_at(0),
    "memory": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "once": _once,
    "exit": lambda _: os._exit(3),
    "hang": _hang,
    "slow": _beat,
    "nan": lambda _: _spoil(np.nan),
    "zero": lambda _: _spoil(0.0),
}
POISON = {int(token): DEATHS[what] for token, what in json.loads(os.environ["TEST_POISON"]).items()}


class Poisoned(Engine):
    """An engine that some sequences are the end of."""

    def run(self, sequences):
        """Run what is harmless."""
        for token in {int(token) for ids in sequences for token in ids} & POISON.keys():
            POISON[token](self)
        return super().run(sequences)


if __name__ == "__main__":
    serving.main(Poisoned)
