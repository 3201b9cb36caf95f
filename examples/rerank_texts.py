"""Put texts into the order in which they answer a question; no collection is needed.

.venv/bin/python examples/rerank_texts.py RERANKER.gguf "who guards the flock?"
"""

import sys

from corral import GGUFReranker

TEXTS = [
    "Wool is sold in June.",
    "Two dogs stay with the flock at night and keep the wolf away.",
    "The flock is moved to another pasture every week.",
]


def main(model: str, question: str) -> None:
    """Print the texts, best first, each with the probability that it answers the question."""
    with GGUFReranker(model) as reranker:
        scores = reranker.rerank(question, TEXTS)
    for score, text in sorted(zip(scores, TEXTS, strict=True), reverse=True):
        print(f"{score:.3f}  {text}")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(__doc__)
    main(sys.argv[1], " ".join(sys.argv[2:]) or "who guards the flock?")
