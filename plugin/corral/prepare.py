"""From files to chunks that want vectors, and to what else the store must do for each file."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corral.discovery import SkippedFile, SourceFile
from corral.errors import EmptyTextError, NotTextError, ReadError
from corral.identity import ChunkIds, content_hash
from corral.reading import read_text
from corral.report import FileReport, FileStatus
from corral_chunkers import Chunk, Chunker, ChunkerError, Document

__all__ = ["FileLeft", "FileRead", "Pending", "Stored", "prepare"]

Stored = Mapping[str, Mapping[str, Any]]
"""Payload metadata by id, of what the store holds of one source."""


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
    """

    file: SourceFile
    n_pending: int
    n_reused: int
    moved: Mapping[str, Mapping[str, Any]]
    stale: Sequence[str]
    began: float

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
        return None if self.n_chunks else "there is no text in it"


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
    chunker: Chunker,
    model: str,
    max_bytes: int,
    whole_document: bool,
    stored: Callable[[str], Stored],
    tenant: str | None = None,
) -> Iterator[Pending | FileRead | FileLeft]:
    """Read and chunk files, comparing with what is stored.

    Args:
        files: in the order they are wanted.
        chunker: cuts them.
        model: name of the model, for the payload.
        max_bytes: size of the largest file to read.
        whole_document: whether a chunk's vectors depend on the whole document, and its id so too.
        stored: asks the store what it holds of a source.
        tenant: that the chunks belong to, or None.
    """
    for file in files:
        began = time.monotonic()
        if isinstance(file, SkippedFile):
            yield FileLeft(file, file.failed, file.reason, began)
            continue
        try:
            text = _read(file, max_bytes)
            chunks = _cut(file, text, chunker, model, tenant, whole_document=whole_document)
            yield from _compare(file, chunks, stored(file.source), began)
        except NotTextError as error:
            yield FileLeft(file, failed=False, reason=str(error), began=began)
        except (ReadError, ChunkerError) as error:
            yield FileLeft(file, failed=True, reason=str(error), began=began)


def _read(file: SourceFile, max_bytes: int) -> str:
    try:
        return read_text(file.path, max_bytes=max_bytes).text
    except EmptyTextError:
        return ""


def _cut(
    file: SourceFile,
    text: str,
    chunker: Chunker,
    model: str,
    tenant: str | None,
    *,
    whole_document: bool,
) -> Iterator[Pending]:
    """Chunk a text, and name each chunk."""
    document_hash = content_hash(text) if whole_document else None
    ids = ChunkIds(file.source, tenant=tenant, document_hash=document_hash)
    owner = {} if tenant is None else {"tenant": tenant}
    document = Document(text=text, source=file.source)
    for index, chunk in enumerate(chunker.chunk(document)):
        hashed = content_hash(chunk.text)
        metadata = {
            "source": file.source,
            "start": chunk.start,
            "end": chunk.end,
            "chunk_index": index,
            "n_tokens": chunk.n_tokens,
            "content_hash": hashed,
            "model": model,
            **_place(document, chunk),
            **owner,
        }
        yield Pending(file, document, chunk, ids.next(hashed), metadata)


def _place(document: Document, chunk: Chunk) -> dict[str, object]:
    """Say where a chunk stands, as far as that is known."""
    known = {
        "title": document.title,
        "heading_path": list(chunk.heading_path),
        "page": chunk.page,
        "language": chunk.language,
        "parent": list(chunk.parent or ()),
    }
    return {name: value for name, value in known.items() if value}


def _compare(
    file: SourceFile, chunks: Iterator[Pending], known: Stored, began: float
) -> Iterator[Pending | FileRead]:
    """Pass on the chunks that the store does not have, then say what it must do besides."""
    seen: set[str] = set()
    moved: dict[str, Mapping[str, Any]] = {}
    n_pending = 0
    for pending in chunks:
        seen.add(pending.id)
        held = known.get(pending.id)
        if held is None:
            n_pending += 1
            yield pending
        elif (mended := {**held, **pending.metadata}) != dict(held):
            moved[pending.id] = payload(pending.chunk.text, mended)
    stale = [chunk_id for chunk_id in known if chunk_id not in seen]
    yield FileRead(file, n_pending, len(seen) - n_pending, moved, stale, began)


def payload(text: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Lay a payload out as LangChain reads it."""
    return {"page_content": text, "metadata": dict(metadata)}
