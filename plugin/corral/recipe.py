"""Which vectors a collection has: as an ingest is told it, and as a fingerprint tells it again."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from corral.embedders import Combined, DenseEmbedder, Embedder
from corral.embeddings import GGUFEmbeddings
from corral.engine.readouts import Heads
from corral.errors import CollectionError, UsageError
from corral.fingerprint import Fingerprint
from corral.late import LateEmbedder
from corral.ranking import MULTI
from corral.readouts import LEXICAL, ReadoutsEmbedder
from corral.routing import LONG_PREFIX, RoutedEmbedder, Router
from corral.sparse import SPARSE, Bm25Embedder
from corral_sinks.qdrant import Bm25

__all__ = ["Recipe", "long_fingerprint", "require_same_heads"]

_HEADS: Final = "heads"
_LONG_MODEL: Final = "long_model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Which vectors a collection has.

    Args:
        short_dim: leading dimensions of a short vector that finds chunks; None makes none.
        bm25: options of a sparse vector of words; None makes none.
        late: whether chunks are pooled from passes over their documents.
        multi: whether each chunk has a multivector.
        lexical: whether each chunk has a sparse vector of the heads' weights.
        heads: file of projections that were trained beside the model.
        long_model: name of the model that documents over the first one's limit go to.

    Raises:
        UsageError: parts that do not go together.
    """

    short_dim: int | None = None
    bm25: Mapping[str, Any] | None = None
    late: bool = False
    multi: bool = False
    lexical: bool = False
    heads: str | None = None
    long_model: str | None = None

    def __post_init__(self) -> None:
        """See whether the parts go together."""
        if self.late and self.reads_out:
            raise UsageError(
                "late chunking gives the dense vector alone; leave out late, or the multivector "
                "and the lexical weights"
            )
        if self.lexical and self.bm25 is not None:
            raise UsageError("a collection has one sparse vector: bm25 or lexical, not both")
        if self.lexical and self.heads is None:
            raise UsageError(
                "lexical weights come from a trained sparse_linear: give its file, --heads FILE"
            )
        if self.heads is not None and not self.reads_out:
            raise UsageError(
                "the heads project token rows to a multivector or to lexical weights, and neither "
                "is asked for: --multivector, --sparse lexical"
            )

    @classmethod
    def of(
        cls, held: Fingerprint, *, heads: str | None = None, long_model: str | None = None
    ) -> Self:
        """Read it from a fingerprint.

        Args:
            held: the collection's.
            heads: where its heads file is now; None takes where it was.
            long_model: where its second model is now; None takes the name it had.

        Raises:
            UsageError: one of them is given, and the collection was made without it.
        """
        fields, names = held.fields, held.names
        for part, given in ((_HEADS, heads), (_LONG_MODEL, long_model)):
            if given is not None and part not in names:
                raise UsageError(
                    f"{part}={given!r} is given, and the collection was made without; leave it out"
                )
        return cls(
            short_dim=DenseEmbedder.short_dim_of(fields),
            bm25=Bm25Embedder.options_of(fields),
            late=bool(fields.get("late")),
            multi=MULTI in fields,
            lexical=fields.get(SPARSE) == LEXICAL,
            heads=heads or names.get(_HEADS),
            long_model=long_model or names.get(_LONG_MODEL),
        )

    @property
    def names(self) -> dict[str, str]:
        """Where the files are that it is made with, for the fingerprint; they are not compared."""
        heads = None if self.heads is None else str(Path(self.heads).resolve())
        found = {_HEADS: heads, _LONG_MODEL: self.long_model}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def token_rows(self) -> bool:
        """Whether the model must be opened for the rows of its tokens."""
        return self.late or self.reads_out

    @property
    def reads_documents(self) -> bool:
        """Whether a chunk's vectors depend on its document: by its rows, or by which model's."""
        return self.late or self.long_model is not None

    @property
    def reads_out(self) -> bool:
        """Whether a chunk has more than its dense vector from the model."""
        return self.multi or self.lexical

    def embedder(self, embeddings: GGUFEmbeddings, router: Router | None = None) -> Embedder:
        """Make what computes the vectors.

        Args:
            embeddings: the model, opened with `token_rows` where this says so.
            router: with the second model, where there is one.

        Raises:
            UsageError: the model or the heads do not give what is asked for.
            PoolingError: the model's pooling does not go with late chunking.
        """
        found = self._of_model(embeddings)
        if router is not None:
            found = RoutedEmbedder(found, router)
        return found if self.bm25 is None else Combined(found, Bm25Embedder(Bm25(**self.bm25)))

    def for_queries(self, embeddings: GGUFEmbeddings, router: Router | None = None) -> Embedder:
        """Make what computes the vectors of queries, which no document surrounds; as `embedder`."""
        return replace(self, late=False).embedder(embeddings, router)

    def _of_model(self, embeddings: GGUFEmbeddings) -> Embedder:
        if self.late:
            return LateEmbedder(embeddings, short_dim=self.short_dim)
        if not self.reads_out:
            return DenseEmbedder(embeddings, short_dim=self.short_dim)
        path = None if self.heads is None else Path(self.heads)
        return ReadoutsEmbedder(
            embeddings,
            heads=None if path is None else Heads.read(path, n_embd=embeddings.width),
            heads_sha256=None if path is None else _sha256(path),
            multi=self.multi,
            lexical=self.lexical,
            short_dim=self.short_dim,
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def long_fingerprint(held: Fingerprint, model: str) -> Fingerprint:
    """Give what a fingerprint says of the second model, as a fingerprint of its own."""
    return Fingerprint(
        model=model,
        fields={
            name.removeprefix(LONG_PREFIX): value
            for name, value in held.fields.items()
            if name.startswith(LONG_PREFIX)
        },
    )


def require_same_heads(held: Fingerprint, embedder: Embedder, *, collection: str) -> None:
    """Refuse heads that did not make a collection.

    Raises:
        CollectionError: the file that is found is another one.
    """
    settings = embedder.settings
    for name in (MULTI, "heads_sha256"):
        if held.fields.get(name) != settings.get(name):
            raise CollectionError(
                f"collection {collection!r} was made with other heads ({name}: "
                f"{held.fields.get(name)}) than those that are found ({settings.get(name)}). Say "
                "where they are: heads=, on the command line --heads FILE"
            )
