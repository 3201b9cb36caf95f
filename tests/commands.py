"""Commands, run in this process, which spares each the second that its imports take."""

import io
import logging
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple
from unittest import mock

from corral.cli import main

__all__ = ["Done", "corral"]


class Done(NamedTuple):
    """A command that was run."""

    returncode: int
    stdout: str
    stderr: str


def corral(*arguments: Any, stdin: str = "") -> Done:
    """Run `corral` as where there is no terminal; its log goes to standard error, as ever."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    code: Any = None
    root = logging.getLogger()
    before = root.handlers[:], root.level
    root.handlers[:] = []
    try:
        with (
            redirect_stdout(out),
            redirect_stderr(err),
            mock.patch.object(sys, "stdin", io.StringIO(stdin)),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("default")
            try:
                main([str(argument) for argument in arguments])
            except SystemExit as end:
                code = end.code
    finally:
        root.handlers[:], root.level = before
    return Done(code, *map(_text, (out, err)))


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return stream.buffer.getvalue().decode()
