"""BM25Embeddings: the sparse half of langchain-qdrant's hybrid search."""

from corral_sinks import SparseVector
from corral_sinks.qdrant import Bm25

try:
    from langchain_qdrant import SparseEmbeddings
    from langchain_qdrant import SparseVector as LangChainVector
except ImportError as error:  # pragma: no cover - langchain-qdrant is in the test group
    raise ImportError(
        "BM25Embeddings is for langchain-qdrant, which is not installed: "
        "pip install 'corral[langchain]'"
    ) from error

__all__ = ["BM25Embeddings"]


class BM25Embeddings(SparseEmbeddings):
    """The sparse vectors that `ingest --sparse bm25` stores, for a QdrantVectorStore.

    Usable from many threads at once.

    Args:
        language: as it was at the ingest.
        tokenizer: as it was at the ingest.
        ascii_folding: as it was at the ingest.

    Raises:
        SinkError: there is no such language or tokenizer.
    """

    def __init__(
        self,
        *,
        language: str = "english",
        tokenizer: str = "multilingual",
        ascii_folding: bool = False,
    ) -> None:
        """Check the settings."""
        self._model = Bm25(language=language, tokenizer=tokenizer, ascii_folding=ascii_folding)

    def embed_documents(self, texts: list[str]) -> list[LangChainVector]:
        """Weigh the words of documents."""
        return [_given(self._model.embed_document(text)) for text in texts]

    def embed_query(self, text: str) -> LangChainVector:
        """Take the words of a query."""
        return _given(self._model.embed_query(text))


def _given(vector: SparseVector | None) -> LangChainVector:
    if vector is None:
        return LangChainVector(indices=[], values=[])
    return LangChainVector(indices=vector.indices.tolist(), values=vector.values.tolist())
