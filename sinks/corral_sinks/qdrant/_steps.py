"""What the embedded engine is at while it optimises, as its files tell.

It tells nothing itself: it holds the GIL meanwhile, and no other process may open the shard. But it
writes the new segment into a folder of its own, one thing after the other: payloads and vectors,
the ids last; then the quantised copies; then the graphs, each of which grows in memory and is
written once it is whole. So one sees which graph it is at, and not how much of it there is.

Source: seen of qdrant-edge-py 0.9; tests/test_indexing.py looks again.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from qdrant_client import models

__all__ = ["clear", "has_graph", "step_of"]

_SCRATCH: Final = "temp_segments"
_LAST_COPIED: Final = "id_tracker.mappings"


def clear(folder: Path) -> None:
    """Delete what an optimisation that was broken off has left in a shard's folder."""
    shutil.rmtree(folder / _SCRATCH, ignore_errors=True)


def step_of(folder: Path, vectors: Mapping[str, models.VectorParams]) -> str:
    """Say what is being built in a shard's folder; "" before it has begun.

    Args:
        folder: of the shard.
        vectors: that it has, by name.
    """
    segment = next((folder / _SCRATCH).glob("segment_builder_*"), None)
    if segment is None:
        return ""
    if not (segment / _LAST_COPIED).exists():
        return "copying"
    copies = [name for name, params in vectors.items() if params.quantization_config is not None]
    for name in copies:
        if not any((segment / f"vector_storage-{name}").glob("quantized*")):
            return f"quantised copy of {name!r}"
    graphs = [name for name, params in vectors.items() if has_graph(params)]
    built = [name for name in graphs if (segment / f"vector_index-{name}" / "graph.bin").exists()]
    missing = [name for name in graphs if name not in built]
    if missing:
        return f"graph of {missing[0]!r}, {len(built) + 1} of {len(graphs)}"
    return "last files"


def has_graph(params: models.VectorParams) -> bool:
    """Whether searches by a vector go through a graph."""
    return params.hnsw_config is None or params.hnsw_config.m != 0
