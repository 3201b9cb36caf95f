"""One embedded collection: a shard of the engine and its sidecar."""

import logging
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import numpy as np
import qdrant_edge as qe
from qdrant_client import models

from corral_sinks import Building, SinkError, SinkUnavailableError, TellBuilding
from corral_sinks._checks import vector_fault
from corral_sinks._files import sync_folder
from corral_sinks.qdrant._errors import Place, mapped_errors
from corral_sinks.qdrant._optimizing import optimize_apart
from corral_sinks.qdrant._params import HNSW, edge_config, edge_index
from corral_sinks.qdrant._sidecar import Sidecar
from corral_sinks.qdrant._space import DELETE_BYTES, WRITE_BYTES, held_bytes, require_space
from corral_sinks.qdrant._steps import clear, has_graph, step_of

__all__ = ["SCRATCH", "EmbeddedCollection", "remove_collection"]

log = logging.getLogger(__name__)

SCRATCH = ".scratch-"
"""Begins the name of a folder that a crash may leave behind, and that the next opener removes."""

_MULTIVECTOR_NDIM = 2
_WORTH_A_PROCESS = 10 * 2**20
"""Bytes of vectors without a graph: fewer the engine does not index, or in a moment."""


class EmbeddedCollection:
    """An open shard and its sidecar; the caller owns the folder.

    Args:
        folder: holds both.
    """

    def __init__(self, folder: Path) -> None:
        """Open what is there.

        Raises:
            SinkError: it is not ours, or the engine cannot load it.
        """
        self.folder = folder
        self._guard = threading.RLock()
        self.place = Place(name=f"the embedded collection {folder.name!r} in {folder.parent}")
        self.sidecar = Sidecar.read(folder)
        self._shard = _loaded(folder, self.place)

    @classmethod
    def create(cls, folder: Path, sidecar: Sidecar) -> Self:
        """Make a collection that is there whole or not at all, and open it."""
        scratch = folder.with_name(f"{SCRATCH}{uuid4()}")
        config = edge_config(
            sidecar.vectors,
            sidecar.sparse_vectors,
            sidecar.hnsw_config,
            on_disk_payload=sidecar.on_disk_payload,
        )
        with mapped_errors(Place(name=f"the embedded Qdrant in {folder.parent}")):
            require_space(
                folder.parent,
                WRITE_BYTES,
                Place(name=f"the embedded Qdrant in {folder.parent}"),
                purpose="a collection",
            )
            scratch.mkdir()
            shard = qe.EdgeShard.create(str(scratch), config)
            shard.flush()
            shard.close()
            sidecar.write(scratch)
            scratch.rename(folder)
            sync_folder(folder.parent)
        return cls(folder)

    @contextmanager
    def shard(self) -> Iterator[qe.EdgeShard]:
        """Give the shard for a call; what the engine raises in the block is mapped.

        One call runs at a time: the engine holds the GIL, so that side by side none would be
        quicker, and while another process optimises the shard there is none to call.
        """
        with self._guard, mapped_errors(self.place):
            yield self._shard

    def change(self, **changes: Any) -> None:  # noqa: ANN401
        """Write a sidecar with other values, then go by it."""
        sidecar = self.sidecar.model_copy(update=changes)
        with mapped_errors(self.place):
            sidecar.write(self.folder)
        self.sidecar = sidecar

    def update(self, operation: qe.UpdateOperation) -> None:
        """Apply an operation; it is in the write-ahead log when this returns.

        Raises:
            SinkError: the engine refused it, or the disk may have no room for it.
        """
        with self.shard() as shard:
            require_space(self.folder, WRITE_BYTES, self.place, purpose="a write")
            shard.update(operation)

    def delete(self, operation: qe.UpdateOperation) -> None:
        """Apply an operation that deletes, for which a nearly full disk has room."""
        with self.shard() as shard:
            require_space(self.folder, DELETE_BYTES, self.place, purpose="a deletion")
            shard.update(operation)

    def optimize(self, tell: TellBuilding | None = None) -> bool:
        """Build what makes searches fast; False if nothing was to do, or there is no room for it.

        The engine writes a copy of what it optimises. Where the disk may not hold that, a warning
        is logged, and searches go on as exact scans. Where there is much to do, another process
        does it, since the engine would stop every thread of this one; calls wait meanwhile.

        Args:
            tell: is told now and then how long that takes and which graph it is at.
        """
        with self.shard() as shard:
            needed = held_bytes(self.folder) + WRITE_BYTES
            try:
                require_space(self.folder, needed, self.place, purpose="optimising")
            except SinkError as error:
                log.warning("not optimised, searches scan: %s", error)
                return False
            if self._unindexed_bytes(shard) < _WORTH_A_PROCESS:
                return shard.optimize()
            return self._optimize_apart(shard, tell)

    def _unindexed_bytes(self, shard: qe.EdgeShard) -> int:
        """Bytes, about, of the vectors that lack a graph and are to have one."""
        indexed, points = self._progress(shard)
        sizes = [params.size for params in self.sidecar.vectors.values() if has_graph(params)]
        return 4 * (points - indexed) * sum(sizes)

    def _progress(self, shard: qe.EdgeShard) -> tuple[int, int]:
        """Return how many points' dense vectors are indexed, and of how many."""
        info = shard.info()
        points: int = info.points_count
        # Sparse vectors are indexed as they come, and counted with the others.
        dense = info.indexed_vectors_count - points * len(self.sidecar.sparse_vectors)
        return min(points, max(0, dense) // max(1, len(self.sidecar.vectors))), points

    def _optimize_apart(self, shard: qe.EdgeShard, tell: TellBuilding | None) -> bool:
        """Let another process have the shard meanwhile; it is open again in any case."""
        _, points = self._progress(shard)
        began = time.monotonic()

        def say() -> None:
            if tell is not None:
                step, seconds = step_of(self.folder, self.sidecar.vectors), time.monotonic() - began
                tell(Building(points=points, indexed=None, step=step, seconds=seconds))

        shard.flush()
        shard.close()
        try:
            return optimize_apart(self.folder, self.place, tell=say)
        finally:
            self._shard = _loaded(self.folder, self.place)

    def index(self, field: str, params: models.PayloadSchemaParams) -> None:
        """Index a payload field; the same again is harmless."""
        self.update(qe.UpdateOperation.create_field_index(field, edge_index(params)))
        self.change(indexes={**self.sidecar.indexes, field: params})

    def point(self, given: models.PointStruct) -> qe.Point:
        """Translate a point.

        Raises:
            SinkError: a vector or the id does not fit.
        """
        vectors = given.vector if isinstance(given.vector, dict) else {"": given.vector}
        with mapped_errors(self.place):
            return qe.Point(
                given.id,
                {name: self._vector(given.id, name, vector) for name, vector in vectors.items()},
                given.payload or {},
            )

    def _vector(self, point: object, name: str, given: object) -> Any:  # noqa: ANN401
        if isinstance(given, models.SparseVector) and name in self.sidecar.sparse_vectors:
            if not np.isfinite(given.values).all():
                raise SinkError(f"point {point}: its vector {name!r} is not finite.")
            return qe.SparseVector(given.indices, given.values)
        params = self.sidecar.vectors.get(name)
        if params is None:
            known = [*self.sidecar.vectors, *self.sidecar.sparse_vectors]
            raise SinkError(
                f"point {point}: {self.place.name} has no vector {name!r} of that kind; it has "
                f"{known}."
            )
        if not isinstance(given, list | np.ndarray):
            raise SinkError(
                f"point {point}: its vector {name!r} is a {type(given).__name__}, not numbers; the "
                "embedded Qdrant embeds nothing itself."
            )
        return _checked(point, name, given, params)

    def info(self) -> models.CollectionInfo:
        """Describe the collection as a server would."""
        with self.shard() as shard:
            found = shard.info()
        sidecar = self.sidecar
        return models.CollectionInfo(
            status=models.CollectionStatus.GREEN,
            optimizer_status=models.OptimizersStatusOneOf.OK,
            points_count=found.points_count,
            indexed_vectors_count=found.indexed_vectors_count,
            segments_count=found.segments_count,
            config=models.CollectionConfig(
                params=models.CollectionParams(
                    vectors=sidecar.vectors.get("", sidecar.vectors),
                    sparse_vectors=sidecar.sparse_vectors or None,
                    on_disk_payload=sidecar.on_disk_payload,
                ),
                hnsw_config=HNSW.model_copy(
                    update=sidecar.hnsw_config.model_dump(exclude_none=True)
                    if sidecar.hnsw_config
                    else {}
                ),
                # The engine optimises when told, and flushes when told.
                optimizer_config=models.OptimizersConfig(
                    default_segment_number=0, flush_interval_sec=0
                ),
                metadata=sidecar.metadata or None,
            ),
            payload_schema={
                field: models.PayloadIndexInfo(
                    data_type=models.PayloadSchemaType(params.type.value),
                    params=params,
                    points=found.payload_schema[field].points,
                )
                for field, params in sidecar.indexes.items()
            },
        )

    def close(self) -> None:
        """Flush, then let go of the shard; closing it is tried even if flushing fails."""
        with self.shard() as shard:
            try:
                shard.flush()
            finally:
                shard.close()


def remove_collection(folder: Path) -> None:
    """Delete one that is closed, damaged or not; a crash on the way leaves it whole or gone."""
    scratch = folder.with_name(f"{SCRATCH}{uuid4()}")
    folder.rename(scratch)
    sync_folder(scratch.parent)
    shutil.rmtree(scratch)


def _loaded(folder: Path, place: Place) -> qe.EdgeShard:
    """Load a shard; the engine would make an empty one where the segments are lost.

    Raises:
        SinkUnavailableError: another process has it open, though the folder's lock was free.
        SinkError: files are damaged or missing.
    """
    advice = (
        f"Its files are damaged or missing: bring back a copy of {folder}, or delete that folder "
        "and ingest again."
    )
    if not any((folder / "segments").glob("*/")):
        raise SinkError(f"{place.name} has no segments. {advice}")
    try:
        with mapped_errors(place):
            shard = qe.EdgeShard.load(str(folder))
    except SinkError as error:
        if "WouldBlock" in str(error):
            raise SinkUnavailableError(
                f"{place.name} is open in another process: one that optimises it has outlived the "
                "run that began it, or another program uses the folder. Wait until it ends."
            ) from error
        raise SinkError(f"{error} {advice}") from error
    clear(folder)
    return shard


def _checked(
    point: object,
    name: str,
    given: Sequence[Any] | np.ndarray[Any, Any],
    params: models.VectorParams,
) -> Any:  # noqa: ANN401
    """Return a dense vector or multivector as the engine takes it, or refuse it."""
    vector = np.asarray(given, dtype=np.float32)
    several = params.multivector_config is not None
    rows = vector if several and vector.ndim == _MULTIVECTOR_NDIM and len(vector) else [vector]
    for row in rows:
        fault = vector_fault(row, params.size, directed=params.distance is models.Distance.COSINE)
        if fault is not None:
            raise SinkError(f"point {point}: its vector {name!r} {fault}.")
    return vector.tolist()  # which the engine takes in half the time of an array
