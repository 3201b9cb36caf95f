"""`corral chunk`: how a file would be cut, to look at before anything is embedded."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from corral.cli.options import CONTEXT_SETTINGS, FilePath, chunk_options
from corral.cli.starting import imports

if TYPE_CHECKING:
    from corral_chunkers import Chunk

__all__ = ["chunk"]

_COLOURS: Final = ("cyan", "yellow")
"""Taken in turn, so that the cuts are seen."""


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("file", type=FilePath(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--model",
    default="minilm",
    show_default=True,
    metavar="MODEL",
    help="Whose tokens count: a GGUF file, hf:owner/repo[:file-or-quant], or a built-in.",
)
@chunk_options
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a line.")
def chunk(
    file: Path,
    model: str,
    chunker: str,
    chunk_size: int | None,
    chunk_size_unit: str | None,
    chunk_overlap: int,
    context: str | None,
    *,
    as_json: bool,
) -> None:
    """Print the chunks of FILE, as an ingest would make them."""
    with imports():
        from corral.chunking import make_chunker
        from corral.embeddings import GGUFEmbeddings
        from corral.readers.files import Readers

    with GGUFEmbeddings(model) as embeddings:
        made = make_chunker(
            embeddings,
            name=chunker,
            size=chunk_size,
            unit=chunk_size_unit,
            overlap=chunk_overlap,
            context=context,
        )
        show = _print_json if as_json else _print_for_reading
        with Readers() as readers:
            for document in readers.read(file, file.name):
                show(made.chunk(document))


def _print_json(chunks: "Iterable[Chunk]") -> None:
    for found in chunks:
        click.echo(json.dumps(_fields(found), ensure_ascii=False))


def _fields(found: "Chunk") -> dict[str, Any]:
    return {
        "start": found.start,
        "end": found.end,
        "n_tokens": found.n_tokens,
        "text": found.text,
        "heading_path": list(found.heading_path),
        "page": found.page,
        "language": found.language,
        "parent": found.parent,
        "context": found.context,
    }


def _print_for_reading(chunks: "Iterable[Chunk]") -> None:
    """Print chunks in turning colours, which click leaves out where there is no terminal."""
    for number, found in enumerate(chunks):
        place = " > ".join(found.heading_path)
        page = "" if found.page is None else f"  page {found.page}"
        head = f"{number}  {found.start}-{found.end}  {found.n_tokens} tokens{page}  {place}"
        click.secho(_printable(head.rstrip()), bold=True)
        colour = _COLOURS[number % len(_COLOURS)]
        for line in (found.context + found.text).splitlines():
            click.secho(_printable(line), fg=colour)
        click.echo()


def _printable(line: str) -> str:
    """Show what steers a terminal instead of obeying it."""
    return "".join(
        character if character.isprintable() or character == "\t" else f"\\x{ord(character):02x}"
        for character in line
    )
