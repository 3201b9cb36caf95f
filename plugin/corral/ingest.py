"""Folders of documents into a collection: everything is settled, and then a run goes over them."""

from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace

from corral.errors import UsageError
from corral.fingerprint import Fingerprint
from corral.ingest_options import IngestOptions
from corral.pipeline import Progress
from corral.plugins import load_sink
from corral.prepare import ALWAYS_KNOWN
from corral.prune import vanished
from corral.readers.files import Readers
from corral.reindex import Replacement
from corral.report import Report
from corral.run import Run
from corral.run_models import RunModels
from corral.settling import fingerprint_of, settle_schema
from corral_sinks import Sink

__all__ = ["IngestOptions", "ingest"]


def ingest(
    options: IngestOptions,
    *,
    progress: Progress,
    report: Report | None = None,
    may_prune: Callable[[Sequence[str]], bool] = bool,
    readers: Readers | None = None,
) -> Report:
    """Bring a collection up to date with files.

    What is stored by the same settings is not embedded again. A collection of other settings is
    refused before any file is read.

    Args:
        options: what, how and where to.
        progress: is told how far it is.
        report: a new one to count in, for who wants to see it where this raises; None makes one.
        may_prune: is asked, before the run, with the sources of the files that are gone; where it
            says no, the run goes on and they stay.
        readers: that read the files, and stay open; None opens some by the options.

    Raises:
        UsageError: nothing is to be read, or options do not go together.
        ModelError: the model cannot be used.
        EngineError: the model gives no usable vector on this machine.
        CollectionError: the collection was made by other settings, or not by corral.
        SinkError: the store cannot be used.
        IncompleteRunError: the store or the model failed on the way; what the store acknowledged
            before is in it.
    """
    report = Report() if report is None else report
    report.strict, report.dry_run = options.strict, options.dry_run
    recipe = options.recipe
    _refuse_names_of_ours(options)
    files = options.discover()
    with (
        closing(load_sink(options.sink)(options.target)) as target,
        options.open_readers() if readers is None else nullcontext(readers) as opened,
    ):
        sink: Sink = target
        existing = sink.schema()
        with RunModels.open(options, recipe) as models:
            fingerprint = _fingerprint(options, models)
            replacement = None
            if options.reindex:
                replacement = Replacement.of(sink, existing, options.target, fingerprint)
                replacement.require_place(drop_old=options.drop_old)
                sink = replacement.sink
                existing = sink.schema()
            if existing is None and not options.dry_run:
                models.require_vectors()
            specs = models.embedder.specs
            is_new = settle_schema(sink, existing, options, specs, fingerprint)
            held = [] if is_new else [sink]
            if replacement is not None and replacement.old_key is not None:
                held.append(replacement.old)
            gone = _gone(held, options)
            if gone and not options.dry_run and not may_prune(gone):
                gone = []
            Run(options, files, opened, sink, models, report, gone, is_new=is_new).go(progress)
            if replacement is not None and not options.dry_run:
                replacement.finish(report, gone=gone, drop_old=options.drop_old)
    return report


def _fingerprint(options: IngestOptions, models: RunModels) -> Fingerprint:
    return fingerprint_of(
        models.embeddings.model,
        models.embedder,
        options.chunker,
        models.chunker,
        tenants=options.target.tenant is not None,
        names=models.recipe.names,
    )


def _refuse_names_of_ours(options: IngestOptions) -> None:
    if taken := sorted(ALWAYS_KNOWN.intersection(options.records.metadata_fields)):
        raise UsageError(
            f"metadata field {taken[0]!r} is a name that every chunk's metadata have already "
            f"({', '.join(sorted(ALWAYS_KNOWN))}); rename it in the files, or leave it out"
        )


def _gone(held: Sequence[Sink], options: IngestOptions) -> list[str]:
    """List the sources to prune; what a run's options leave out is not gone, what is ignored is."""
    if not options.prune or not held:
        return []
    found = replace(options, include=(), exclude=(), hidden=True).discover()
    roots = [*options.paths, *(options.listed or ())]
    return sorted({gone for sink in held for gone in vanished(sink.sources(), found, roots)})
