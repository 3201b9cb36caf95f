"""The collection of an ingest: made, or found to be of the same settings, before a file is read."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from corral.embedders import Embedder, VectorSpecs
from corral.errors import CollectionError
from corral.fingerprint import METADATA_KEY, SCHEMA_VERSION, TENANTS, Fingerprint
from corral.ingest_options import IngestOptions
from corral_chunkers import Chunker
from corral_sinks import Schema, Sink, SinkError, without_storage
from corral_sinks.qdrant import field_path

__all__ = ["fingerprint_of", "settle_schema"]

_FILE_FIELDS: Final = ("metadata.source", "metadata.file")
"""Fields that the store is asked by for what it holds of a file."""


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


def settle_schema(
    sink: Sink,
    existing: Schema | None,
    options: IngestOptions,
    specs: VectorSpecs,
    fingerprint: Fingerprint,
) -> bool:
    """Create the collection, or refuse one that is of other settings; say whether it is new.

    Args:
        sink: of the collection.
        existing: what the sink has; None for nothing.
        options: of the run; a dry one creates nothing.
        specs: of the vectors that the run makes.
        fingerprint: of the settings that they depend on.

    Raises:
        CollectionError: the collection is of other settings, or not corral's.
        SinkError: the store cannot be used.
    """
    collection = options.target.collection
    wanted = Schema(
        vectors={
            name: replace(params, storage=options.storage or params.storage)
            for name, params in specs.dense.items()
        },
        payload_on_disk=options.payload_on_disk,
        sparse_vectors=specs.sparse,
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
