"""What an ingest is told: which files, how they are read, cut and embedded, and where to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corral.discovery import SkippedFile, SourceFile, discover
from corral.readers import ReaderOptions
from corral.readers.files import DEFAULT_MEMORY, DEFAULT_SECONDS, Readers
from corral.readers.registry import suffixes
from corral.reading import DEFAULT_MAX_BYTES, STDIN
from corral.recipe import Recipe
from corral_sinks import SinkOptions, Storage

__all__ = ["IngestOptions"]


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

    def discover(self) -> Sequence[SourceFile | SkippedFile]:
        """List the files to read, and those that are left out, with the reason.

        Raises:
            UsageError: a path is not there, or there is nothing to read.
        """
        return discover(
            self.paths,
            self.include,
            exclude=self.exclude,
            hidden=self.hidden,
            no_ignore=self.no_ignore,
            listed=self.listed,
            stdin_name=self.stdin_name,
            suffixes=suffixes(),
            follow_symlinks=self.follow_symlinks,
        )

    def open_readers(self, *, keeps_stdin: bool = False) -> Readers:
        """Make what reads the files; close it.

        Args:
            keeps_stdin: whether standard input can be read more than once.
        """
        return Readers(
            self.records,
            max_bytes=self.max_file_size,
            seconds=self.reader_seconds,
            memory=self.reader_memory,
            keeps_stdin=keeps_stdin,
        )
