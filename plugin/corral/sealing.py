"""Which files need not be cut again: a seal over a file's bytes and what is stored of it. Pure.

The last chunk of a file carries it. It holds only while exactly the chunks are stored that it was
made of, each where it was: what a killed run left half done has none.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["SEAL", "is_sealed", "place_of", "seal"]

SEAL: Final = "file_seal"
"""Name of it in the metadata."""

_PLACE: Final = (
    *("source", "start", "end", "chunk_index", "title", "heading_path", "page", "parent"),
    *("language", "context"),
)
"""Metadata that say where a chunk stands, which a run may mend after the chunk is stored."""


def place_of(metadata: Mapping[str, Any]) -> list[Any]:
    """Give what says where a chunk stands."""
    return [metadata.get(name) for name in _PLACE]


def seal(read_hash: str, places: Mapping[str, list[Any]]) -> str:
    """Make a file's seal.

    Args:
        read_hash: of the file's bytes, and of how they are read.
        places: of all its chunks, as `place_of` gives them, by id.
    """
    whole = json.dumps([read_hash, sorted(places.items())])
    return hashlib.sha256(whole.encode()).hexdigest()


def is_sealed(read_hash: str, stored: Mapping[str, Mapping[str, Any]]) -> bool:
    """Tell whether what is stored of a file is what it has now.

    Args:
        read_hash: of the file as it is.
        stored: metadata by id of all that is stored of it.
    """
    seals = [metadata[SEAL] for metadata in stored.values() if SEAL in metadata]
    places = {chunk_id: place_of(metadata) for chunk_id, metadata in stored.items()}
    return len(seals) == 1 and seals[0] == seal(read_hash, places)
