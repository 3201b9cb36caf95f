"""Find chunks in a collection on a Qdrant server.

.venv/bin/ingest examples/docs --url http://localhost:6333 --collection demo --model minilm
.venv/bin/python examples/retrieve_from_server.py http://localhost:6333 "when are the sheep shorn?"

A key for the server is read from the environment variable QDRANT_API_KEY.
"""

import sys

from corral import CorralRetriever


def main(url: str, question: str) -> None:
    """Print the three chunks nearest to the question."""
    with CorralRetriever(url=url, collection="demo", k=3) as retriever:
        for document in retriever.invoke(question):
            print(f"{document.metadata['score']:.3f}  {document.metadata['source']}")
            print(f"       {' '.join(document.page_content.split())[:90]}")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(__doc__)
    main(sys.argv[1], " ".join(sys.argv[2:]) or "when are the sheep shorn?")
