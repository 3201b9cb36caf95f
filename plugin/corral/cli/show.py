"""`corral show`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import click

from corral.cli.options import CONTEXT_SETTINGS, given
from corral.cli.reading import reader_options, records_of

if TYPE_CHECKING:
    from corral_chunkers import Document

__all__ = ["show"]


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("source")
@reader_options
@click.option("--stdin-name", metavar="NAME", help="Names the format of standard input.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a document.")
def show(
    source: str,
    stdin_name: str | None,
    max_file_size: int | None,
    reader_seconds: float | None,
    reader_memory: int | None,
    *,
    as_json: bool,
    **options: Any,  # noqa: ANN401 - each is typed in cli/reading.py
) -> None:
    """Print the text that is read of SOURCE, into which a chunk's start and end count.

    SOURCE is a path, or a source as `corral search` prints it, from the folder that the ingest was
    given; "#" and a fragment choose one document of a file of several; "-" is standard input.
    """
    from corral.errors import UsageError
    from corral.readers.files import Readers

    path, fragment = _place(source)
    limits = given({"max_bytes": max_file_size, "seconds": reader_seconds, "memory": reader_memory})
    named = stdin_name if source == "-" and stdin_name else path.as_posix()
    with Readers(records_of(options), **limits) as readers:
        found = list(readers.read(path, named))
    chosen = [one for one in found if fragment is None or one.source.endswith(f"#{fragment}")]
    if not chosen:
        names = ", ".join(one.source.rpartition("#")[2] for one in found[:10])
        raise UsageError(
            f"{path} has no document {fragment!r}; it has {len(found):,}, such as: {names}"
        )
    for document in chosen:
        if as_json:
            click.echo(json.dumps(asdict(document), ensure_ascii=False))
        else:
            _print(document, alone=len(chosen) == 1)


def _place(source: str) -> tuple[Path, str | None]:
    """Find the file that a path or a source names, and the fragment behind it."""
    if Path(source).exists() or source == "-":
        return Path(source), None
    name, hash_sign, fragment = source.rpartition("#")
    name, wanted = (name, fragment) if hash_sign else (source, None)
    plain = Path(unquote(name, errors="surrogateescape"))
    return (plain if not Path(name).exists() and plain.exists() else Path(name)), wanted


def _print(document: "Document", *, alone: bool) -> None:
    """Print a text as it is; where there are several, each below its source."""
    if alone:
        click.echo(document.text, nl=False)
    else:
        click.echo(f"==> {document.source} <==\n{document.text}\n")
