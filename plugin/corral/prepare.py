"""From files to chunks that want vectors, and to what else the store must do for each file."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from corral.discovery import SkippedFile, SourceFile
from corral.errors import EmptyTextError, NotTextError, ReadError
from corral.identity import ChunkIds, content_hash
from corral.readers.files import Readers
from corral.report import FileReport, FileStatus
from corral.sealing import SEAL, is_sealed, place_of, seal
from corral_chunkers import Chunk, Chunker, ChunkerError, Document

__all__ = ["ALWAYS_KNOWN", "FileLeft", "FileRead", "Pending", "Stored", "prepare"]

Stored = Mapping[str, Mapping[str, Any]]
"""Payload metadata by id, of what the store holds of one file."""


ALWAYS_KNOWN: Final = frozenset({
    "chunk_index", "content_hash", "end", "file", SEAL, "model", "n_tokens", "reader", "record",
    "source", "start", "tenant", "truncated",
})  # fmt: skip
"""Names of metadata that no field of a record may take."""

_MAY_GO: Final = frozenset(
    {"file", SEAL, "title", "heading_path", "page", "language", "parent", "context"}
)
"""Metadata of ours that a chunk may have had and have no more."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A chunk that wants vectors.

    Args:
        file: that it is from.
        document: what was read of the file, whole.
        chunk: of the document.
        id: of the record.
        metadata: of the record's payload.
    """

    file: SourceFile
    document: Document
    chunk: Chunk
    id: str
    metadata: Mapping[str, Any]

    @property
    def embedded_text(self) -> str:
        """What the model reads behind its prefix."""
        return self.chunk.context + self.chunk.text


@dataclass(frozen=True, slots=True)
class FileRead:
    """A file is read and chunked.

    Args:
        file: which.
        n_pending: its chunks that want vectors; each was yielded before.
        n_reused: its chunks that the store has.
        moved: payloads to replace, by id, of reused chunks that stand elsewhere now.
        stale: ids in the store that the file no longer has.
        began: when it was opened, by `time.monotonic`.
        empty: why there is no text in it, where its reader says so.
    """

    file: SourceFile
    n_pending: int
    n_reused: int
    moved: Mapping[str, Mapping[str, Any]]
    stale: Sequence[str]
    began: float
    empty: str | None = None

    @property
    def n_chunks(self) -> int:
        """Its chunks."""
        return self.n_pending + self.n_reused

    @property
    def status(self) -> FileStatus:
        """How the file ends if nothing goes wrong."""
        if not self.n_chunks:
            return "skipped"
        return "stored" if self.n_pending or self.moved or self.stale else "unchanged"

    @property
    def reason(self) -> str | None:
        """Why it is skipped."""
        return None if self.n_chunks else self.empty or "there is no text in it"


@dataclass(frozen=True, slots=True)
class FileLeft:
    """A file could not be read, or is none that is wanted; what the store has of it stays."""

    file: SourceFile | SkippedFile
    failed: bool
    reason: str
    began: float

    def entry(self) -> FileReport:
        """Tell what became of the file."""
        return FileReport(
            source=self.file.source,
            status="failed" if self.failed else "skipped",
            seconds=time.monotonic() - self.began,
            error=self.reason,
        )


def prepare(
    files: Iterable[SourceFile | SkippedFile],
    *,
    readers: Readers,
    chunker: Chunker,
    model_of: Callable[[Document], str],
    whole_document: bool,
    stored: Callable[[str], Stored],
    tenant: str | None = None,
) -> Iterator[Pending | FileRead | FileLeft]:
    """Read and chunk files, comparing with what is stored.

    Args:
        files: in the order they are wanted.
        readers: read them.
        chunker: cuts what they give.
        model_of: names the model that a document goes to, for the payload.
        whole_document: whether a chunk's vectors depend on the whole document, and its id so too.
        stored: asks the store what it holds of a file.
        tenant: that the chunks belong to, or None.
    """
    for file in files:
        began = time.monotonic()
        if isinstance(file, SkippedFile):
            yield FileLeft(file, file.failed, file.reason, began)
            continue
        try:
            loaded = readers.load(file.path, file.source)
            comparison = _Comparison(file, stored, loaded.hash)
            if comparison.is_unchanged:
                yield comparison.unchanged(began)
                continue
            try:
                for document in readers.documents(loaded):
                    named = _cut(
                        file, document, chunker, model_of, tenant, whole_document=whole_document
                    )
                    yield from comparison.new(named)
            except EmptyTextError as error:
                yield comparison.result(began, empty=str(error))
            except (ReadError, ChunkerError):  # what came before it is stored
                yield from comparison.last(whole=False)
                raise
            else:
                yield from comparison.last()
                yield comparison.result(began)
        except NotTextError as error:
            yield FileLeft(file, failed=False, reason=str(error), began=began)
        except (ReadError, ChunkerError) as error:
            yield FileLeft(file, failed=True, reason=str(error), began=began)


def _cut(
    file: SourceFile,
    document: Document,
    chunker: Chunker,
    model_of: Callable[[Document], str],
    tenant: str | None,
    *,
    whole_document: bool,
) -> Iterator[Pending]:
    """Chunk a document, and name each chunk."""
    document_hash = content_hash(document.text) if whole_document else None
    ids = ChunkIds(document.source, tenant=tenant, document_hash=document_hash)
    model = model_of(document)
    owner = {} if tenant is None else {"tenant": tenant}
    part = {} if document.source == file.source else {"file": file.source}
    for index, chunk in enumerate(chunker.chunk(document)):
        hashed = content_hash(chunk.text)
        metadata = {
            **document.metadata,
            **_place(document, chunk),
            **part,
            "source": document.source,
            "start": chunk.start,
            "end": chunk.end,
            "chunk_index": index,
            "n_tokens": chunk.n_tokens,
            "content_hash": hashed,
            "model": model,
            **owner,
        }
        read = content_hash(chunk.context + chunk.text) if chunk.context else hashed
        yield Pending(file, document, chunk, ids.next(read), metadata)


def _place(document: Document, chunk: Chunk) -> dict[str, object]:
    """Say where a chunk stands, as far as that is known."""
    known = {
        "title": document.title,
        "heading_path": list(chunk.heading_path),
        "page": chunk.page,
        "language": chunk.language,
        "parent": list(chunk.parent or ()),
        "context": chunk.context,
    }
    return {name: value for name, value in known.items() if value}


class _Comparison:
    """What a file has now beside what the store holds of it.

    A chunk is passed on when the next one is there, since the last one carries the file's seal.
    """

    def __init__(self, file: SourceFile, stored: Callable[[str], Stored], read_hash: str) -> None:
        self._file = file
        self._known = stored(file.source)
        self._read_hash = read_hash
        self._places: dict[str, list[Any]] = {}
        self._moved: dict[str, Mapping[str, Any]] = {}
        self._n_pending = 0
        self._held_back: Pending | None = None

    @property
    def is_unchanged(self) -> bool:
        """Whether the file needs not be cut to know that all of it is stored."""
        return is_sealed(self._read_hash, self._known)

    def unchanged(self, began: float) -> FileRead:
        """Say that there is nothing to do."""
        return FileRead(self._file, 0, len(self._known), {}, (), began)

    def new(self, chunks: Iterable[Pending]) -> Iterator[Pending]:
        """Pass on the chunks that the store does not have."""
        for pending in chunks:
            self._places[pending.id] = place_of(pending.metadata)
            if self._held_back is not None:
                yield from self._passed_on(self._held_back)
            self._held_back = pending

    def last(self, *, whole: bool = True) -> Iterator[Pending]:
        """Pass on the last chunk, as the others; that of a file read to its end with the seal."""
        pending = self._held_back
        if pending is None:
            return
        if whole:
            sealed = {**pending.metadata, SEAL: seal(self._read_hash, self._places)}
            pending = replace(pending, metadata=sealed)
        yield from self._passed_on(pending)

    def _passed_on(self, pending: Pending) -> Iterator[Pending]:
        held = self._known.get(pending.id)
        if held is None:
            self._n_pending += 1
            yield pending
        elif (mended := _mended(held, pending.metadata)) != dict(held):
            self._moved[pending.id] = payload(pending.chunk.text, mended)

    def result(self, began: float, *, empty: str | None = None) -> FileRead:
        """Say what the store must do besides."""
        stale = [chunk_id for chunk_id in self._known if chunk_id not in self._places]
        n_reused = len(self._places) - self._n_pending
        return FileRead(self._file, self._n_pending, n_reused, self._moved, stale, began, empty)


def _mended(held: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Give what is to stand in the store: what is known now, and what others know of the chunk.

    The model is named as it was when it made the vector, wherever its file is now.
    """
    kept = {name: value for name, value in held.items() if name not in _MAY_GO}
    return {**kept, **metadata, "model": held.get("model", metadata["model"])}


def payload(text: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Lay a payload out as LangChain reads it."""
    return {"page_content": text, "metadata": dict(metadata)}
