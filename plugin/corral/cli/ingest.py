"""`ingest`, which is `corral ingest`."""

import json
import logging
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from corral.cli.options import (
    CONTEXT_SETTINGS,
    FilePath,
    chunk_options,
    given,
    target_of,
    target_options,
)
from corral.cli.reading import reader_options, reading_of, selection_options
from corral.cli.starting import imports

if TYPE_CHECKING:
    from corral.report import Report

__all__ = ["ingest"]

_SHOWN_GONE = 20
_REPORT_BEGIN = b'{\n "ok"'
_METRICS_BEGIN = b"# HELP corral_ingest_"

_MODEL_OPTIONS = (
    click.option("--dim", type=int, metavar="N", help="Keep the first N dimensions (Matryoshka)."),
    click.option(
        "--force-dim", is_flag=True, help="Take --dim even if the model was not trained for it."
    ),
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
    click.option(
        "--n-threads",
        type=int,
        metavar="N",
        help="Threads of each context; left out, the contexts share all cores.",
    ),
    click.option("--n-ubatch", type=int, metavar="N", help="Most tokens of a decode."),
    click.option(
        "--pack-tokens", type=int, metavar="N", help="Most tokens of several texts' decode."
    ),
    click.option("--n-gpu-layers", type=int, metavar="N", help="Layers on a GPU; -1 for all."),
    click.option(
        "--flash-attn/--no-flash-attn",
        default=None,
        help="Attention by llama.cpp's fused kernels.  [default: its choice]",
    ),
)


def _model_options(command: Any) -> Any:  # noqa: ANN401 - click's decorators are untyped
    for option in reversed(_MODEL_OPTIONS):
        command = option(command)
    return command


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("paths", nargs=-1, type=FilePath(path_type=Path, allow_dash=True))
@click.option("--sink", default="qdrant", show_default=True, metavar="KIND", help="Kind of store.")
@target_options
@click.option(
    "--model",
    default="minilm",
    show_default=True,
    metavar="MODEL",
    help="A GGUF file, hf:owner/repo[:file-or-quant], or a built-in.",
)
@selection_options
@reader_options
@chunk_options
@click.option("--multivector", is_flag=True, help="Add the rows of the chunks' tokens, for MaxSim.")
@click.option(
    "--heads",
    type=FilePath(exists=True, dir_okay=False),
    metavar="FILE",
    help="Projections trained beside the model (safetensors).",
)
@click.option(
    "--long-model",
    metavar="MODEL",
    help="Documents over the model's limit go to this one, whole.",
)
@click.option("--late", is_flag=True, help="Pool chunks from a pass over the whole document.")
@_model_options
@click.option(
    "--index",
    "indexes",
    multiple=True,
    metavar="FIELD:TYPE",
    help="A metadata field to index, for filters; repeatable.",
)
@click.option("--quantization", metavar="KIND", help="Of a small copy to search by; see the docs.")
@click.option("--datatype", metavar="TYPE", help="Of the vectors themselves.  [default: float32]")
@click.option(
    "--on-disk",
    multiple=True,
    type=click.Choice(["vectors", "payload"]),
    help="What is read from the disk, not held in memory; repeatable.",
)
@click.option(
    "--rescore-dim",
    metavar="N|full",
    help="Order what the first --dim dimensions find by the first N.",
)
@click.option(
    "--sparse",
    type=click.Choice(["bm25", "lexical"]),
    help="Add a vector of the chunks' words, for hybrid search; lexical: weighed by the heads.",
)
@click.option("--sparse-language", metavar="NAME", help="Of stop words and stems; or none.")
@click.option("--sparse-tokenizer", metavar="NAME", help="How words are found.")
@click.option("--sparse-ascii-folding", is_flag=True, help="Take accents away from words.")
@click.option("--prune", is_flag=True, help="Delete what is stored of files that are gone.")
@click.option("--yes", is_flag=True, help="Prune without asking first.")
@click.option(
    "--reindex",
    is_flag=True,
    help="Where the settings are others, build a collection beside the old one, then switch.",
)
@click.option("--drop-old", is_flag=True, help="Delete what --reindex has replaced.")
@click.option("--dry-run", is_flag=True, help="Only say what a run would do.")
@click.option(
    "--strict",
    is_flag=True,
    help="Exit with 1 also where a file was skipped or a chunk was truncated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object.")
@click.option(
    "--report",
    "report_file",
    type=FilePath(dir_okay=False, path_type=Path),
    metavar="FILE.json",
    help="Write what became of every file.",
)
@click.option(
    "--metrics",
    "metrics_file",
    type=FilePath(dir_okay=False, path_type=Path),
    metavar="FILE.prom",
    help="Write the totals for Prometheus.",
)
@click.option("-v", "--verbose", count=True, help="Say more; twice for all that llama.cpp says.")
def ingest(  # noqa: PLR0913, PLR0917 - click passes every option
    paths: tuple[Path, ...],
    sink: str,
    path: str | None,
    url: str | None,
    collection: str,
    model: str,
    chunker: str,
    chunk_size: int | None,
    chunk_size_unit: str | None,
    chunk_overlap: int,
    context: str | None,
    report_file: Path | None,
    metrics_file: Path | None,
    verbose: int,
    tenant: str | None,
    indexes: tuple[str, ...],
    quantization: str | None,
    datatype: str | None,
    on_disk: tuple[str, ...],
    rescore_dim: str | None,
    heads: str | None,
    long_model: str | None,
    sparse: str | None,
    sparse_language: str | None,
    sparse_tokenizer: str | None,
    *,
    sparse_ascii_folding: bool,
    late: bool,
    multivector: bool,
    prune: bool,
    yes: bool,
    reindex: bool,
    drop_old: bool,
    dry_run: bool,
    strict: bool,
    as_json: bool,
    **others: Any,  # noqa: ANN401 - each is typed above, or in cli/reading.py
) -> int:
    """Bring a collection up to date with the documents under PATHS.

    What is stored already, by the same settings, is not embedded again.
    """
    target = target_of(path, url, collection, tenant)
    _check_files(report_file, metrics_file, dry_run=dry_run)
    if drop_old and not reindex:
        raise click.UsageError("--drop-old deletes what --reindex has replaced; add --reindex")
    reading, model_options = reading_of(paths, others), others
    words = {
        "language": sparse_language,
        "tokenizer": sparse_tokenizer,
        "ascii_folding": sparse_ascii_folding or None,
    }
    if sparse != "bm25" and given(words):
        raise click.UsageError("--sparse-... are options of --sparse bm25; add it")
    short_dim = None
    if rescore_dim is not None:
        short_dim = model_options["dim"]
        model_options["dim"] = _rescore_dim(rescore_dim, short_dim)
    if yes and not prune:
        raise click.UsageError("--yes answers what --prune asks, and there is no --prune")
    asks = prune and not yes and not dry_run
    if asks and not sys.stdin.isatty():
        raise click.UsageError("--prune asks first, and there is no terminal here; add --yes")
    if verbose:
        logging.getLogger().setLevel(logging.INFO if verbose == 1 else logging.DEBUG)
    for name in ("sink", "_indexing"):  # how far the index is, which may take long
        logging.getLogger(f"corral_sinks.qdrant.{name}").setLevel(logging.INFO)
    with imports():
        from corral.cli.progress import watch
        from corral.ingest import IngestOptions
        from corral.ingest import ingest as run
        from corral.report import Report

    options = IngestOptions(
        **reading,
        sink=sink,
        target=target,
        model=model,
        model_options=given(model_options),
        chunker=chunker,
        chunk_size=chunk_size,
        chunk_size_unit=chunk_size_unit,
        chunk_overlap=chunk_overlap,
        context=context,
        indexes=dict(map(_index, indexes)),
        sparse=given(words) if sparse == "bm25" else None,
        lexical=sparse == "lexical",
        multi=multivector,
        heads=heads,
        long_model=long_model,
        short_dim=short_dim,
        storage=_storage(datatype, quantization, on_disk),
        payload_on_disk="payload" in on_disk or None,
        late=late,
        prune=prune,
        reindex=reindex,
        drop_old=drop_old,
        dry_run=dry_run,
        strict=strict,
    )
    report = Report()
    try:
        with watch(sys.stderr) as progress:
            may_prune = _ask if asks else bool
            run(options, progress=progress, report=report, may_prune=may_prune)
    except KeyboardInterrupt:
        click.echo(
            "What was acknowledged is stored; run the same command again to go on from there.",
            err=True,
        )
        report.error = report.error or "interrupted"
        raise
    except Exception as error:
        report.error = report.error or str(error)
        raise
    finally:
        _tell(report, collection, report_file, metrics_file, as_json=as_json)
    return 0 if report.all_stored else 1


def _index(text: str) -> tuple[str, str]:
    from corral_sinks import INDEX_TYPES

    field, _, kind = text.rpartition(":")
    if not field or kind not in INDEX_TYPES:
        raise click.UsageError(
            f"--index is FIELD:TYPE with a type of {', '.join(INDEX_TYPES)}; got {text!r}"
        )
    return field, kind


def _storage(datatype: str | None, quantization: str | None, on_disk: tuple[str, ...]) -> Any:  # noqa: ANN401 - Storage is imported late
    from corral_sinks import Storage

    if datatype is None and quantization is None and "vectors" not in on_disk:
        return None
    return Storage(
        datatype=datatype or "float32", quantization=quantization, on_disk="vectors" in on_disk
    )


def _rescore_dim(text: str, short_dim: int | None) -> int | None:
    """Read the dimensions to order by; None for all that the model gives."""
    if short_dim is None:
        raise click.UsageError("--rescore-dim orders what the first --dim N find; give --dim, too")
    if text == "full":
        return None
    try:
        return int(text)
    except ValueError as error:
        raise click.UsageError(f'--rescore-dim is a number or "full"; got {text!r}') from error


def _ask(gone: Sequence[str]) -> bool:
    """Ask whether to delete what is stored of these sources."""
    for source in gone[:_SHOWN_GONE]:
        click.echo(f"  {source}", err=True)
    if len(gone) > _SHOWN_GONE:
        click.echo(f"  and {len(gone) - _SHOWN_GONE:,} more", err=True)
    question = f"Delete what is stored of these {len(gone):,} files, which are gone?"
    return click.confirm(question, err=True)


def _check_files(report_file: Path | None, metrics_file: Path | None, *, dry_run: bool) -> None:
    for file, begin in ((report_file, _REPORT_BEGIN), (metrics_file, _METRICS_BEGIN)):
        if file is not None:
            _refuse_unwritable(file, begin)
    if report_file and metrics_file and report_file.resolve() == metrics_file.resolve():
        raise click.UsageError(f"--report and --metrics are both {report_file}; name two files")
    if dry_run and metrics_file:
        raise click.UsageError("--metrics tells of runs, and --dry-run is none; leave one out")


def _refuse_unwritable(file: Path, begin: bytes) -> None:
    """Say before the run, not after it, that there is no place for a file, or another one there."""
    try:
        with file.open("rb") as there:
            if (found := there.read(len(begin))) and found != begin:
                raise click.UsageError(
                    f"{file} is there and is none of an earlier run; it would be overwritten. "
                    "Take another name"
                )
    except OSError:
        pass
    if not file.parent.is_dir() or not os.access(file.parent, os.W_OK):
        raise click.UsageError(f"{file} cannot be written: {file.parent} is no folder to write to")


def _tell(
    report: "Report",
    collection: str,
    report_file: Path | None,
    metrics_file: Path | None,
    *,
    as_json: bool,
) -> None:
    """Print the summary, and write the files that were asked for.

    They also tell of a run that could not begin: who watches them must not see an older success.
    """
    from corral.cli.progress import summary_lines
    from corral.metrics import prometheus

    if as_json:
        click.echo(json.dumps(report.summary()))
    elif report.began:
        click.echo("\n".join(summary_lines(report)))
    if report_file is not None:
        _write(report_file, json.dumps(report.as_dict(), indent=1) + "\n")
    if metrics_file is not None:
        _write(metrics_file, prometheus(report, collection=collection, finished_at=time.time()))


def _write(file: Path, content: str) -> None:
    from corral.errors import IncompleteRunError
    from corral.models.files import atomic_target

    try:
        with atomic_target(file) as path:
            path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise IncompleteRunError(f"{file} cannot be written: {error.strerror or error}") from error
