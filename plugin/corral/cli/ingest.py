"""`ingest`, which is `corral ingest`."""

import logging
import sys
from pathlib import Path
from typing import Any

import click

from corral.cli.options import given, target_of, target_options

__all__ = ["ingest"]

_MODEL_OPTIONS = (
    click.option("--dim", type=int, metavar="N", help="Keep the first N dimensions (Matryoshka)."),
    click.option("--pooling-type", metavar="TYPE", help="mean, cls or last, over the model's own."),
    click.option(
        "--over-length",
        type=click.Choice(["error", "truncate", "window"]),
        help="What becomes of a chunk over the model's limit.",
    ),
    click.option("--query-prefix", metavar="TEXT", help="Put before queries, over the profile's."),
    click.option(
        "--document-prefix", metavar="TEXT", help="Put before documents, over the profile's."
    ),
    click.option("--n-contexts", type=int, metavar="N", help="Contexts that run side by side."),
    click.option("--n-threads", type=int, metavar="N", help="Threads of each context."),
    click.option("--n-ubatch", type=int, metavar="N", help="Most tokens of a decode."),
    click.option(
        "--pack-tokens", type=int, metavar="N", help="Most tokens of several texts' decode."
    ),
    click.option("--n-gpu-layers", type=int, metavar="N", help="Layers on a GPU; -1 for all."),
)


def _model_options(command: Any) -> Any:  # noqa: ANN401 - click's decorators are untyped
    for option in reversed(_MODEL_OPTIONS):
        command = option(command)
    return command


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--sink", default="qdrant", show_default=True, metavar="KIND", help="Kind of store.")
@target_options
@click.option(
    "--model",
    default="minilm",
    show_default=True,
    metavar="MODEL",
    help="A GGUF file, hf:owner/repo[:file-or-quant], or a built-in.",
)
@click.option(
    "--glob", "globs", multiple=True, metavar="PATTERN", help="Files to take; repeatable."
)
@click.option(
    "--max-file-size",
    type=int,
    metavar="BYTES",
    help="Skip larger files.  [default: 128 MiB]",
)
@click.option("--chunker", default="tokens", show_default=True, metavar="NAME", help="How to cut.")
@click.option(
    "--chunk-size",
    type=int,
    metavar="N",
    help="Most tokens of a chunk, prefix and special tokens included.  [default: the model's "
    "limit, at most 512]",
)
@click.option(
    "--chunk-overlap",
    type=int,
    default=0,
    show_default=True,
    metavar="N",
    help="Tokens that a chunk repeats of the one before.",
)
@_model_options
@click.option("-v", "--verbose", count=True, help="Say more; twice for all that llama.cpp says.")
def ingest(  # noqa: PLR0913, PLR0917 - click passes every option
    paths: tuple[Path, ...],
    sink: str,
    path: str | None,
    url: str | None,
    collection: str,
    model: str,
    globs: tuple[str, ...],
    max_file_size: int | None,
    chunker: str,
    chunk_size: int | None,
    chunk_overlap: int,
    verbose: int,
    **model_options: Any,  # noqa: ANN401 - each is typed above
) -> int:
    """Bring a collection up to date with the documents under PATHS.

    What is stored already, by the same settings, is not embedded again.
    """
    target = target_of(path, url, collection)
    if verbose:
        logging.getLogger().setLevel(logging.INFO if verbose == 1 else logging.DEBUG)
    from corral.cli.progress import show_summary, watch
    from corral.ingest import IngestOptions
    from corral.ingest import ingest as run

    options = IngestOptions(
        paths=paths,
        globs=globs,
        sink=sink,
        target=target,
        model=model,
        model_options=given(model_options),
        chunker=chunker,
        chunk_size=chunk_size,
        chunk_overlap=chunk_overlap,
        **given({"max_file_size": max_file_size}),
    )
    try:
        with watch(sys.stderr) as progress:
            report = run(options, progress=progress)
    except KeyboardInterrupt:
        click.echo(
            "What was acknowledged is stored; run the same command again to go on from there.",
            err=True,
        )
        raise
    show_summary(report)
    return 0 if report.all_stored else 1
