"""Cut documents into chunks: the contract, and one algorithm a module.

A chunker is found by name through the entry point group `corral.chunkers`; each entry is a
callable `(tokenizer, *, size, overlap) -> Chunker`.
"""

from corral_chunkers.contract import (
    Chunk,
    Chunker,
    ChunkerError,
    ChunkerFactory,
    Document,
    Encoding,
    Heading,
    Tokenizer,
)
from corral_chunkers.places import Places

__all__ = [
    "Chunk",
    "Chunker",
    "ChunkerError",
    "ChunkerFactory",
    "Document",
    "Encoding",
    "Heading",
    "Places",
    "Tokenizer",
]
