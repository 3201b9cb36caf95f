"""argv to options to exit code, nothing else; what is heavy is imported by the command that runs.

Exit codes: 0 all is done; 1 it began, and something could not be done; 2 it could not begin.
"""

import io
import logging
import signal
import sys
import warnings
from collections.abc import Sequence
from types import FrameType
from typing import Final, NoReturn

import click

from corral.cli.chunk import chunk
from corral.cli.collections import collections, delete, info, verify
from corral.cli.ingest import ingest
from corral.cli.model import model
from corral.cli.options import CONTEXT_SETTINGS
from corral.cli.rerank import rerank
from corral.cli.search import search
from corral.cli.show import show
from corral.cli.transfer import copy, export, import_

__all__ = ["ingest_main", "main"]

_EXIT_INCOMPLETE: Final = 1
_EXIT_NOT_BEGUN: Final = 2
_EXIT_SIGNAL: Final = 128


@click.group(context_settings=CONTEXT_SETTINGS)
@click.version_option(package_name="corral")
def corral() -> None:
    """Take folders of documents into Qdrant with local GGUF models, and search them."""


_COMMANDS = (
    *(ingest, chunk, show, search, rerank),
    *(collections, info, verify, delete),
    *(copy, export, import_),
    model,
)
for _command in _COMMANDS:
    corral.add_command(_command)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run `corral` with the arguments (None: the process's own) and exit."""
    sys.exit(_run(corral, argv, name="corral"))


def ingest_main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run `ingest`, which is `corral ingest`, and exit."""
    sys.exit(_run(ingest, argv, name="ingest"))


def _run(command: click.Command, argv: Sequence[str] | None, *, name: str) -> int:
    """Run a command; give its exit code, with one clear message where it failed."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    signal.signal(signal.SIGTERM, _interrupt)
    warnings.showwarning = _show_warning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may know no more than ASCII
    try:
        return int(command.main(args=argv, prog_name=name, standalone_mode=False) or 0)
    except (click.exceptions.Abort, KeyboardInterrupt):
        return _say("stopped", _EXIT_SIGNAL + signal.SIGINT)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BrokenPipeError:
        return _EXIT_INCOMPLETE
    except Exception as error:
        code = _code_of(error)
        if code is None:
            raise
        return _say(f"error: {error}", code)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Show a warning as a message, not as a line of our code."""
    click.echo(f"warning: {message}", err=True)


def _say(message: str, code: int) -> int:
    click.echo(message, err=True)
    return code


def _code_of(error: Exception) -> int | None:
    """Give the exit code of an error that was raised on purpose; None for a bug."""
    from corral.errors import CorralError, IncompleteRunError
    from corral_chunkers import ChunkerError
    from corral_sinks import SinkError

    if isinstance(error, IncompleteRunError):
        return _EXIT_INCOMPLETE
    on_purpose = (CorralError, ChunkerError, SinkError)
    missing_extra = isinstance(error, ImportError) and "pip install" in str(error)
    return _EXIT_NOT_BEGUN if isinstance(error, on_purpose) or missing_extra else None


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
