"""Options of the commands that read files: which of them, and how."""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from corral.cli.options import FilePath

__all__ = ["reader_options", "reading_of", "records_of", "selection_options"]

_STDIN: Final = "-"

_SELECTION: Final = (
    click.option(
        "--from-file",
        type=FilePath(path_type=Path, allow_dash=True),
        metavar="LIST",
        help="A file that names further PATHS, one a line; - is standard input.",
    ),
    click.option("--include", multiple=True, metavar="PATTERN", help="Files to take; repeatable."),
    click.option(
        "--exclude", multiple=True, metavar="PATTERN", help="Files and folders to leave out."
    ),
    click.option("--hidden", is_flag=True, help="Search hidden folders and virtual environments."),
    click.option("--no-ignore", is_flag=True, help="Take what .gitignore or .corralignore lists."),
    click.option(
        "--follow-symlinks", is_flag=True, help="Read what links lead to outside of PATHS, too."
    ),
    click.option(
        "--stdin-name", metavar="NAME", help="Source and format of standard input.  [default: -]"
    ),
)

_READERS: Final = (
    click.option(
        "--max-file-size",
        type=click.IntRange(min=1),
        metavar="BYTES",
        help="Skip larger files.  [default: 128 MiB]",
    ),
    click.option(
        "--text-field",
        "text_fields",
        multiple=True,
        metavar="NAME",
        help="Field of a CSV or JSON record that is its text.  [default: all, with their names]",
    ),
    click.option(
        "--metadata-field",
        "metadata_fields",
        multiple=True,
        metavar="NAME",
        help="Field of a record to keep in the metadata; repeatable.",
    ),
    click.option("--id-field", metavar="NAME", help="Field that names a record in its file."),
    click.option("--rows", type=int, metavar="N", help="Records of a document.  [default: 1]"),
    click.option(
        "--reader-seconds",
        type=float,
        metavar="S",
        help="Most that the reading of a file may take.  [default: 120]",
    ),
    click.option(
        "--reader-memory",
        type=int,
        metavar="BYTES",
        help="Most memory of the process that reads.  [default: 2 GiB]",
    ),
)


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what says which files are read."""
    return _added(command, _SELECTION)


def reader_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what says how files are read."""
    return _added(command, _READERS)


def _added(command: Callable[..., Any], options: tuple[Any, ...]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command


def records_of(options: dict[str, Any]) -> Any:  # noqa: ANN401 - ReaderOptions is imported late
    """Take what concerns files of records out of the options of the command line."""
    from corral.readers import ReaderOptions

    names = ("text_fields", "metadata_fields", "id_field", "rows")
    taken = {name: options.pop(name) for name in names}
    return ReaderOptions(**{name: value for name, value in taken.items() if value is not None})


def reading_of(paths: tuple[Path, ...], options: dict[str, Any]) -> Mapping[str, Any]:
    """Give the options of IngestOptions that say what is read and how, and take them out of these.

    Raises:
        click.UsageError: no path is given, or standard input is to be two things.
    """
    taken = {
        name: options.pop(name)
        for name in ("include", "exclude", "hidden", "no_ignore", "follow_symlinks", "stdin_name",
                     "max_file_size", "reader_seconds", "reader_memory")
    }  # fmt: skip
    from_file = options.pop("from_file")
    if not paths and from_file is None:
        raise click.UsageError("name at least one of PATHS, or a list of them with --from-file")
    if from_file == Path(_STDIN) and Path(_STDIN) in paths:
        raise click.UsageError("standard input cannot be both a document and --from-file's list")
    return {
        "paths": paths,
        "listed": None if from_file is None else _listed(from_file),
        "records": records_of(options),
        **{name: value for name, value in taken.items() if value is not None},
    }


def _listed(file: Path) -> list[Path]:
    """Read a list of paths, a line each, or ended by NUL as `find -print0` writes them."""
    try:
        raw = sys.stdin.buffer.read() if file == Path(_STDIN) else file.read_bytes()
    except OSError as error:
        raise click.UsageError(f"--from-file: {file}: {error.strerror or error}") from error
    lines = raw.split(b"\0") if b"\0" in raw else raw.splitlines()
    return [Path(os.fsdecode(line)) for line in lines if line]
