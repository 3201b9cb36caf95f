"""Whether a collection holds what the files say, as the model computes it: `corral verify`."""

import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, Final, cast

import numpy as np

from corral.collection import model_options_of, open_models, schema_in
from corral.embedders import ChunkVectors, Embedder
from corral.fingerprint import Fingerprint
from corral.identity import content_hash
from corral.ingest import IngestOptions, ingest
from corral.pipeline import Progress
from corral.prepare import Pending
from corral.readers.files import Readers
from corral.recipe import Recipe
from corral.sampling import from_files, from_payload
from corral_sinks import Record, Schema, SinkOptions, SparseVector, Vector
from corral_sinks.qdrant import QdrantSink, vector_fault_in

__all__ = ["Audit", "Flaw", "audit", "options_of"]

_LEAST_SIMILARITY: Final = 0.999
"""Of a vector and the same one computed anew: other threads, packs and builds differ by less."""

_UNIT_TOLERANCE: Final = 1e-3
_BATCH: Final = 64
_COARSE: Final = 0.05
"""Allowed of lengths and similarities where a vector is stored with less than 32 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """A vector, or a text, that is not what it should be.

    Args:
        id: of the record.
        source: that it is of.
        vector: its name; "page_content" of the text.
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
        foreign: records that no ingest wrote, such as a LangChain vector store's; nothing is known
            to compare them with.
        differing: sources of which something is missing, moved or stale.
        unread: files that could not be read, and why.
        flaws: vectors that are not finite, not of unit length, or not as the model computes them,
            and texts that are not those that were ingested.
        sampled: records whose vectors were computed anew.
        unsampled: others that were chosen for that, of files that are not as they were.
        least_similarity: of those and the stored ones, the least; None where none was compared.
    """

    points: int = 0
    files: int = 0
    missing: int = 0
    moved: int = 0
    stale: int = 0
    extra: list[str] = field(default_factory=list)
    foreign: int = 0
    differing: list[str] = field(default_factory=list)
    unread: list[tuple[str, str]] = field(default_factory=list)
    flaws: list[Flaw] = field(default_factory=list)
    sampled: int = 0
    unsampled: int = 0
    least_similarity: float | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing is amiss."""
        return not (self.differing or self.extra or self.foreign or self.flaws or self.unread)

    def as_dict(self) -> dict[str, Any]:
        """Give all of it as JSON."""
        return {"ok": self.ok, **asdict(self)}


def audit(
    target: SinkOptions,
    *,
    model: str | None = None,
    heads: str | None = None,
    long_model: str | None = None,
    sample: int = 20,
    progress: Progress,
    **reading: Any,  # noqa: ANN401 - IngestOptions' own
) -> Audit:
    """Compare a collection with the files it was made of, and its vectors with the model's.

    Nothing is written.

    Args:
        target: the collection.
        model: where the collection's model is now; None takes the name it had.
        heads: where its heads file is now, likewise.
        long_model: where its model for long documents is now, likewise.
        sample: records to embed anew, chosen at random. Where a vector depends on the whole
            document, those whose files are as they were.
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
        schema = schema_in(sink, target)
        held = Fingerprint.from_metadata(schema.metadata, collection=target.collection)
        held.require_tenant(target.tenant, collection=target.collection)
        chosen = _look_at_vectors(sink, schema, found, sample)
        coarse = any(one.storage.datatype != "float32" for one in schema.vectors.values())
    options = options_of(
        held, target=target, model=model, heads=heads, long_model=long_model, **reading
    )
    with options.open_readers(keeps_stdin=True) as readers, ExitStack() as opened:
        models = open_models(
            held,
            opened,
            collection=target.collection,
            model=model,
            heads=heads,
            long_model=long_model,
            for_chunks=True,
        )
        embedder = models.for_chunks()
        pendings = (
            from_files(chosen, options, readers, models, whole_document=embedder.whole_document)
            if models.recipe.reads_documents
            else map(from_payload, chosen.values())
        )
        least = 1 - _COARSE if coarse else _LEAST_SIMILARITY
        _embed_anew(embedder, pendings, chosen, found, least=least)
        found.unsampled = len(chosen) - found.sampled
        opened.close()
        _compare_files(options, readers, found, progress)
    return found


def options_of(
    held: Fingerprint,
    *,
    model: str | None = None,
    heads: str | None = None,
    long_model: str | None = None,
    **options: Any,  # noqa: ANN401 - IngestOptions' own
) -> IngestOptions:
    """Give the options of a dry run by the settings that a collection was made with."""
    fields = held.fields
    recipe = Recipe.of(held, heads=heads, long_model=long_model)
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
        isolate=False,  # nothing is embedded
        **options,
    )


def _look_at_vectors(
    sink: QdrantSink, schema: Schema, found: Audit, sample: int
) -> Mapping[str, Record]:
    """Check every stored vector; return some records by id, each as likely as another."""
    chosen: list[Record] = []
    n_own = 0
    draw = random.Random()  # noqa: S311 - chooses a sample, guards nothing
    for record in sink.records():
        found.points += 1
        if not _is_own(record):
            found.foreign += 1
            continue
        n_own += 1
        found.flaws += _flaws(record, schema)
        if len(chosen) < sample:
            chosen.append(record)
        elif (at := draw.randrange(n_own)) < sample:
            chosen[at] = record
    return {record.id: record for record in chosen}


def _is_own(record: Record) -> bool:
    """Tell whether an ingest wrote a record."""
    metadata = record.payload.get("metadata")
    return isinstance(metadata, Mapping) and {"source", "content_hash", "n_tokens"} <= set(metadata)


def _flaws(record: Record, schema: Schema) -> Iterator[Flaw]:
    if content_hash(str(record.payload.get("page_content"))) != _metadata(record)["content_hash"]:
        yield _flaw(record, "page_content", "is not the text that was ingested")
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
    embedder: Embedder,
    pendings: Iterable[Pending],
    stored: Mapping[str, Record],
    found: Audit,
    *,
    least: float,
) -> None:
    """Compare stored vectors with those that the model gives for the same chunks now."""
    rest = iter(pendings)
    while batch := list(islice(rest, _BATCH)):
        found.sampled += len(batch)
        for pending, result in zip(batch, embedder.embed(batch), strict=True):
            _compare(stored[pending.id], result, found, least=least)


def _compare(record: Record, result: ChunkVectors, found: Audit, *, least: float) -> None:
    if result.defect is not None:
        found.flaws.append(_flaw(record, "all", result.defect))
        return
    for name in sorted({*record.vectors, *result.vectors}):
        stored, given = record.vectors.get(name), result.vectors.get(name)
        if stored is None:
            found.flaws.append(_flaw(record, name, "is missing"))
        elif given is None:
            found.flaws.append(_flaw(record, name, "is one that the model does not give"))
        else:
            similarity = _similarity(stored, given)
            known = found.least_similarity
            found.least_similarity = similarity if known is None else min(known, similarity)
            if similarity < least:
                fault = f"has similarity {similarity:.4f} to the one that the model gives"
                found.flaws.append(_flaw(record, name, fault))


def _similarity(stored: Vector, given: Vector) -> float:
    """Tell how alike two vectors are: 1 where they are the same, 0 where the shapes differ.

    Of dense vectors it is the cosine, of multivectors the least cosine of two rows. A sparse one's
    length counts too, so its product with the other is divided by the longer one's with itself.
    """
    if isinstance(stored, SparseVector) or isinstance(given, SparseVector):
        if not (isinstance(stored, SparseVector) and isinstance(given, SparseVector)):
            return 0.0
        return _sparse_similarity(stored, given)
    if stored.shape != given.shape:
        return 0.0
    norms = np.linalg.norm(stored, axis=-1) * np.linalg.norm(given, axis=-1)
    return _finite(np.min((stored * given).sum(axis=-1) / norms))


def _sparse_similarity(stored: SparseVector, given: SparseVector) -> float:
    weights = dict(zip(given.indices.tolist(), given.values.tolist(), strict=True))
    other = np.array([weights.get(index, 0.0) for index in stored.indices.tolist()])
    longer = max(float(vector.values @ vector.values) for vector in (stored, given))
    return _finite(stored.values @ other / longer)


def _finite(similarity: float) -> float:
    """Give 0 in place of what comes of a vector that holds NaN, or nothing but zeros."""
    return float(similarity) if np.isfinite(similarity) else 0.0


def _compare_files(
    options: IngestOptions, readers: Readers, found: Audit, progress: Progress
) -> None:
    """Let a dry run say what the files have and the collection does not, and the other way."""
    report = ingest(options, progress=progress, readers=readers)
    found.files = report.files.total()
    found.missing, found.moved = report.embedded, report.moved
    found.extra = list(report.pruned)
    found.stale = report.deleted
    found.unread = [
        (entry.source, entry.error or "") for entry in report.entries if entry.status == "failed"
    ]
    found.differing = [entry.source for entry in report.entries if entry.status == "stored"]
