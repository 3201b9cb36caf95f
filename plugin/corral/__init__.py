"""Folders of documents into Qdrant with local GGUF models, and back out through LangChain."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corral.embeddings import GGUFEmbeddings
    from corral.ranking import RankingOptions
    from corral.reranker import GGUFReranker
    from corral.retriever import CorralRetriever
    from corral.sparse_embeddings import BM25Embeddings

__all__ = [
    "BM25Embeddings",
    "CorralRetriever",
    "GGUFEmbeddings",
    "GGUFReranker",
    "RankingOptions",
    "__version__",
]

__version__ = version("corral")

_HOMES = {
    "BM25Embeddings": "corral.sparse_embeddings",
    "CorralRetriever": "corral.retriever",
    "GGUFEmbeddings": "corral.embeddings",
    "GGUFReranker": "corral.reranker",
    "RankingOptions": "corral.ranking",
}


def __getattr__(name: str) -> object:
    """Import on first use, so that the command line answers without loading the engine."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
