"""Store records: the contract, and one kind of store a module.

A sink is found by name through the entry point group `corral.sinks`; each entry is a callable
`(options) -> Sink`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "INDEX_TYPES",
    "JSON",
    "Building",
    "Hit",
    "Record",
    "Schema",
    "Sink",
    "SinkError",
    "SinkFactory",
    "SinkOptions",
    "SinkUnavailableError",
    "SparseParams",
    "SparseVector",
    "Storage",
    "Tell",
    "TellBuilding",
    "Vector",
    "VectorParams",
    "without_storage",
]

INDEX_TYPES = ("bool", "datetime", "float", "geo", "integer", "keyword", "text", "uuid")
"""Of payload fields, by Qdrant's names."""

JSON = None | bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"]
"""A JSON value."""


Tell = Callable[[int, int], None]
"""Is told how much is done, and of how much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Building:
    """How far a store is with what makes searches fast.

    Args:
        points: records that the collection has.
        indexed: how many of them are done; None where the store cannot tell while it works.
        step: what it is at; "" where that is not known.
        seconds: since it began.
    """

    points: int
    indexed: int | None
    step: str = ""
    seconds: float

    def __str__(self) -> str:
        """Say it on one line."""
        done = "" if self.indexed is None else f"{self.indexed:,} of "
        step = f", {self.step}" if self.step else ""
        return f"indexing {done}{self.points:,} points{step}, for {self.seconds:,.0f} s"


TellBuilding = Callable[[Building], None]
"""Is told how far a store is."""


class SinkError(Exception):
    """The store refused or failed; its own words are in the message."""


class SinkUnavailableError(SinkError):
    """The store could not be reached or is held by another process: trying later may help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Where to store.

    Args:
        collection: name of the collection.
        url: address of a server, or None. Secrets come from the environment, never from here.
        path: a folder of this machine, or ":memory:", or None.
        tenant: whose records alone are seen and searched, those whose `metadata.tenant` it is;
            None sees all.
    """

    collection: str
    url: str | None = None
    path: str | None = None
    tenant: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """How a vector is kept; what a store cannot do of it, it refuses.

    Args:
        datatype: of the vector itself: "float32", "float16", or "turbo4", "turbo8", "turbo16".
        quantization: of the copy that a search goes through before it looks at the vector itself:
            "scalar" (a byte a dimension), "product:x4" to "product:x64", "binary:1", "binary:1.5"
            or "binary:2", "turbo:1" to "turbo:8" (bits a dimension), or None for no copy.
        on_disk: whether the vector itself is read from the disk, and only the copy and the graph
            are held in memory.
    """

    datatype: str = "float32"
    quantization: str | None = None
    on_disk: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorParams:
    """One named dense vector, or multivector, of a collection.

    Args:
        size: dimensions; of a multivector those of each of its rows.
        distance: "cosine" is what corral writes; another one may be found in a foreign collection.
        multivector: whether a record has any number of rows under this name, compared by MaxSim.
        indexed: whether searches by it go through a graph (HNSW); one that only orders anew what
            another vector found needs none.
        storage: how it is kept.
    """

    size: int
    distance: str = "cosine"
    multivector: bool = False
    indexed: bool = True
    storage: Storage = Storage()


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseParams:
    """One named sparse vector of a collection; its values are compared by their dot product.

    Args:
        idf: whether the store weighs each index by how few of its records have it, as BM25 wants.
    """

    idf: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """What a collection is made of.

    Args:
        vectors: its dense vectors and multivectors by name.
        sparse_vectors: its sparse vectors by name.
        metadata: JSON kept with the collection (corral keeps its fingerprint there).
        indexes: payload fields that carry an index, and its type: one of INDEX_TYPES.
        tenants: whether the records belong to tenants, whose names are their `metadata.tenant`:
            each is searched by a graph of its own.
        payload_on_disk: whether payloads are read from the disk; None leaves it to the store.
    """

    vectors: Mapping[str, VectorParams]
    sparse_vectors: Mapping[str, SparseParams] = field(default_factory=dict)
    metadata: Mapping[str, JSON] = field(default_factory=dict)
    indexes: Mapping[str, str] = field(default_factory=dict)
    tenants: bool = False
    payload_on_disk: bool | None = None


def without_storage(schema: Schema) -> Mapping[str, VectorParams]:
    """Give a schema's dense vectors as if they were kept as they are, to compare by."""
    return {name: replace(params, storage=Storage()) for name, params in schema.vectors.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseVector:
    """Values at a few of 2**32 dimensions.

    Args:
        indices: (n,) unsigned integers under 2**32, each once, in any order; n is at least 1.
        values: (n,) float32, finite.
    """

    indices: NDArray[np.uint32]
    values: NDArray[np.float32]


Vector = NDArray[np.float32] | SparseVector
"""A dense vector (size,), a multivector (n_rows, size), or a sparse one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One point.

    Args:
        id: a UUID in its canonical text form.
        vectors: by name, of the kinds that the schema says; a record may lack some of them.
        payload: JSON; LangChain's layout is `page_content` and `metadata`.
    """

    id: str
    vectors: Mapping[str, Vector]
    payload: Mapping[str, JSON]


class Sink(Protocol):
    """A store of records.

    Law: `upsert` is idempotent by id, and all of it survives the death of the process when it
    returns, or it raises; `stored(source)` sees what was upserted before; a record that does not
    fit the schema (an undeclared vector, one of another kind or length, a value that is not finite,
    no direction under cosine, a payload that is not JSON) is refused with its source, and nothing
    of that call is written; closing twice is harmless, and a closed sink raises SinkError. Only
    SinkError and its kin are raised. Methods may be called from any one thread at a time.
    """

    def schema(self) -> Schema | None:
        """What the collection is made of, or None where there is none yet.

        Raises:
            SinkUnavailableError: the store cannot be reached, or another process holds it.
        """
        ...

    def create(self, schema: Schema) -> None:
        """Make the collection; it must not exist."""
        ...

    def index(self, field: str, kind: str) -> None:
        """Index a payload field by one of INDEX_TYPES; the same again is harmless."""
        ...

    def stored(self, source: str) -> Mapping[str, Mapping[str, JSON]]:
        """Payload's `metadata` by id, of all records of one file.

        A record is of the file that `metadata.file` names, or where there is no such field, that
        `metadata.source` names: a file may hold several documents, each with its own source.
        """
        ...

    def sources(self) -> Iterator[str]:
        """Every file of the collection's records, as `stored` takes it, once, in any order."""
        ...

    def upsert(self, records: Sequence[Record]) -> None:
        """Write records, whole, overwriting those of equal id."""
        ...

    def set_payload(self, payloads: Mapping[str, Mapping[str, JSON]]) -> None:
        """Replace payloads of stored records by id, whole, leaving the vectors alone."""
        ...

    def delete(self, ids: Iterable[str]) -> None:
        """Delete by id; unknown ids are ignored."""
        ...

    def count(self) -> int:
        """Exact number of records."""
        ...

    def flush(self) -> None:
        """Make all that was written safe against power loss, where the store leaves that to us."""
        ...

    def defer_indexing(self) -> None:
        """Load first and build indexes of vectors later, in `optimize`, where that is quicker."""
        ...

    def optimize(self, tell: TellBuilding | None = None) -> None:
        """Build what makes searches fast, and wait for it.

        Args:
            tell: is told now and then how far it is.
        """
        ...

    def close(self) -> None:
        """Let go of the store."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One record that a search found.

    Args:
        id: of the record.
        score: higher is nearer for cosine and dot.
        payload: of the record, whole.
    """

    id: str
    score: float
    payload: Mapping[str, JSON]


class SinkFactory(Protocol):
    """What an entry point of the group `corral.sinks` holds."""

    def __call__(self, options: SinkOptions) -> Sink:
        """Make a sink; it must not connect before its first method is called."""
        ...
