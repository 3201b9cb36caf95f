"""What tests of the retriever share: texts ingested by a tiny model whose queries have a prefix."""

from pathlib import Path
from typing import Any

import tiny_models
from langchain_core.documents import Document
from qdrant_client import models

from corral.ingest import IngestOptions, ingest
from corral_sinks import SinkOptions

__all__ = ["BERT", "PREFIX", "QUERY", "TEXTS", "source_is", "texts_of", "write"]

BERT = tiny_models.bert()
PREFIX = "find: "
QUERY = "who closed the gate"
TEXTS = {
    "gate.txt": "Anna closed the gate.",
    "rain.txt": "Rain came in the night.",
    "hill.txt": "The flock went up the hill.",
    "wool.txt": "Wool is shorn in June.",
    "dogs.txt": "Two dogs guard the flock.",
}


def write(
    folder: Path,
    *,
    model: tiny_models.TinyModel = BERT,
    options: dict[str, Any] | None = None,
    **place: Any,
) -> dict[str, Any]:
    """Ingest the texts into the collection "docs", each a chunk; return where a retriever is to."""
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    given = IngestOptions(
        paths=[folder],
        target=SinkOptions(collection="docs", **place),
        model=str(model.path),
        model_options={"query_prefix": PREFIX},
        chunk_size=40,
        isolate=False,
        **(options or {}),
    )
    ingest(given, progress=lambda *_, **__: None)
    return {"collection": "docs", **place}


def source_is(*names: str) -> models.Filter:
    """Make a filter for documents by name."""
    match = models.MatchAny(any=list(names))
    return models.Filter(must=[models.FieldCondition(key="metadata.source", match=match)])


def texts_of(documents: list[Document]) -> list[str]:
    """Give the texts of documents."""
    return [document.page_content for document in documents]
