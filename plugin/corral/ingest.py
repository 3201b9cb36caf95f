"""Folders of documents into a collection: what is settled before the run, and the run itself."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from corral.calibration import recall
from corral.chunking import ModelTokenizer, make_chunker
from corral.discovery import SkippedFile, SourceFile, discover
from corral.embedders import Embedder
from corral.embeddings import GGUFEmbeddings
from corral.engine.pooling import PoolingType
from corral.errors import (
    CollectionError,
    CorralError,
    IncompleteRunError,
    PoolingError,
    UsageError,
)
from corral.fingerprint import METADATA_KEY, SCHEMA_VERSION, TENANTS, Fingerprint
from corral.pipeline import Progress, Writer, run_pipeline
from corral.plan import plan
from corral.plugins import load_chunker, load_sink
from corral.prepare import ALWAYS_KNOWN, FileLeft, FileRead, Pending, Stored, prepare
from corral.prune import vanished
from corral.readers import ReaderOptions
from corral.readers.files import DEFAULT_MEMORY, DEFAULT_SECONDS, Readers
from corral.readers.registry import suffixes
from corral.reading import DEFAULT_MAX_BYTES, STDIN
from corral.recipe import Recipe
from corral.reindex import Replacement
from corral.report import Report
from corral.routing import Router, RoutingChunker
from corral.verify import verify
from corral_chunkers import Chunker, ChunkerError, Document
from corral_sinks import Schema, Sink, SinkError, SinkOptions, Storage, Tell, without_storage
from corral_sinks.qdrant import field_path

__all__ = ["IngestOptions", "fingerprint_of", "ingest"]

log = logging.getLogger(__name__)

_Event = Pending | FileRead | FileLeft
_FILE_FIELDS: Final = ("metadata.source", "metadata.file")
"""Fields that the store is asked by for what it holds of a file."""
_WORTH_CALIBRATING: Final = 2**19
"""Bytes whose embedding takes a small model many times a calibration's two seconds."""
_COMMON: Final = ("over_length", "n_contexts", "n_threads", "n_gpu_layers")


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions:
    """What to ingest, how, and where to.

    Args:
        paths: files and folders.
        include: patterns that files must match, as in a .gitignore; none takes all kinds of files
            that can be read.
        exclude: patterns of files and folders that are left out.
        hidden: search hidden files and folders and virtual environments, too.
        no_ignore: take what .gitignore and .corralignore leave out.
        listed: further paths; sources are then relative to the current folder, if all is in it.
        stdin_name: source of what standard input (the path "-") brings; its end names the format.
        follow_symlinks: read what links lead to outside of the folders, too.
        max_file_size: bytes of the largest file to read.
        records: how files of records are read.
        reader_seconds: most that the reading of one file may take.
        reader_memory: most bytes of address space of the process that reads.
        sink: name of the kind of store.
        target: where the store is.
        model: as for GGUFEmbeddings.
        model_options: further keyword arguments of GGUFEmbeddings.
        chunker: name of the way to cut.
        chunk_size: most tokens of a chunk, prefix and special tokens included; None takes what
            the model takes, with `late` half of it, but no more than 512.
        chunk_size_unit: what the size is counted in, as "tiktoken:cl100k_base"; None for the
            model's tokens.
        chunk_overlap: tokens of a chunk that repeat the end of the one before.
        context: what the model reads before each chunk: "none", or "headings" for the title and
            the headings over it; None takes the headings, but with `late`.
        sparse: options of a sparse vector for BM25 beside the dense one (language, tokenizer,
            ascii_folding); None makes none.
        indexes: metadata fields to index, and the type of each.
        short_dim: leading dimensions of a second, short vector that finds chunks for the model's
            own to order; None makes none.
        storage: how a new collection keeps its dense vectors; None as they are, and leaves one
            that is there as it is.
        payload_on_disk: whether a new collection reads payloads from the disk; None leaves it to
            the store.
        dry_run: read and compare everything, but embed, write and delete nothing.
        strict: let a skipped file or a truncated chunk count as a failure.
        prune: delete in the end the chunks of files that are gone.
        reindex: where the collection is of other settings, build one beside it and let its name
            lead there once all is stored.
        drop_old: delete, in the end of a `reindex`, what was replaced by then.
        late: pool a chunk's vector from a pass over its whole document.
        multi: give each chunk a multivector, too.
        lexical: give each chunk a sparse vector of the heads' weights, too.
        heads: safetensors file of projections that were trained beside the model.
        long_model: model with pooling LAST that documents over the first one's limit go to, whole.
        isolate: run the model in a process of its own, which may die without ending the run.
    """

    paths: Sequence[Path]
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    hidden: bool = False
    no_ignore: bool = False
    listed: Sequence[Path] | None = None
    stdin_name: str = str(STDIN)
    follow_symlinks: bool = False
    max_file_size: int = DEFAULT_MAX_BYTES
    records: ReaderOptions = field(default_factory=ReaderOptions)
    reader_seconds: float = DEFAULT_SECONDS
    reader_memory: int = DEFAULT_MEMORY
    sink: str = "qdrant"
    target: SinkOptions
    model: str = "minilm"
    model_options: Mapping[str, Any] = field(default_factory=dict)
    chunker: str = "auto"
    chunk_size: int | None = None
    chunk_size_unit: str | None = None
    chunk_overlap: int = 0
    context: str | None = None
    indexes: Mapping[str, str] = field(default_factory=dict)
    sparse: Mapping[str, Any] | None = None
    short_dim: int | None = None
    storage: Storage | None = None
    payload_on_disk: bool | None = None
    dry_run: bool = False
    strict: bool = False
    prune: bool = False
    reindex: bool = False
    drop_old: bool = False
    late: bool = False
    multi: bool = False
    lexical: bool = False
    heads: str | None = None
    long_model: str | None = None
    isolate: bool = True

    @property
    def recipe(self) -> Recipe:
        """Which vectors the collection gets.

        Raises:
            UsageError: options that do not go together.
        """
        return Recipe(
            short_dim=self.short_dim,
            bm25=self.sparse,
            late=self.late,
            multi=self.multi,
            lexical=self.lexical,
            heads=self.heads,
            long_model=self.long_model,
        )


def ingest(
    options: IngestOptions,
    *,
    progress: Progress,
    report: Report | None = None,
    may_prune: Callable[[Sequence[str]], bool] = bool,
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

    Raises:
        UsageError: nothing is to be read, or options do not go together.
        ModelError: the model cannot be used.
        CollectionError: the collection was made by other settings, or not by corral.
        SinkError: the store cannot be used.
        IncompleteRunError: the store or the model failed on the way; what the store acknowledged
            before is in it.
    """
    report = Report() if report is None else report
    report.strict, report.dry_run = options.strict, options.dry_run
    recipe = options.recipe
    _refuse_own_names(options.records.metadata_fields)
    files = _discover(options)
    with ExitStack() as opened:
        sink = opened.enter_context(closing(_make_sink(options)))
        readers = opened.enter_context(_make_readers(options))
        existing = sink.schema()
        with GGUFEmbeddings(
            options.model,
            token_rows=recipe.token_rows,
            isolate=options.isolate,
            **options.model_options,
        ) as embeddings:
            if embeddings.pooling_type in (PoolingType.NONE, PoolingType.RANK):
                raise PoolingError(
                    f"pooling_type {embeddings.pooling_type.name.lower()} gives no vector of a "
                    'whole text to store; take a model that pools by "mean", "cls" or "last"'
                )
            chunker = _make_chunker(options, embeddings)
            router = None
            if options.long_model is not None:
                far = opened.enter_context(_open_far(options, options.long_model))
                router = Router(embeddings, far)
                chunker = RoutingChunker(chunker, _chunker_of_long(far), router)
            embedder = recipe.embedder(embeddings, router)
            fingerprint = fingerprint_of(
                embeddings.model,
                embedder,
                options.chunker,
                chunker,
                tenants=options.target.tenant is not None,
                names=recipe.names,
            )
            replacement = None
            if options.reindex:
                replacement = Replacement.of(sink, existing, options.target, fingerprint)
                replacement.require_place(drop_old=options.drop_old)
                sink = replacement.sink
                existing = sink.schema()
            is_new = _settle_schema(sink, existing, options, embedder, fingerprint)
            gone = [] if is_new else _gone(sink, options)
            if gone and not options.dry_run and not may_prune(gone):
                gone = []
            run = _Run(
                options,
                files,
                readers,
                sink,
                embeddings,
                router,
                embedder,
                chunker,
                report,
                gone,
                is_new=is_new,
            )
            run.go(progress)
            if replacement is not None and not options.dry_run:
                replacement.finish(report, drop_old=options.drop_old)
    return report


def _discover(options: IngestOptions) -> Sequence[SourceFile | SkippedFile]:
    return discover(
        options.paths,
        options.include,
        exclude=options.exclude,
        hidden=options.hidden,
        no_ignore=options.no_ignore,
        listed=options.listed,
        stdin_name=options.stdin_name,
        suffixes=suffixes(),
        follow_symlinks=options.follow_symlinks,
    )


def _refuse_own_names(fields: Sequence[str]) -> None:
    if taken := sorted(ALWAYS_KNOWN.intersection(fields)):
        raise UsageError(
            f"metadata field {taken[0]!r} is a name that every chunk's metadata have already "
            f"({', '.join(sorted(ALWAYS_KNOWN))}); rename it in the files, or leave it out"
        )


def _make_readers(options: IngestOptions) -> Readers:
    return Readers(
        options.records,
        max_bytes=options.max_file_size,
        seconds=options.reader_seconds,
        memory=options.reader_memory,
    )


def _make_sink(options: IngestOptions) -> Sink:
    return load_sink(options.sink)(options.target)


def _make_chunker(options: IngestOptions, embeddings: GGUFEmbeddings) -> Chunker:
    return make_chunker(
        embeddings,
        name=options.chunker,
        size=options.chunk_size,
        unit=options.chunk_size_unit,
        overlap=options.chunk_overlap,
        context=options.context,
        late=options.late,
        may_exceed="over_length" in options.model_options,
    )


def _open_far(options: IngestOptions, model: str) -> GGUFEmbeddings:
    """Open the model for long documents, with the options that are of no model's own."""
    given = options.model_options
    common = {name: given[name] for name in _COMMON if name in given}
    return GGUFEmbeddings(model, isolate=options.isolate, **common)


def _chunker_of_long(far: GGUFEmbeddings) -> Chunker:
    """Make what leaves a long document whole, or cuts one that is too long even for its model."""
    return load_chunker("tokens")(ModelTokenizer(far), size=far.max_tokens, overlap=0)


def fingerprint_of(
    model: str,
    embedder: Embedder,
    chunker_name: str,
    chunker: Chunker,
    *,
    tenants: bool = False,
    names: Mapping[str, str] | None = None,
) -> Fingerprint:
    """Name every setting that a vector or a chunk depends on."""
    chunker_settings = {
        f"chunker.{name}": value for name, value in sorted(chunker.settings.items())
    }
    return Fingerprint(
        model=model,
        fields={
            "schema_version": SCHEMA_VERSION,
            **embedder.settings,
            "chunker": chunker_name,
            **chunker_settings,
            **({TENANTS: True} if tenants else {}),
        },
        names=names or {},
    )


def _settle_schema(
    sink: Sink,
    existing: Schema | None,
    options: IngestOptions,
    embedder: Embedder,
    fingerprint: Fingerprint,
) -> bool:
    """Create the collection, or refuse one that is of other settings; say whether it is new."""
    collection = options.target.collection
    wanted = Schema(
        vectors={
            name: replace(params, storage=options.storage or params.storage)
            for name, params in embedder.specs.dense.items()
        },
        payload_on_disk=options.payload_on_disk,
        sparse_vectors=embedder.specs.sparse,
        metadata=fingerprint.to_metadata(),
        indexes={
            **dict.fromkeys(_FILE_FIELDS, "keyword"),
            **({field_path("tenant"): "keyword"} if options.target.tenant is not None else {}),
            **{field_path(name): kind for name, kind in options.indexes.items()},
        },
        tenants=options.target.tenant is not None,
    )
    if existing is None:
        existing = None if options.dry_run else _create(sink, wanted)
    if existing is None:
        return True
    held = Fingerprint.from_metadata(existing.metadata, collection=collection)
    held.require_tenant(options.target.tenant, collection=collection)
    held.require_equal(fingerprint, collection=collection)
    _require_vectors(existing, wanted, options)
    if not options.dry_run:
        for name, kind in wanted.indexes.items():
            sink.index(name, kind)
    return False


def _require_vectors(held: Schema, wanted: Schema, options: IngestOptions) -> None:
    """Refuse a collection whose vectors are not those that its fingerprint stands for."""
    collection = options.target.collection
    dense = held.vectors if options.storage else without_storage(held)
    kinds = (dense, wanted.vectors), (held.sparse_vectors, wanted.sparse_vectors)
    for there, ours in kinds:
        if any(there.get(name) != params for name, params in ours.items()):
            raise CollectionError(
                f"collection {collection!r} has the vectors {dict(there)}; this run writes "
                f"{dict(ours)}. Take another --collection"
            )


def _create(sink: Sink, wanted: Schema) -> Schema | None:
    """Create the collection; give the schema where another run was quicker to do so."""
    try:
        sink.create(wanted)
    except SinkError:
        made = sink.schema()
        if made is None or METADATA_KEY not in made.metadata:
            raise
        return made
    return None


def _gone(sink: Sink, options: IngestOptions) -> list[str]:
    """List the sources to prune; what a run's options leave out is not gone, what is ignored is."""
    if not options.prune:
        return []
    found = _discover(replace(options, include=(), exclude=(), hidden=True))
    return vanished(sink.sources(), found, [*options.paths, *(options.listed or ())])


@dataclass(frozen=True, slots=True)
class _Run:
    """Everything is settled, and nothing is read yet."""

    options: IngestOptions
    files: Sequence[SourceFile | SkippedFile]
    readers: Readers
    sink: Sink
    embeddings: GGUFEmbeddings
    router: Router | None
    embedder: Embedder
    chunker: Chunker
    report: Report
    gone: Sequence[str]
    is_new: bool
    lock: threading.Lock = field(default_factory=threading.Lock)

    def go(self, progress: Progress) -> None:
        """Read, chunk, embed and store all of it; or, in a dry run, see what that would be."""
        report = self.report
        sizes = {file.source: _size(file.path) for file in self.files}
        report.began = True
        report.files_total, report.bytes_total = len(self.files), sum(sizes.values())
        started, busy = time.monotonic(), self._busy_seconds
        try:
            if self.options.dry_run:
                self._plan(sizes, progress)
            else:
                self._update(sizes, progress)
        except (CorralError, ChunkerError, SinkError) as error:
            report.error = str(error)
            raise IncompleteRunError(
                f"{error}\n{report.embedded:,} chunks are stored; run the same command again to go "
                "on from there."
            ) from error
        except KeyboardInterrupt:
            report.error = "interrupted"
            raise
        except BaseException as error:
            report.error = str(error) or type(error).__name__
            raise
        finally:
            report.seconds = time.monotonic() - started
            report.busy_seconds = self._busy_seconds - busy
            report.n_contexts = self.embeddings.n_contexts
            report.model_deaths = self.embeddings.deaths + (
                0 if self.router is None else self.router.far.deaths
            )
            if self.router is not None:
                report.routed, report.routed_to = self.router.n_long, self.router.reason

    @property
    def _busy_seconds(self) -> float:
        far = 0.0 if self.router is None else self.router.far.busy_seconds
        return self.embeddings.busy_seconds + far

    def _update(self, sizes: Mapping[str, int], progress: Progress) -> None:
        before = self.sink.count()
        if self.is_new:
            self.sink.defer_indexing()
        self._store(sizes, progress)
        self._prune()
        self.sink.optimize(self._tells_indexing(progress))
        verify(self.sink, self.report, before=before)

    def _tells_indexing(self, progress: Progress) -> Tell:
        report = self.report

        def tell(indexed: int, total: int) -> None:
            report.indexed, report.to_index = indexed, total
            progress(report, files_done=report.files_total, bytes_done=report.bytes_total)

        return tell

    def _store(self, sizes: Mapping[str, int], progress: Progress) -> None:
        writer = Writer(self.sink, self.lock, self.report, sizes=sizes)
        run_pipeline(
            self._calibrated(self._prepared()),
            embed=self.embedder.embed,
            writer=writer,
            progress=progress,
        )

    def _calibrated(self, prepared: Iterator[_Event]) -> Iterator[_Event]:
        """Pass on what is prepared; before the first chunk, when nobody embeds yet, calibrate."""
        wanted = self.report.bytes_total >= _WORTH_CALIBRATING
        for event in prepared:
            if wanted and isinstance(event, Pending):
                self.embeddings.calibrate()
                if self.router is not None:
                    self.router.far.calibrate()
                wanted = False
            yield event

    def _prune(self) -> None:
        """Delete what is of files that are gone, once all of the others is stored."""
        report = self.report
        if self.gone and (report.files["failed"] or report.quarantined):
            log.warning(
                "not pruned: %d files are gone, and what could not be stored may be theirs",
                len(self.gone),
            )
            return
        for source in self.gone:
            ids = list(self.sink.stored(source))
            if not self.options.dry_run:
                self.sink.delete(ids)
                log.info("pruned %s: %d chunks", source, len(ids))
            report.deleted += len(ids)
            report.pruned.append(source)
        if self.gone and not self.options.dry_run:
            self.sink.flush()

    def _plan(self, sizes: Mapping[str, int], progress: Progress) -> None:
        plan(
            self._prepared(),
            self.report,
            vector_bytes=self.embedder.specs.n_bytes,
            sizes=sizes,
            progress=progress,
        )
        self._prune()
        known = recall(str(self.embeddings.settings["model_sha256"]))
        if known is not None:
            self.report.expected_seconds = self.report.tokens / known.trials[known.setting]

    def _prepared(self) -> Iterator[_Event]:
        return prepare(
            self.files,
            readers=self.readers,
            chunker=self.chunker,
            model_of=self._model_of,
            whole_document=self.embedder.whole_document,
            stored=self._stored,
            tenant=self.options.target.tenant,
        )

    def _model_of(self, document: Document) -> str:
        return self.embeddings.model if self.router is None else self.router.model_of(document)

    def _stored(self, source: str) -> Stored:
        with self.lock:
            return {} if self.is_new else self.sink.stored(source)


def _size(path: Path) -> int:
    """Size in bytes, for the progress; a file that cannot be asked counts nothing."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
