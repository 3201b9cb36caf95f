"""What collections there are, and what is in one."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from corral.collection import fingerprint_in
from corral.errors import CollectionError
from corral.fingerprint import METADATA_KEY
from corral_sinks import Schema, SinkError, SinkOptions, SinkUnavailableError
from corral_sinks.qdrant import QdrantSink, folder_of, vector_bytes

__all__ = [
    "Entry",
    "Info",
    "SourceInfo",
    "collections",
    "delete_collection",
    "delete_sources",
    "info",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One of the collections of a place.

    Args:
        name: of the collection.
        points: that it has.
        vectors: its vectors' names, each with its dimensions, or "sparse".
        model: that made it, as it was named; None where corral did not make it.
        tenants: whether its chunks belong to tenants.
        aliases: further names that lead to it.
        fault: why nothing more is known of it, as where its files are damaged; else None.
    """

    name: str
    points: int
    vectors: Mapping[str, int | str]
    model: str | None
    tenants: bool
    aliases: Sequence[str]
    fault: str | None = None


@dataclass(slots=True, kw_only=True)
class SourceInfo:
    """What a collection holds of one source.

    Attributes:
        chunks: of it.
        tokens: that the model read for them.
        truncated: chunks of which it read less than all.
        payload_bytes: of their payloads as JSON.
    """

    chunks: int = 0
    tokens: int = 0
    truncated: int = 0
    payload_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """What is in a collection.

    Args:
        name: of the collection.
        model: that made it, as it was named.
        fingerprint: every setting that decided a vector or a chunk.
        points: that it has.
        tokens: that the model read for them.
        truncated: chunks of which it read less than all.
        payload_bytes: of all payloads as JSON.
        vector_bytes: of all vectors, without indexes and copies; of sparse ones and multivectors
            nothing is counted.
        disk_bytes: that the folder takes on disk; None of a server.
        index: state of the graph and of the payload indexes.
        sources: what there is of each source.
    """

    name: str
    model: str
    fingerprint: Mapping[str, Any]
    points: int
    tokens: int
    truncated: int
    payload_bytes: int
    vector_bytes: int
    disk_bytes: int | None
    index: Mapping[str, Any]
    sources: Mapping[str, SourceInfo] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Give all of it as JSON."""
        return asdict(self)


def collections(*, url: str | None = None, path: str | None = None) -> list[Entry]:
    """List the collections of a server or a folder, by name.

    Raises:
        CollectionError: there is no such folder.
        SinkError: the store cannot be used.
    """
    if path is not None and path != ":memory:" and not Path(path).exists():
        raise CollectionError(f"there is no folder {path}; `ingest --path {path}` makes it")
    place = SinkOptions(collection="", url=url, path=path)
    with closing(QdrantSink(place)) as sink:
        leads = sink.aliases()
        return [
            _entry(
                QdrantSink(replace(place, collection=name), client=sink.client),
                name,
                sorted(alias for alias, target in leads.items() if target == name),
            )
            for name in sorted(sink.names())
        ]


def _entry(sink: QdrantSink, name: str, aliases: Sequence[str]) -> Entry:
    schema, points, fault = Schema(vectors={}), 0, None
    try:
        schema, points = sink.schema() or schema, sink.count()
    except SinkUnavailableError:
        raise
    except SinkError as error:  # of this one: the others can be told of
        fault = str(error)
    held = schema.metadata.get(METADATA_KEY)
    return Entry(
        name=name,
        points=points,
        vectors=_vectors(schema),
        model=str(held.get("model")) if isinstance(held, Mapping) else None,
        tenants=schema.tenants,
        aliases=aliases,
        fault=fault,
    )


def _vectors(schema: Schema) -> Mapping[str, int | str]:
    dense: dict[str, int | str] = {name: params.size for name, params in schema.vectors.items()}
    return dense | dict.fromkeys(schema.sparse_vectors, "sparse")


def info(target: SinkOptions) -> Info:
    """Look at every record of a collection, without its vectors.

    Raises:
        CollectionError: there is no such collection, or it is not corral's.
        SinkError: the store cannot be used.
    """
    with closing(QdrantSink(target)) as sink:
        held = fingerprint_in(sink, target)
        schema = sink.schema() or Schema(vectors={})
        sources: defaultdict[str, SourceInfo] = defaultdict(SourceInfo)
        for record in sink.records(vectors=False):
            _count(sources, record.payload)
        found = sink.info()
        points = sink.count()
    return Info(
        name=target.collection,
        model=held.model,
        fingerprint=held.fields,
        points=points,
        tokens=sum(one.tokens for one in sources.values()),
        truncated=sum(one.truncated for one in sources.values()),
        payload_bytes=sum(one.payload_bytes for one in sources.values()),
        vector_bytes=points * sum(map(vector_bytes, schema.vectors.values())),
        disk_bytes=_disk_bytes(target),
        index={
            "status": found.status.value,
            "indexed_vectors": found.indexed_vectors_count or 0,
            "segments": found.segments_count,
            "payload": dict(schema.indexes),
            "tenants": schema.tenants,
        },
        sources=dict(sorted(sources.items())),
    )


def _count(sources: defaultdict[str, SourceInfo], payload: Mapping[str, Any]) -> None:
    metadata = cast("Mapping[str, Any]", payload.get("metadata") or {})
    one = sources[str(metadata.get("source", ""))]
    one.chunks += 1
    one.tokens += int(metadata.get("n_tokens", 0))
    one.truncated += bool(metadata.get("truncated"))
    one.payload_bytes += len(json.dumps(payload, ensure_ascii=False).encode())


def _disk_bytes(target: SinkOptions) -> int | None:
    """Blocks that a folder's files take: the engine sets more aside than it uses."""
    if target.path in {None, ":memory:"}:
        return None
    folder = Path(str(target.path)) / folder_of(Path(str(target.path)), target.collection)
    return sum(512 * file.stat().st_blocks for file in folder.rglob("*") if file.is_file())


def delete_collection(target: SinkOptions) -> tuple[str, int]:
    """Delete a collection, whoever made it, and the names that lead to it.

    Returns:
        Its name, which differs from the target's where that is an alias, and the points it had.

    Raises:
        SinkError: there is no such collection, or the store failed.
    """
    with closing(QdrantSink(target)) as sink:
        return sink.drop()


def delete_sources(target: SinkOptions, sources: tuple[str, ...]) -> dict[str, int]:
    """Delete all that a collection holds of some sources.

    Returns:
        Chunks that were deleted, by source.

    Raises:
        CollectionError: there is no such collection, it has tenants and none is named, or it
            holds nothing of one of the sources; nothing is deleted then.
        SinkError: the store failed.
    """
    with closing(QdrantSink(target)) as sink:
        fingerprint_in(sink, target).require_tenant(target.tenant, collection=target.collection)
        ids = {source: list(sink.stored(source)) for source in sources}
        for source, found in ids.items():
            if not found:
                raise CollectionError(_unknown(source, list(sink.sources()), target))
        for found in ids.values():
            sink.delete(found)
        sink.flush()
    return {source: len(found) for source, found in ids.items()}


def _unknown(source: str, known: list[str], target: SinkOptions) -> str:
    near = get_close_matches(source, known, n=3) or known[:3]
    return (
        f"collection {target.collection!r} holds nothing of {source!r}; sources are named relative "
        "to the folder that was ingested; "
        + (f"it has {', '.join(map(repr, near))}" if near else "it is empty")
    )
