"""Search a collection that `ingest` wrote, through LangChain's own vector store for Qdrant.

make demo
.venv/bin/python examples/langchain_read.py "when are the sheep shorn?"
"""

import sys

from langchain_qdrant import QdrantVectorStore

from corral import GGUFEmbeddings
from corral_sinks.qdrant import connect


def main(query: str) -> None:
    """Print the three chunks nearest to the query."""
    store = QdrantVectorStore(
        client=connect(path="./qdrant_data"),
        collection_name="demo",
        embedding=GGUFEmbeddings(model="minilm"),
        vector_name="dense",
    )
    for document, score in store.similarity_search_with_score(query, k=3):
        where = document.metadata
        print(f"{score:.3f}  {where['source']} {where['start']}-{where['end']}")
        print(f"       {' '.join(document.page_content.split())[:90]}")


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "when are the sheep shorn?")
