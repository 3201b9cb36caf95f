"""Whether a collection holds what the files say, as the model computes it: `corral verify`."""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from corral.collection import fingerprint_in, model_options_of, open_embedder
from corral.discovery import SourceFile
from corral.embedders import Embedder
from corral.fingerprint import Fingerprint
from corral.ingest import IngestOptions, ingest
from corral.pipeline import Progress
from corral.prepare import Pending
from corral.recipe import Recipe
from corral_chunkers import Chunk, Document
from corral_sinks import Record, Schema, SinkOptions, SparseVector, Vector
from corral_sinks.qdrant import QdrantSink, vector_fault_in

__all__ = ["Audit", "Flaw", "audit", "options_of"]

_LEAST_SIMILARITY: Final = 0.999
"""Of a vector and the same one computed anew: other threads, packs and builds differ by less."""

_UNIT_TOLERANCE: Final = 1e-3
_COARSE: Final = 0.05
"""Allowed of lengths and similarities where a vector is stored with less than 32 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """A vector that is not what it should be.

    Args:
        id: of the record.
        source: that it is of.
        vector: its name.
        fault: what is wrong with it.
    """

    id: str
    source: str
    vector: str
    fault: str


@dataclass(slots=True, kw_only=True)
class Audit:
    """What a check of a collection found.

    Attributes:
        points: records that were looked at.
        files: that were compared.
        missing: chunks of the files that the collection does not have.
        moved: chunks whose metadata are out of date.
        stale: chunks that their files no longer have.
        extra: sources whose files are gone.
        differing: sources of which something is missing, moved or stale.
        unread: files that could not be read, and why.
        flaws: vectors that are not finite, not of unit length, or not as the model computes them.
        sampled: records whose vectors were computed anew; none where chunks were pooled late.
        least_similarity: of those and the stored ones, the least; None where none was compared.
    """

    points: int = 0
    files: int = 0
    missing: int = 0
    moved: int = 0
    stale: int = 0
    extra: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    unread: list[tuple[str, str]] = field(default_factory=list)
    flaws: list[Flaw] = field(default_factory=list)
    sampled: int = 0
    least_similarity: float | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing is amiss."""
        return not (self.differing or self.extra or self.flaws or self.unread)

    def as_dict(self) -> dict[str, Any]:
        """Give all of it as JSON."""
        return {"ok": self.ok, **asdict(self)}


def audit(
    target: SinkOptions,
    *,
    model: str | None = None,
    sample: int = 20,
    progress: Progress,
    **reading: Any,  # noqa: ANN401 - IngestOptions' own
) -> Audit:
    """Compare a collection with the files it was made of, and its vectors with the model's.

    Nothing is written.

    Args:
        target: the collection.
        model: where the collection's model is now; None takes the name it had.
        sample: records to embed anew, chosen at random; none with late chunking, where a chunk's
            vector comes from its whole document.
        progress: is told how far the reading of the files is.
        **reading: what IngestOptions says of paths and of how they are read, as at the ingest.

    Raises:
        CollectionError: there is no such collection, another model made it, or this version of
            corral would cut the files otherwise.
        UsageError: it cannot be told which files are gone, as where a folder is missing.
        SinkError: the store failed.
    """
    found = Audit()
    with closing(QdrantSink(target)) as sink:
        held = fingerprint_in(sink, target)
        held.require_tenant(target.tenant, collection=target.collection)
        chosen = _look_at_vectors(sink, found, sample)
        schema = sink.schema() or Schema(vectors={})
        coarse = any(one.storage.datatype != "float32" for one in schema.vectors.values())
    recipe = Recipe.of(held)
    if not recipe.late:  # of a late vector the document's own text is not enough
        with ExitStack() as opened:
            embedder = open_embedder(held, opened, collection=target.collection, model=model)
            least = 1 - _COARSE if coarse else _LEAST_SIMILARITY
            _embed_anew(embedder, chosen, found, least=least)
    options = options_of(
        held,
        target=target,
        model=model,
        **reading,
    )
    _compare_files(options, found, progress)
    return found


def options_of(held: Fingerprint, *, model: str | None = None, **options: Any) -> IngestOptions:  # noqa: ANN401 - IngestOptions' own
    """Give the options of a dry run by the settings that a collection was made with."""
    fields = held.fields
    recipe = Recipe.of(held)
    return IngestOptions(
        model=model or held.model,
        model_options=model_options_of(held),
        chunker=fields["chunker"],
        chunk_size=fields["chunker.size"],
        chunk_size_unit=fields.get("chunker.size_unit"),
        chunk_overlap=fields["chunker.overlap"],
        context=fields.get("chunker.context", "none"),
        sparse=recipe.bm25,
        short_dim=recipe.short_dim,
        late=recipe.late,
        multi=recipe.multi,
        lexical=recipe.lexical,
        heads=recipe.heads,
        long_model=recipe.long_model,
        dry_run=True,
        prune=True,
        **options,
    )


def _look_at_vectors(sink: QdrantSink, found: Audit, sample: int) -> list[Record]:
    """Check every stored vector; return some records, each as likely as another."""
    schema = sink.schema() or Schema(vectors={})
    chosen: list[Record] = []
    draw = random.Random()  # noqa: S311 - chooses a sample, guards nothing
    for record in sink.records():
        found.points += 1
        found.flaws += _flaws(record, schema)
        if len(chosen) < sample:
            chosen.append(record)
        elif (at := draw.randrange(found.points)) < sample:
            chosen[at] = record
    return chosen


def _flaws(record: Record, schema: Schema) -> Iterator[Flaw]:
    for name, vector in record.vectors.items():
        fault = vector_fault_in(name, vector, schema) or _length_fault(name, vector, schema)
        if fault:
            yield _flaw(record, name, fault)


def _length_fault(name: str, vector: Vector, schema: Schema) -> str | None:
    if isinstance(vector, SparseVector) or schema.vectors[name].distance != "cosine":
        return None
    norms = np.linalg.norm(vector, axis=-1)
    worst = float(np.max(np.abs(norms - 1.0)))
    exact = schema.vectors[name].storage.datatype == "float32"
    if worst <= (_UNIT_TOLERANCE if exact else _COARSE):
        return None
    return f"is {worst:.3g} longer or shorter than 1"


def _flaw(record: Record, name: str, fault: str) -> Flaw:
    return Flaw(id=record.id, source=str(_metadata(record)["source"]), vector=name, fault=fault)


def _metadata(record: Record) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", record.payload["metadata"])


def _embed_anew(
    embedder: Embedder, records: Sequence[Record], found: Audit, *, least: float
) -> None:
    """Compare stored vectors with those that the model gives for the same text now."""
    found.sampled = len(records)
    results = embedder.embed([_pending(record) for record in records]) if records else []
    for record, result in zip(records, results, strict=True):
        if result.defect is not None:
            found.flaws.append(_flaw(record, "all", result.defect))
            continue
        for name, vector in result.vectors.items():
            stored = record.vectors.get(name)
            similarity = 0.0 if stored is None else _similarity(stored, vector)
            known = found.least_similarity
            found.least_similarity = similarity if known is None else min(known, similarity)
            if similarity < least:
                fault = f"has cosine {similarity:.4f} to the one that the model gives"
                found.flaws.append(_flaw(record, name, fault))


def _pending(record: Record) -> Pending:
    """Give a stored chunk as one that wants vectors; its document is its own text."""
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


def _similarity(stored: Vector, given: Vector) -> float:
    """Cosine of two vectors; the least of two multivectors' rows; 0 where the shapes differ."""
    if isinstance(stored, SparseVector) or isinstance(given, SparseVector):
        if not (isinstance(stored, SparseVector) and isinstance(given, SparseVector)):
            return 0.0
        return _sparse_similarity(stored, given)
    if stored.shape != given.shape:
        return 0.0
    norms = np.linalg.norm(stored, axis=-1) * np.linalg.norm(given, axis=-1)
    return float(np.min((stored * given).sum(axis=-1) / norms))


def _sparse_similarity(stored: SparseVector, given: SparseVector) -> float:
    weights = dict(zip(given.indices.tolist(), given.values.tolist(), strict=True))
    other = np.array([weights.get(index, 0.0) for index in stored.indices.tolist()])
    norms = np.linalg.norm(stored.values) * np.linalg.norm(given.values)
    return float(stored.values @ other / norms)


def _compare_files(options: IngestOptions, found: Audit, progress: Progress) -> None:
    """Let a dry run say what the files have and the collection does not, and the other way."""
    report = ingest(options, progress=progress)
    found.files = report.files.total()
    found.missing, found.moved = report.embedded, report.moved
    found.extra = list(report.pruned)
    found.stale = report.deleted
    found.unread = [
        (entry.source, entry.error or "") for entry in report.entries if entry.status == "failed"
    ]
    found.differing = [entry.source for entry in report.entries if entry.status == "stored"]
