"""The embedded engine behind the part of QdrantClient's surface that readers and writers use."""

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Self
from uuid import UUID

import qdrant_edge as qe
from qdrant_client import QdrantClient, models
from qdrant_client.http.models import QueryResponse

from corral_sinks import SinkError, TellBuilding
from corral_sinks._files import collection_name as checked_name
from corral_sinks._files import sync_folder
from corral_sinks._lock import OwnerLock
from corral_sinks.qdrant._aliases import ALIASES, Aliases
from corral_sinks.qdrant._collection import SCRATCH, EmbeddedCollection, remove_collection
from corral_sinks.qdrant._errors import Place, mapped_errors
from corral_sinks.qdrant._filters import edge_filter
from corral_sinks.qdrant._params import index_params
from corral_sinks.qdrant._queries import (
    edge_payload,
    edge_prefetches,
    edge_query,
    edge_search,
    record,
    scored,
)
from corral_sinks.qdrant._sidecar import SIDECAR, Sidecar

__all__ = ["EmbeddedQdrant"]

_LOCK = ".corral.lock"
_DONE = models.UpdateResult(status=models.UpdateStatus.COMPLETED)
_TRIVIAL = frozenset({"consistency", "ordering", "timeout", "wait"})
"""Options of a cluster that one copy in one process meets by itself."""
_MODES = {
    None: qe.UpdateMode.Upsert,
    models.UpdateMode.UPSERT: qe.UpdateMode.Upsert,
    models.UpdateMode.INSERT_ONLY: qe.UpdateMode.InsertOnly,
    models.UpdateMode.UPDATE_ONLY: qe.UpdateMode.UpdateOnly,
}

_PointsSelector = (
    models.Filter | models.FilterSelector | models.PointIdsList | Sequence[int | str | UUID]
)


class EmbeddedQdrant:
    """Qdrant's own engine in this process, over a folder.

    It takes and gives `qdrant_client.models`, and stands in for a QdrantClient wherever only the
    methods below are called, as langchain-qdrant's QdrantVectorStore does. What QdrantClient can
    and this cannot do is refused with the reason, never ignored; `wait`, `ordering`, `timeout` and
    `consistency` are accepted, since every call here is done when it returns.

    One folder holds any number of collections, a sub-folder each. One client owns it at a time.
    A write is in the write-ahead log when its call returns, so it outlives this process, however
    that ends; `flush` makes it safe against power loss too. Until `optimize` searches are exact
    scans. Any number of threads may call, but the engine holds the GIL while it works, so that no
    other Python thread runs meanwhile; a long `optimize` works in another process.

    Args:
        path: the folder. It is made with the first collection.

    Raises:
        SinkUnavailableError: another client, here or in another process, holds the folder.
        SinkError: the folder is another program's, or cannot be used.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Take hold of the folder if it is there."""
        self._root = Path(path)
        self._place = Place(name=f"the embedded Qdrant in {self._root}")
        self._guard = threading.RLock()
        self._open: dict[str, EmbeddedCollection] = {}
        self._lock: OwnerLock | None = None
        self._aliases = Aliases(self._root)
        self._closed = False
        if os.path.lexists(self._root):
            self._hold()

    def _hold(self) -> None:
        """Own the folder from here on."""
        if os.path.lexists(self._root) and not self._root.is_dir():
            raise SinkError(f"{self._root} is a file; --path is a folder for the embedded Qdrant.")
        with mapped_errors(self._place):
            self._root.mkdir(parents=True, exist_ok=True)
            if not (self._root / _LOCK).exists():
                _refuse_strangers(self._root)
            self._lock = OwnerLock(self._root / _LOCK, str(self._place.name))
            for scratch in self._root.glob(f"{SCRATCH}*"):
                shutil.rmtree(scratch)

    def _collection(self, name: str) -> EmbeddedCollection:
        """Return an open collection; opens it at its first use."""
        with self._guard:
            self._refuse_closed()
            asked, name = name, self._aliases.resolve(checked_name(name))
            found = self._open.get(name)
            if found is None:
                if not self.collection_exists(name):
                    raise SinkError(
                        f"{self._place.name} has no collection {asked!r}; it has "
                        f"{[known.name for known in self.get_collections().collections]}."
                    )
                found = self._open[name] = EmbeddedCollection(self._root / name)
            return found

    def _refuse_closed(self) -> None:
        if self._closed:
            raise SinkError(f"{self._place.name} is closed.")

    # Collections

    def collection_exists(self, collection_name: str) -> bool:
        """Whether a collection of that name is there."""
        self._refuse_closed()
        return (self._root / self._aliases.resolve(checked_name(collection_name))).is_dir()

    def get_collections(self) -> models.CollectionsResponse:
        """Name the folder's collections."""
        self._refuse_closed()
        return models.CollectionsResponse(
            collections=[models.CollectionDescription(name=name) for name in self._names()]
        )

    def _names(self) -> list[str]:
        """Name the collections, those too that lost their sidecar."""
        with mapped_errors(self._place):
            parts = [*self._root.glob(f"*/{SIDECAR}"), *self._root.glob("*/segments")]
        names = {part.parent.name for part in parts}
        return sorted(name for name in names if not name.startswith(SCRATCH))

    def get_collection(self, collection_name: str) -> models.CollectionInfo:
        """Describe a collection: vectors, indexes, metadata, counts."""
        return self._collection(collection_name).info()

    def create_collection(
        self,
        collection_name: str,
        vectors_config: models.VectorParams | Mapping[str, models.VectorParams] | None = None,
        sparse_vectors_config: Mapping[str, models.SparseVectorParams] | None = None,
        hnsw_config: models.HnswConfigDiff | None = None,
        metadata: Mapping[str, Any] | None = None,
        on_disk_payload: bool | None = None,
        **options: Any,  # noqa: ANN401
    ) -> bool:
        """Make a collection; it must not exist."""
        _refuse_options("create_collection", options)
        vectors = (
            {"": vectors_config}
            if isinstance(vectors_config, models.VectorParams)
            else dict(vectors_config or {})
        )
        sidecar = Sidecar(
            vectors=vectors,
            sparse_vectors=dict(sparse_vectors_config or {}),
            hnsw_config=hnsw_config,
            on_disk_payload=on_disk_payload,
            metadata=dict(metadata or {}),
        )
        with self._guard:
            if self.collection_exists(collection_name):
                raise SinkError(f"{self._place.name} has a collection {collection_name!r} already.")
            if self._lock is None:
                self._hold()
            self._open[collection_name] = EmbeddedCollection.create(
                self._root / collection_name, sidecar
            )
        return True

    def update_collection(
        self,
        collection_name: str,
        metadata: Mapping[str, Any] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> bool:
        """Merge metadata into a collection's; other settings stay as they were made."""
        _refuse_options("update_collection", options)
        with self._guard:
            collection = self._collection(collection_name)
            collection.change(metadata={**collection.sidecar.metadata, **(metadata or {})})
        return True

    def delete_collection(self, collection_name: str, **options: Any) -> bool:  # noqa: ANN401
        """Delete a collection and its files; False if there was none."""
        _refuse_options("delete_collection", options)
        with self._guard:
            self._refuse_closed()
            name = checked_name(collection_name)
            if name not in self._names():
                return False
            if (opened := self._open.pop(name, None)) is not None:
                opened.close()
            with mapped_errors(self._place):
                self._aliases.forget(name)
                remove_collection(self._root / name)
        return True

    def get_aliases(self) -> models.CollectionsAliasesResponse:
        """Name the aliases, and the collection that each stands for."""
        self._refuse_closed()
        return models.CollectionsAliasesResponse(
            aliases=[
                models.AliasDescription(alias_name=alias, collection_name=name)
                for alias, name in sorted(self._aliases.read().items())
            ]
        )

    def update_collection_aliases(
        self,
        change_aliases_operations: Sequence[models.AliasOperations],
        **options: Any,  # noqa: ANN401
    ) -> bool:
        """Change aliases, all in one step; one that is there already is moved.

        Raises:
            SinkError: there is no such collection, or one has the alias's name.
        """
        _refuse_options("update_collection_aliases", options)
        with self._guard:
            changed = self._aliases.read()
            for operation in change_aliases_operations:
                match operation:
                    case models.CreateAliasOperation(create_alias=made):
                        self._refuse_alias(made.alias_name, made.collection_name)
                        changed[made.alias_name] = made.collection_name
                    case models.DeleteAliasOperation(delete_alias=gone):
                        changed.pop(gone.alias_name, None)
                    case models.RenameAliasOperation():
                        raise SinkError("corral's embedded Qdrant renames no alias; make another.")
            with mapped_errors(self._place):
                self._aliases.write(changed)
        return True

    def _refuse_alias(self, alias: str, name: str) -> None:
        self._collection(name)
        if (self._root / checked_name(alias)).is_dir():
            raise SinkError(f"{self._place.name} has a collection {alias!r} already.")

    def set_apart(self, collection_name: str, new_name: str) -> None:
        """Rename a collection, and leave its name as an alias for it.

        A crash at any moment leaves the collection to be found under its old name.

        Raises:
            SinkError: there is no such collection, or one has the new name.
        """
        with self._guard, mapped_errors(self._place):
            found = self._collection(collection_name)
            if (self._root / checked_name(new_name)).is_dir():
                raise SinkError(f"{self._place.name} has a collection {new_name!r} already.")
            self._aliases.write({**self._aliases.read(), collection_name: new_name})
            del self._open[collection_name]
            found.close()
            found.folder.rename(self._root / new_name)
            sync_folder(self._root)

    def create_payload_index(
        self,
        collection_name: str,
        field_name: str,
        field_schema: models.PayloadSchemaType | models.PayloadSchemaParams,
        **options: Any,  # noqa: ANN401
    ) -> models.UpdateResult:
        """Index a payload field."""
        _refuse_options("create_payload_index", options)
        with self._guard:
            self._collection(collection_name).index(field_name, index_params(field_schema))
        return _DONE

    # Writing

    def upsert(
        self,
        collection_name: str,
        points: Sequence[models.PointStruct],
        update_filter: models.Filter | None = None,
        update_mode: models.UpdateMode | None = None,
        **options: Any,  # noqa: ANN401
    ) -> models.UpdateResult:
        """Write points, all or none.

        Raises:
            SinkError: a vector is undeclared, not finite, of another length, or without direction
                under cosine; an id is neither an unsigned integer nor a UUID.
        """
        _refuse_options("upsert", options)
        if not isinstance(points, Sequence):
            raise SinkError(f"upsert takes a list of PointStruct; got a {type(points).__name__}.")
        collection = self._collection(collection_name)
        translated = [collection.point(point) for point in points]
        collection.update(
            qe.UpdateOperation.upsert_points(
                translated, condition=edge_filter(update_filter), update_mode=_MODES[update_mode]
            )
        )
        return _DONE

    def delete(
        self,
        collection_name: str,
        points_selector: _PointsSelector,
        **options: Any,  # noqa: ANN401
    ) -> models.UpdateResult:
        """Delete points by id or by filter; unknown ids are ignored."""
        _refuse_options("delete", options)
        collection = self._collection(collection_name)
        collection.delete(
            _operation(
                collection,
                points_selector,
                qe.UpdateOperation.delete_points,
                qe.UpdateOperation.delete_points_by_filter,
            )
        )
        return _DONE

    def set_payload(
        self,
        collection_name: str,
        payload: Mapping[str, Any],
        points: _PointsSelector,
        key: str | None = None,
        **options: Any,  # noqa: ANN401
    ) -> models.UpdateResult:
        """Set fields of points' payloads, keeping the others."""
        _refuse_options("set_payload", options)
        operations = (
            qe.UpdateOperation.set_payload,
            qe.UpdateOperation.set_payload_by_filter,
        )
        return self._change(collection_name, points, operations, payload, key)

    def overwrite_payload(
        self,
        collection_name: str,
        payload: Mapping[str, Any],
        points: _PointsSelector,
        key: str | None = None,
        **options: Any,  # noqa: ANN401
    ) -> models.UpdateResult:
        """Replace points' payloads whole."""
        _refuse_options("overwrite_payload", options)
        operations = (
            qe.UpdateOperation.overwrite_payload,
            qe.UpdateOperation.overwrite_payload_by_filter,
        )
        return self._change(collection_name, points, operations, payload, key)

    def _change(
        self,
        name: str,
        points: _PointsSelector,
        operations: tuple[Callable[..., qe.UpdateOperation], Callable[..., qe.UpdateOperation]],
        payload: Mapping[str, Any],
        key: str | None,
    ) -> models.UpdateResult:
        by_ids, by_filter = operations
        collection = self._collection(name)
        collection.update(
            _operation(
                collection,
                points,
                lambda ids: by_ids(ids, dict(payload), key),
                lambda condition: by_filter(condition, dict(payload), key),
            )
        )
        return _DONE

    def batch_update_points(
        self,
        collection_name: str,
        update_operations: Sequence[object],
        **options: Any,  # noqa: ANN401
    ) -> list[models.UpdateResult]:
        """Apply several operations in order: upserts of points, deletions, payload changes."""
        _refuse_options("batch_update_points", options)
        return [self._apply(collection_name, operation) for operation in update_operations]

    def _apply(self, name: str, operation: object) -> models.UpdateResult:
        match operation:
            case models.UpsertOperation(upsert=models.PointsList(points=points)):
                return self.upsert(name, points)
            case models.DeleteOperation(delete=selector):
                return self.delete(name, selector)
            case models.SetPayloadOperation(set_payload=change):
                return self.set_payload(name, change.payload, _selected(change), change.key)
            case models.OverwritePayloadOperation(overwrite_payload=change):
                return self.overwrite_payload(name, change.payload, _selected(change), change.key)
        raise SinkError(
            f"corral's embedded Qdrant applies no {type(operation).__name__} of that form."
        )

    # Reading

    def query_points(
        self,
        collection_name: str,
        query: object = None,
        using: str | None = None,
        prefetch: models.Prefetch | Sequence[models.Prefetch] | None = None,
        query_filter: models.Filter | None = None,
        search_params: models.SearchParams | None = None,
        limit: int = 10,
        offset: int | None = None,
        with_payload: object = True,
        with_vectors: bool | Sequence[str] = False,
        score_threshold: float | None = None,
        **options: Any,  # noqa: ANN401
    ) -> QueryResponse:
        """Rank points by a vector or another query, through any stages before."""
        _refuse_options("query_points", options)
        collection = self._collection(collection_name)
        with collection.shard() as shard:
            found = shard.query(
                qe.QueryRequest(
                    limit=limit,
                    offset=offset,
                    query=edge_query(query, using, limit),
                    prefetches=edge_prefetches(prefetch),
                    filter=edge_filter(query_filter),
                    params=edge_search(search_params),
                    score_threshold=score_threshold,
                    with_payload=edge_payload(with_payload),
                    with_vector=_vectors(with_vectors),
                )
            )
        return QueryResponse(points=[scored(point) for point in found])

    def retrieve(
        self,
        collection_name: str,
        ids: Sequence[int | str | UUID],
        with_payload: object = True,
        with_vectors: bool | Sequence[str] = False,
        **options: Any,  # noqa: ANN401
    ) -> list[models.Record]:
        """Return points by id; unknown ids are left out."""
        _refuse_options("retrieve", options)
        collection = self._collection(collection_name)
        with collection.shard() as shard:
            found = shard.retrieve(list(ids), edge_payload(with_payload), _vectors(with_vectors))
        return [record(point) for point in found]

    def scroll(
        self,
        collection_name: str,
        scroll_filter: models.Filter | None = None,
        limit: int = 10,
        order_by: str | models.OrderBy | None = None,
        offset: int | str | UUID | None = None,
        with_payload: object = True,
        with_vectors: bool | Sequence[str] = False,
        **options: Any,  # noqa: ANN401
    ) -> tuple[list[models.Record], int | str | None]:
        """Return a page of points, and the id that the next page begins with, or None."""
        _refuse_options("scroll", options)
        collection = self._collection(collection_name)
        order = None if order_by is None else models.OrderByQuery(order_by=order_by)
        with collection.shard() as shard:
            found, following = shard.scroll(
                qe.ScrollRequest(
                    offset=offset,
                    limit=limit,
                    filter=edge_filter(scroll_filter),
                    with_payload=edge_payload(with_payload),
                    with_vector=_vectors(with_vectors),
                    order_by=edge_query(order, None, limit),
                )
            )
        following = str(following) if isinstance(following, UUID) else following
        return [record(point) for point in found], following

    def count(
        self,
        collection_name: str,
        count_filter: models.Filter | None = None,
        exact: bool = True,
        **options: Any,  # noqa: ANN401
    ) -> models.CountResult:
        """Count points."""
        _refuse_options("count", options)
        collection = self._collection(collection_name)
        with collection.shard() as shard:
            request = qe.CountRequest(exact=exact, filter=edge_filter(count_filter))
            return models.CountResult(count=shard.count(request))

    # What a server does by itself

    def flush(self, collection_name: str) -> None:
        """Make what was written safe against power loss."""
        collection = self._collection(collection_name)
        with collection.shard() as shard:
            shard.flush()

    def optimize(self, collection_name: str, tell: TellBuilding | None = None) -> bool:
        """Build the HNSW graph where there is enough to index; False if nothing was to do.

        Args:
            collection_name: of the collection.
            tell: is told now and then how long it takes and which graph it is at.
        """
        return self._collection(collection_name).optimize(tell)

    def close(self) -> None:
        """Flush all, let go of the folder; twice is harmless."""
        with self._guard, contextlib.ExitStack() as stack:
            self._closed = True
            if self._lock is not None:
                stack.callback(self._lock.release)
            for collection in self._open.values():
                stack.callback(collection.close)
            self._open.clear()

    def __enter__(self) -> Self:
        """Use it for a block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse what QdrantClient has and this has not, with the reason."""
        if hasattr(QdrantClient, name):
            raise AttributeError(
                f"corral's embedded Qdrant has no {name}: the engine in this process is one shard "
                "without snapshots or cluster, and corral wraps the calls that reading "
                "and writing need. A Qdrant server has it (--url)."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _refuse_strangers(root: Path) -> None:
    """Refuse a folder that holds something else than collections."""
    strangers = sorted(
        entry.name
        for entry in root.iterdir()
        if not (entry / SIDECAR).is_file()
        and entry.name != ALIASES
        and not entry.name.startswith(SCRATCH)
    )
    if strangers:
        raise SinkError(
            f"{root} was not made by corral: it holds {', '.join(strangers[:3])}"
            f"{', ...' if len(strangers) > 3 else ''}. Give a new or an empty folder."  # noqa: PLR2004
        )


def _refuse_options(method: str, options: Mapping[str, object]) -> None:
    odd = sorted(name for name in options.keys() - _TRIVIAL if options[name] is not None)
    if odd:
        raise SinkError(
            f"{method} of corral's embedded Qdrant knows no {', '.join(odd)}: one shard in one "
            "process has no such setting, or corral does not translate it. A server has it."
        )


def _operation(
    collection: EmbeddedCollection,
    selector: _PointsSelector,
    by_ids: Callable[[list[int | UUID | str]], qe.UpdateOperation],
    by_filter: Callable[[qe.Filter], qe.UpdateOperation],
) -> qe.UpdateOperation:
    """Make the operation for the points that a selector names."""
    given = selector
    if isinstance(given, models.FilterSelector):
        given = given.filter
    if isinstance(given, models.PointIdsList):
        given = given.points
    with mapped_errors(collection.place):
        if isinstance(given, models.Filter):
            return by_filter(edge_filter(given) or qe.Filter())
        return by_ids(list(given))


def _selected(change: models.SetPayload) -> _PointsSelector:
    if change.points is not None:
        return change.points
    if change.filter is None:
        raise SinkError("a change of payloads needs points or a filter.")
    return change.filter


def _vectors(given: bool | Sequence[str]) -> bool | list[str]:
    return given if isinstance(given, bool) else list(given)
