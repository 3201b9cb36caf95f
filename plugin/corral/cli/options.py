"""Options that several commands take."""

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import click

__all__ = [
    "CONTEXT_SETTINGS",
    "FilePath",
    "chunk_options",
    "given",
    "place_options",
    "target_of",
    "target_options",
]

CONTEXT_SETTINGS: Final = {"help_option_names": ["-h", "--help"]}
"""Of every command and group."""


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --path, --url, --collection and --tenant."""
    for option in (
        click.option("--tenant", metavar="NAME", help="Whose chunks alone are seen."),
        click.option("--collection", metavar="NAME", required=True, help="The collection."),
    ):
        command = option(command)
    return place_options(command)


def place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --path and --url."""
    for option in (
        click.option(
            "--url", metavar="URL", help="A Qdrant server; its key comes from QDRANT_API_KEY."
        ),
        click.option(
            "--path",
            type=FilePath(),
            metavar="DIR",
            help="The embedded Qdrant's folder.",
        ),
    ):
        command = option(command)
    return command


def chunk_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --chunker, --chunk-size, --chunk-size-unit, --chunk-overlap and --context."""
    for option in (
        click.option(
            "--context",
            type=click.Choice(["none", "headings"]),
            help="What the model reads before each chunk.  [default: headings; none with --late]",
        ),
        click.option(
            "--chunk-overlap",
            type=int,
            default=0,
            show_default=True,
            metavar="N",
            help="Tokens that a chunk repeats of the one before.",
        ),
        click.option(
            "--chunk-size-unit",
            metavar="UNIT",
            help="What the size is counted in, as tiktoken:cl100k_base.  [default: the model's "
            "tokens]",
        ),
        click.option(
            "--chunk-size",
            type=int,
            metavar="N",
            help="Most tokens of a chunk, prefix and special tokens included.  [default: the "
            "model's limit, at most 512]",
        ),
        click.option(
            "--chunker", default="auto", show_default=True, metavar="NAME", help="How to cut."
        ),
    ):
        command = option(command)
    return command


class FilePath(click.Path):
    """A path that is not empty: an empty one, as of a variable that is not set, means "."."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        """Read it."""
        if value == "":
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


def target_of(path: str | None, url: str | None, collection: str, tenant: str | None = None) -> Any:  # noqa: ANN401 - SinkOptions is imported late
    """Say where the collection is.

    Raises:
        click.UsageError: not exactly one of path and url is given.
    """
    from corral_sinks import SinkOptions

    if (path is None) == (url is None):
        both = "" if path is None else "; both were given"
        raise click.UsageError(
            f"give --path DIR for the embedded Qdrant, or --url URL of a server{both}"
        )
    if tenant == "":
        raise click.UsageError("--tenant is empty; give a name")
    return SinkOptions(collection=collection, url=url, path=path, tenant=tenant)


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the options that were not given."""
    return {name: value for name, value in options.items() if value is not None}
