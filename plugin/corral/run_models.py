"""The models of an ingest with what they make chunks and vectors by, asked as one."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final, Self

from corral.canary import require_vectors
from corral.chunking import ModelTokenizer, make_chunker
from corral.embedders import Embedder
from corral.embeddings import GGUFEmbeddings
from corral.engine.pooling import PoolingType
from corral.errors import PoolingError
from corral.ingest_options import IngestOptions
from corral.plugins import load_chunker
from corral.recipe import Recipe
from corral.report import Report
from corral.routing import Router, RoutingChunker
from corral_chunkers import Chunker, Document

__all__ = ["RunModels", "chunker_of"]

_COMMON: Final = ("over_length", "n_contexts", "n_threads", "n_gpu_layers", "flash_attn")
"""Options of a model that the one for long documents takes too."""


@dataclass(frozen=True, slots=True)
class RunModels:
    """What cuts and embeds in a run.

    Args:
        recipe: which vectors there are.
        embeddings: the model.
        router: of long documents to another model; None where there is none.
        chunker: cuts a document.
        embedder: makes a chunk's vectors.
    """

    recipe: Recipe
    embeddings: GGUFEmbeddings
    router: Router | None
    chunker: Chunker
    embedder: Embedder

    @classmethod
    @contextmanager
    def open(cls, options: IngestOptions, recipe: Recipe) -> Iterator[Self]:
        """Open the models, and close them in the end.

        Args:
            options: of the run.
            recipe: that they say.

        Raises:
            ModelError: a model cannot be used.
            PoolingError: the model gives no vector of a whole text.
            UsageError: options do not go together.
            ChunkerError: the chunker cannot meet the settings.
        """
        with ExitStack() as opened:
            embeddings = opened.enter_context(
                GGUFEmbeddings(
                    options.model,
                    token_rows=recipe.token_rows,
                    isolate=options.isolate,
                    **options.model_options,
                )
            )
            _require_pooled(embeddings)
            router = None
            if recipe.long_model is not None:
                far = opened.enter_context(_open_far(options, recipe.long_model))
                router = Router(embeddings, far)
            chunker = chunker_of(options, embeddings, router)
            yield cls(recipe, embeddings, router, chunker, recipe.embedder(embeddings, router))

    @property
    def all(self) -> tuple[GGUFEmbeddings, ...]:
        """The model, and the one for long documents."""
        return (self.embeddings,) if self.router is None else (self.embeddings, self.router.far)

    @property
    def busy_seconds(self) -> float:
        """Seconds that models have worked, of all their contexts."""
        return sum(model.busy_seconds for model in self.all)

    def require_vectors(self) -> None:
        """Refuse a model that gives no usable vector of anything on this machine.

        Raises:
            EngineError: it says which model, and what to do.
        """
        for model in self.all:
            require_vectors(model)

    def calibrate(self) -> None:
        """Find what is quickest on this machine, for each model that has not been tried here."""
        for model in self.all:
            model.calibrate()

    def model_of(self, document: Document) -> str:
        """Return the name of the model that embeds a document."""
        return self.embeddings.model if self.router is None else self.router.model_of(document)

    def tell(self, report: Report) -> None:
        """Tell a report how many contexts there are, how often a model died, and what was long."""
        report.n_contexts = self.embeddings.n_contexts
        report.model_deaths = sum(model.deaths for model in self.all)
        if self.router is not None:
            report.routed, report.routed_to = self.router.n_long, self.router.reason


def _require_pooled(embeddings: GGUFEmbeddings) -> None:
    if embeddings.pooling_type in (PoolingType.NONE, PoolingType.RANK):
        raise PoolingError(
            f"pooling_type {embeddings.pooling_type.name.lower()} gives no vector of a "
            'whole text to store; take a model that pools by "mean", "cls" or "last"'
        )


def _open_far(options: IngestOptions, model: str) -> GGUFEmbeddings:
    """Open the model for long documents, with the options that are of no model's own."""
    given = options.model_options
    common = {name: given[name] for name in _COMMON if name in given}
    return GGUFEmbeddings(model, isolate=options.isolate, **common)


def chunker_of(
    options: IngestOptions, embeddings: GGUFEmbeddings, router: Router | None
) -> Chunker:
    """Make what cuts documents; one that is long it leaves whole where another model reads those.

    Args:
        options: of the ingest.
        embeddings: the model.
        router: of long documents to another one.

    Raises:
        UsageError: the settings do not go together.
        ChunkerError: the chunker cannot meet them.
    """
    chunker = make_chunker(
        embeddings,
        name=options.chunker,
        size=options.chunk_size,
        unit=options.chunk_size_unit,
        overlap=options.chunk_overlap,
        context=options.context,
        late=options.late,
        may_exceed="over_length" in options.model_options,
    )
    if router is None:
        return chunker
    far = router.far
    whole = load_chunker("tokens")(ModelTokenizer(far), size=far.max_tokens, overlap=0)
    return RoutingChunker(chunker, whole, router)
