"""What tests of reranking share."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral import GGUFReranker

__all__ = ["documents_of", "laid_out", "reranker"]

WORDS = "the fish of harbour and to in query document fishing sea boat".split()  # noqa: SIM905


@contextmanager
def reranker(model: Any, **options: Any) -> Iterator[GGUFReranker]:
    """Open a tiny model, whose random weights have no second segment to lose."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the model tells the query's segment")
        opened = GGUFReranker(model, **options)
    with opened:
        yield opened


def documents_of(*n_words: int, seed: int = 0) -> list[str]:
    """Make texts of these many words, alike for a seed."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, n)) for n in n_words]


def laid_out(model: GGUFReranker, query: str, documents: list[str]) -> list[NDArray[np.int32]]:
    """Give the token ids that the model reads."""
    return [pair.ids for pair in model._parts.layout.build(query, documents)]
