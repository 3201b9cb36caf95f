"""Records into Qdrant."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from qdrant_client import QdrantClient, models

from corral_sinks import (
    JSON,
    Hit,
    Record,
    Schema,
    SinkError,
    SinkOptions,
    SinkUnavailableError,
    Storage,
    TellBuilding,
    Vector,
)
from corral_sinks._checks import check_payload, check_record, fault_of, file_of, source_of
from corral_sinks.qdrant._clients import MemoryQdrant, connect, place_of
from corral_sinks.qdrant._conditions import filter_of
from corral_sinks.qdrant._errors import Place, TooLargeError, TransientError, mapped_errors
from corral_sinks.qdrant._indexing import (
    DEFERRED,
    RESUMED,
    is_deferred,
    threshold_of,
    wait_until_built,
)
from corral_sinks.qdrant._schema import (
    TENANT_FIELD,
    created,
    index_params,
    schema_of,
    vector_of,
    vectors_from,
)
from corral_sinks.qdrant._stages import Nearest, Ranking, query_arguments, vectors_of
from corral_sinks.qdrant._upload import Limits, batches, record_bytes, retried
from corral_sinks.qdrant.embedded import EmbeddedQdrant

__all__ = ["QdrantSink"]

_T = TypeVar("_T")

FILE_FIELDS = ("metadata.file", "metadata.source")

_KINDS: Sequence[tuple[type, str]] = (
    (bool, "bool"),
    (int, "integer"),
    (float, "float"),
    (str, "keyword"),
)
"""Of JSON values; a bool, which is an int in Python, comes first."""
_PAGE = 1000
_PAGE_VECTORS = 256
_ID_BYTES = 40
_ADVICE = (
    " Check that the server runs and that address and port are right (REST is on 6333 unless "
    "changed), or store in a folder of this machine with --path DIR."
)


class QdrantSink:
    """One collection of a server, of the embedded engine, or in memory, as a sink.

    Args:
        options: exactly one of url and path, and the collection.
        client: use this one, and leave it open at the end; None to connect at the first call.
        limits: of requests and retries.

    Raises:
        SinkError: neither or both of url and path are given.
    """

    def __init__(
        self,
        options: SinkOptions,
        *,
        client: QdrantClient | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Keep the options; nothing is connected yet."""
        if client is None and (options.url is None) == (options.path is None):
            raise SinkError(
                "a Qdrant sink needs --url (a server) or --path (a folder, or :memory:), one of "
                "them."
            )
        self._options = options
        self._name = options.collection
        self._limits = limits or Limits()
        self._place = (
            place_of(options.url)
            if options.url is not None
            else Place(name=f"the Qdrant in {options.path or 'the given client'}")
        )
        self._client = client
        self._owned = client is None
        self._reached = False
        self._closed = False
        self._resumed = RESUMED
        self._schema: Schema | None = None

    @property
    def client(self) -> QdrantClient:
        """The client behind it, connected; it ends with the sink unless it was given.

        Raises:
            SinkError: it cannot be had, or the sink is closed.
        """
        if self._closed:
            raise SinkError(f"the sink for {self._place.name} is closed.")
        if self._client is None:
            self._client = connect(url=self._options.url, path=self._options.path)
        return self._client

    def _call(self, call: Callable[[int], _T]) -> _T:
        """Call the client: mapped errors, retries, and a shorter patience for the first contact."""

        def attempt(seconds: int) -> _T:
            with mapped_errors(self._place):
                return call(seconds)

        limits = self._limits
        seconds = limits.total_seconds if self._reached else limits.contact_seconds
        try:
            result = retried(attempt, limits=limits, seconds=seconds)
        except SinkUnavailableError as error:
            if self._reached or self._options.url is None:
                raise
            raise SinkUnavailableError(f"{error}{_ADVICE}") from error
        self._reached = True
        return result

    # Schema

    def schema(self) -> Schema | None:
        """What the collection is made of, or None where there is none yet.

        A single unnamed vector has the name "". Payload indexes have no effect in memory, and none
        are told of there.
        """
        client = self.client
        if not self._call(lambda _: client.collection_exists(self._name)):
            return None
        self._schema = schema_of(self._call(lambda _: client.get_collection(self._name)))
        return self._schema

    def _known_schema(self) -> Schema:
        schema = self._schema or self.schema()
        if schema is None:
            raise SinkError(f"{self._place.name} has no collection {self._name!r} yet.")
        return schema

    def create(self, schema: Schema) -> None:
        """Make the collection and its payload indexes; it must not exist.

        Raises:
            SinkError: it exists, or the server keeps no metadata (before version 1.16).
        """
        client = self.client
        if self._in_memory:
            _refuse_storage(schema)
        if self.schema() is not None:
            raise SinkError(f"{self._place.name} has a collection {self._name!r} already.")
        kinds = {**schema.indexes, **({TENANT_FIELD: "keyword"} if schema.tenants else {})}
        indexes = {
            field: index_params(field, kind, tenants=schema.tenants)
            for field, kind in kinds.items()
        }

        def make(seconds: int) -> None:
            # A try before this one may have made it, and its answer been lost.
            if not client.collection_exists(self._name):
                client.create_collection(
                    self._name,
                    **created(schema),
                    timeout=seconds,
                )

        self._call(make)
        for field, params in indexes.items():
            self._index(field, params)
        made = self.schema()
        if made is None or made.metadata != json.loads(json.dumps(schema.metadata)):
            raise SinkError(
                f"{self._place.name} did not keep the metadata of collection {self._name!r}. "
                "Servers keep it from version 1.16 on; use one, and delete this collection first."
            )

    # Replacing the collection

    def beside(self, key: str) -> "QdrantSink":
        """Give a sink for the collection that may replace this one; it uses this one's client.

        Args:
            key: eight hexadecimal digits; the collection's name is this one's, a dash and the key.
        """
        options = replace(self._options, collection=f"{self._name}-{key}")
        return QdrantSink(options, client=self.client, limits=self._limits)

    @property
    def is_plain(self) -> bool:
        """Whether there is a collection of this very name, and not one behind an alias."""
        return self._name in self.names()

    @property
    def can_set_apart(self) -> bool:
        """Whether a plain collection can be renamed; a server cannot."""
        return self._embedded is not None

    def aliases(self) -> Mapping[str, str]:
        """Name the place's aliases, and the collection that each leads to."""
        client = self.client
        found = self._call(lambda _: client.get_aliases()).aliases
        return {alias.alias_name: alias.collection_name for alias in found}

    def names(self) -> list[str]:
        """Name the place's collections, this one and all others."""
        client = self.client
        found = self._call(lambda _: client.get_collections()).collections
        return [collection.name for collection in found]

    def switch(self, key: str, *, old_key: str) -> None:
        """Let the name lead to the collection beside it, in one step.

        A plain collection that has the name is renamed where that can be done, and stays; on a
        server, where no alias may have its name, it is deleted just before.

        Args:
            key: of the collection that takes over, as for `beside`.
            old_key: that a plain collection is renamed by.
        """
        client, embedded = self.client, self._embedded
        if self.is_plain:
            if embedded is not None:
                embedded.set_apart(self._name, f"{self._name}-{old_key}")
            else:
                self._call(lambda seconds: client.delete_collection(self._name, timeout=seconds))
        made = models.CreateAlias(collection_name=f"{self._name}-{key}", alias_name=self._name)
        steps: list[models.AliasOperations] = [models.CreateAliasOperation(create_alias=made)]
        if self._behind() is not None:
            gone = models.DeleteAlias(alias_name=self._name)
            steps.insert(0, models.DeleteAliasOperation(delete_alias=gone))
        self._call(lambda seconds: client.update_collection_aliases(steps, timeout=seconds))
        self._schema = None

    def _behind(self) -> str | None:
        """Name the collection that the alias leads to."""
        return self.aliases().get(self._name)

    def replaced(self) -> list[str]:
        """Name the collections that the one in force has replaced, or was to be replaced by."""
        pattern = re.compile(re.escape(self._name) + "-[0-9a-f]{8}")
        current = self._behind()
        return sorted(name for name in self.names() if pattern.fullmatch(name) and name != current)

    def drop_replaced(self) -> list[str]:
        """Delete those; name them."""
        client, names = self.client, self.replaced()
        for name in names:
            self._call(lambda seconds, name=name: client.delete_collection(name, timeout=seconds))  # type: ignore[misc]
        return names

    def drop(self) -> tuple[str, int]:
        """Delete the collection, and every alias of it.

        Returns:
            Its own name, to which an alias may have led, and the points that it had; none are
            counted of one that is damaged.

        Raises:
            SinkError: there is none.
        """
        client, name = self.client, self._behind() or self._name
        if name not in self.names():
            raise SinkError(f"there is no collection {self._name!r} at {self._place.name}.")
        try:
            n_points = self.count()
        except SinkUnavailableError:
            raise
        except SinkError:
            n_points = 0
        self._call(lambda seconds: client.delete_collection(name, timeout=seconds))
        self._schema = None
        return name, n_points

    def index(self, field: str, kind: str) -> None:
        """Index a payload field; the same again is harmless.

        Raises:
            SinkError: the collection has an index of another type on it.
        """
        schema = self._known_schema()
        held = schema.indexes.get(field, kind)
        if held != kind:
            raise SinkError(
                f"collection {self._name!r} has an index of type {held} on {field}, not {kind}."
            )
        if field not in schema.indexes:
            tenants = self._options.tenant is not None
            self._index(field, index_params(field, kind, tenants=tenants))
            self._schema = None

    def _index(self, field: str, params: Any) -> None:  # noqa: ANN401 - of eight kinds
        client = self.client
        if self._in_memory:
            return
        self._applied(
            lambda seconds: client.create_payload_index(self._name, field, params, timeout=seconds)
        )

    # Writing

    def upsert(self, records: Sequence[Record]) -> None:
        """Write records, whole, overwriting those of equal id.

        Raises:
            SinkError: a record does not fit the schema, or alone is larger than a request may be;
                nothing of this call is written then.
            SinkUnavailableError: the server took longer than `total_seconds` for a batch; those
                before are written.
        """
        schema = self._known_schema()
        sized = [(record, self._size(record, schema)) for record in records]
        for batch in batches(sized, self._limits):
            self._send(batch)

    def _size(self, record: Record, schema: Schema) -> int:
        """Bytes that a record takes in a request; refuses one that fits in none."""
        size = record_bytes(record, check_record(record, schema))
        if size > self._limits.request_bytes and not (self._embedded or self._in_memory):
            size = len(_point(record).model_dump_json().encode())
            if size > self._limits.request_bytes:
                raise _oversized(record, f"{size:,} bytes as JSON", self._limits)
        return size

    @property
    def _embedded(self) -> EmbeddedQdrant | None:
        client: object = self.client  # typed as a QdrantClient, which it stands in for
        return client if isinstance(client, EmbeddedQdrant) else None

    @property
    def _in_memory(self) -> bool:
        return isinstance(self.client, MemoryQdrant)

    def _send(self, batch: Sequence[Record]) -> None:
        """Write a batch; in halves where the server takes less at once."""
        client = self.client
        points = [_point(record) for record in batch]
        try:
            self._applied(lambda seconds: client.upsert(self._name, points, timeout=seconds))
        except TooLargeError as error:
            if len(batch) == 1:
                raise _oversized(batch[0], str(error), self._limits) from error
            middle = len(batch) // 2
            self._send(batch[:middle])
            self._send(batch[middle:])

    def _applied(self, call: Callable[[int], models.UpdateResult]) -> None:
        """Call until the server says that a write was applied, not just accepted."""

        def checked(seconds: int) -> None:
            _refuse_unapplied(call(seconds), self._place)

        self._call(checked)

    def set_payload(self, payloads: Mapping[str, Mapping[str, JSON]]) -> None:
        """Replace payloads of stored records by id, whole, leaving the vectors alone."""
        client = self.client
        sized = [
            (
                models.OverwritePayloadOperation(
                    overwrite_payload=models.SetPayload(payload=dict(payload), points=[point])
                ),
                check_payload(payload, f"the new payload of record {point}"),
            )
            for point, payload in payloads.items()
        ]
        for batch in batches(sized, self._limits):

            def change(seconds: int, batch: list[models.OverwritePayloadOperation] = batch) -> None:
                for result in client.batch_update_points(self._name, batch, timeout=seconds):
                    _refuse_unapplied(result, self._place)

            self._call(change)

    def delete(self, ids: Iterable[str]) -> None:
        """Delete by id; unknown ids are ignored."""
        client = self.client
        for batch in batches(((point, _ID_BYTES) for point in ids), self._limits):
            selector = models.PointIdsList(points=list(batch))
            self._applied(
                lambda seconds, selector=selector: client.delete(  # type: ignore[misc]
                    self._name, selector, timeout=seconds
                )
            )

    # Reading

    def stored(self, source: str) -> Mapping[str, Mapping[str, JSON]]:
        """Payload's `metadata` by id, of all records of one file."""
        condition = models.Filter(should=[_equals(field, source) for field in FILE_FIELDS])
        return {
            str(point.id): (point.payload or {})["metadata"]
            for point in self._scroll(["metadata"], condition)
        }

    def sources(self) -> Iterator[str]:
        """Every file of the collection's records, once."""
        # No facet: it counts in segments, and wants to know beforehand how many there are.
        found = {file_of(point.payload or {}) for point in self._scroll(list(FILE_FIELDS))}
        return iter(sorted(source for source in found if source is not None))

    def records(self, *, vectors: bool = True, after: str | None = None) -> Iterator[Record]:
        """Yield every record in the order of their ids, its payload whole.

        Args:
            vectors: whether to bring the vectors along.
            after: the id behind which to begin; None for the first.
        """
        # Another program's collection may have numbers for ids.
        start = int(after) if after is not None and after.isdecimal() else after
        for point in self._scroll(None, vectors=vectors, start=start):
            if str(point.id) != after:
                found = vectors_from(point.vector) if vectors else {}
                yield Record(id=str(point.id), vectors=found, payload=point.payload or {})

    def payloads(self, ids: Sequence[str]) -> Mapping[str, Mapping[str, JSON]]:
        """Payloads of the records of these ids that there are, whole, by id."""
        found = self._call(
            lambda seconds: self.client.retrieve(
                self._name, list(ids), with_payload=True, timeout=seconds
            )
        )
        return {str(point.id): point.payload or {} for point in found}

    def info(self) -> models.CollectionInfo:
        """Return what Qdrant tells of the collection.

        Raises:
            SinkError: there is no such collection.
        """
        self._known_schema()
        return self._call(lambda _: self.client.get_collection(self._name))

    def _scroll(
        self,
        fields: list[str] | None,
        condition: models.Filter | None = None,
        *,
        vectors: bool = False,
        start: models.ExtendedPointId | None = None,
    ) -> Iterator[models.Record]:
        """Yield the records that meet the condition, with some fields of their payload, or all."""
        client = self.client
        offset = start
        condition = self._scoped(condition)
        while True:
            page, offset = self._call(
                lambda seconds, offset=offset: client.scroll(  # type: ignore[misc]
                    self._name,
                    scroll_filter=condition,
                    limit=_PAGE_VECTORS if vectors else _PAGE,
                    offset=offset,
                    with_payload=True if fields is None else fields,
                    with_vectors=vectors,
                    timeout=seconds,
                )
            )
            yield from page
            if offset is None:
                return

    def count(self) -> int:
        """Exact number of records."""
        client = self.client
        return self._call(
            lambda seconds: client.count(
                self._name, count_filter=self._scoped(None), exact=True, timeout=seconds
            )
        ).count

    def _scoped(self, condition: models.Filter | None) -> models.Filter | None:
        """Narrow a filter to the tenant's records, where there is a tenant."""
        if self._options.tenant is None:
            return condition
        own = _equals(TENANT_FIELD, self._options.tenant)
        return own if condition is None else models.Filter(must=[own, condition])

    def parse_filter(self, texts: Sequence[str]) -> models.Filter | None:
        """Read conditions as they are typed on the command line, which must all be met.

        Args:
            texts: each FIELD=VALUE, with !=, <, <=, > or >= in place of =, where FIELD is a name
                in the metadata; or a filter in Qdrant's own JSON.

        Raises:
            SinkError: a text is no condition, no record has the field, or the value is not of the
                field's kind: the type of its index, else what a record holds.
        """
        return filter_of(texts, self._kind_of)

    def _kind_of(self, field: str) -> str:
        """Say of which kind a field's values are."""
        indexed = self._known_schema().indexes.get(field)
        if indexed is not None:
            return indexed
        empty = models.IsEmptyCondition(is_empty=models.PayloadField(key=field))
        client = self.client
        page, _ = self._call(
            lambda seconds: client.scroll(
                self._name,
                scroll_filter=self._scoped(models.Filter(must_not=[empty])),
                limit=1,
                timeout=seconds,
            )
        )
        if not page:
            raise SinkError(
                f"no record of collection {self._name!r} has a field {field}; its metadata has "
                f"{', '.join(self._some_fields()) or 'no fields'}."
            )
        return _kind(_at(page[0].payload or {}, field), field)

    def _some_fields(self) -> list[str]:
        client = self.client
        scope = self._scoped(None)
        page, _ = self._call(
            lambda seconds: client.scroll(self._name, scroll_filter=scope, limit=1, timeout=seconds)
        )
        metadata = (page[0].payload or {}).get("metadata") if page else None
        return sorted(metadata or {})

    def search(
        self,
        vector: Vector,
        *,
        vector_name: str,
        limit: int,
        query_filter: models.Filter | None = None,
        score_threshold: float | None = None,
    ) -> Sequence[Hit]:
        """Return the records nearest to a vector, best first; as `rank` in all else."""
        ranking = Nearest(vector=vector, name=vector_name)
        return self.rank(
            ranking, limit=limit, query_filter=query_filter, score_threshold=score_threshold
        )

    def rank(
        self,
        ranking: Ranking,
        *,
        limit: int,
        query_filter: models.Filter | None = None,
        score_threshold: float | None = None,
        search_params: models.SearchParams | None = None,
    ) -> Sequence[Hit]:
        """Return the best records of a ranking, best first; many threads may search at once.

        Args:
            ranking: by which vectors, in which stages.
            limit: most records to return.
            query_filter: that they must meet; None takes all.
            score_threshold: that they must reach, in the scale of the last stage: the vector's
                distance, or the fusion's scores; None takes all.
            search_params: how every stage looks for vectors; None as Qdrant does by default.

        Raises:
            SinkError: there is no such vector, or it is of another kind or size.
        """
        client = self.client
        for name, vector in vectors_of(ranking):
            fault = fault_of(name, vector, self._known_schema())
            if fault is not None:
                raise SinkError(f"the query vector for {name!r} {fault}.")
        condition = self._scoped(query_filter)
        arguments = query_arguments(ranking, condition, search_params)
        found = self._call(
            lambda seconds: client.query_points(
                self._name,
                query_filter=condition,
                search_params=search_params,
                limit=limit,
                score_threshold=score_threshold,
                timeout=seconds,
                **arguments,
            )
        )
        return [
            Hit(id=str(point.id), score=point.score, payload=point.payload or {})
            for point in found.points
        ]

    # What a server does by itself

    def flush(self) -> None:
        """Make all that was written safe against power loss, where the store leaves that to us."""
        if self._embedded is not None:
            self._embedded.flush(self._name)

    def defer_indexing(self) -> None:
        """Let a server build no graph until `optimize`; the embedded engine builds none anyway.

        Searches compare with every vector meanwhile. A load that is broken off leaves it so, until
        a later one comes to its end.
        """
        if self._is_server:
            before = threshold_of(self.info())
            if before.indexing_threshold:
                self._resumed = before
            self._set_indexing(DEFERRED)

    def optimize(self, tell: TellBuilding | None = None) -> None:
        """Build the graphs of an embedded collection, or let a server build what was deferred.

        Args:
            tell: is told now and then how far it is: by a server how many points have a graph, by
                the embedded engine which graph it is at.

        Raises:
            SinkError: the optimiser failed.
        """
        if self._embedded is not None:
            self._embedded.optimize(self._name, tell)
        elif self._is_server and is_deferred(self.info()):
            self._set_indexing(self._resumed)
            wait_until_built(self.info, tell)

    @property
    def _is_server(self) -> bool:
        return not (self._embedded or self._in_memory)

    def _set_indexing(self, config: models.OptimizersConfigDiff) -> None:
        client = self.client
        self._call(
            lambda seconds: client.update_collection(
                self._name, optimizers_config=config, timeout=seconds
            )
        )

    def close(self) -> None:
        """Let go of the client, unless it was given; twice is harmless."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None and self._owned:
            with mapped_errors(self._place):
                client.close()


def _refuse_storage(schema: Schema) -> None:
    """Refuse what qdrant-client's local mode takes note of and does not do."""
    plain = all(params.storage == Storage() for params in schema.vectors.values())
    if not plain or schema.payload_on_disk is not None:
        raise SinkError(
            "a collection in memory keeps every vector as it is: it knows no datatype, no "
            "quantization and no disk. Take a folder (--path DIR) or a server (--url)."
        )


def _equals(field: str, value: str) -> models.Filter:
    match = models.MatchValue(value=value)
    return models.Filter(must=[models.FieldCondition(key=field, match=match)])


def _at(payload: Mapping[str, Any], path: str) -> Any:  # noqa: ANN401 - any JSON value
    """Give the value at a path of keys; of a list its first."""
    value: Any = payload
    for key in path.split("."):
        value = value[key]
        value = value[0] if isinstance(value, list) and value else value
    return value


def _kind(value: object, field: str) -> str:
    """Name the kind of a value as an index of it would be."""
    for kind, name in _KINDS:
        if isinstance(value, kind):
            return name
    raise SinkError(
        f"{field} holds a {type(value).__name__}, which is not written as FIELD=VALUE; give "
        "Qdrant's own filter in JSON."
    )


def _point(record: Record) -> models.PointStruct:
    return models.PointStruct(
        id=record.id,
        vector={name: vector_of(vector) for name, vector in record.vectors.items()},
        payload=dict(record.payload),
    )


def _oversized(record: Record, size: str, limits: Limits) -> SinkError:
    return SinkError(
        f"record {record.id} of {source_of(record.payload) or 'no source'!r} alone is larger than "
        f"the server takes in one request: {size} "
        f"(service.max_request_size_mb, {limits.request_bytes // 2**20} unless changed). Make "
        "chunks or metadata smaller."
    )


def _refuse_unapplied(result: models.UpdateResult, place: Place) -> None:
    if result.status is not models.UpdateStatus.COMPLETED:
        raise TransientError(
            f"{place.name} has accepted a write but not applied it ({result.status.value})."
        )
