"""Stored chunks as an ingest has them before they are embedded: to compute their vectors anew."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from corral.collection import Models
from corral.discovery import SourceFile
from corral.ingest_options import IngestOptions
from corral.prepare import Pending, prepare
from corral.readers.files import Readers
from corral.run_models import chunker_of
from corral_chunkers import Chunk, Document
from corral_sinks import Record

__all__ = ["from_files", "from_payload"]


def from_payload(record: Record) -> Pending:
    """Give a stored chunk by its payload; its document is its own text."""
    metadata, text = _metadata(record), str(record.payload["page_content"])
    source = str(metadata["source"])
    chunk = Chunk(
        text=text,
        start=0,
        end=len(text),
        n_tokens=int(metadata["n_tokens"]),
        context=str(metadata.get("context", "")),
    )
    document = Document(text=text, source=source)
    return Pending(SourceFile(Path(source), source), document, chunk, record.id, metadata)


def from_files(
    records: Mapping[str, Record],
    options: IngestOptions,
    readers: Readers,
    models: Models,
    *,
    whole_document: bool,
) -> Iterator[Pending]:
    """Read the files of stored chunks and yield those chunks, each in its document.

    What the files have no more is left out.

    Args:
        records: the stored chunks by id.
        options: how an ingest finds and cuts files.
        readers: read them.
        models: that made the collection.
        whole_document: whether ids depend on the whole document.
    """
    chunker = chunker_of(options, models.embeddings, models.router)
    for event in prepare(
        _files_of(records.values(), options),
        readers=readers,
        chunker=chunker,
        model_of=lambda _: models.embeddings.model,
        whole_document=whole_document,
        stored=lambda _: {},
        tenant=options.target.tenant,
    ):
        if isinstance(event, Pending) and event.id in records:
            yield event


def _files_of(records: Collection[Record], options: IngestOptions) -> list[SourceFile]:
    wanted = {str(data.get("file", data["source"])) for data in map(_metadata, records)}
    return [
        file
        for file in options.discover()
        if isinstance(file, SourceFile) and file.source in wanted
    ]


def _metadata(record: Record) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", record.payload["metadata"])
