"""Qdrant as a sink: a server, the embedded engine, or memory, behind one surface of calls.

Of this project only this package imports qdrant_client and qdrant_edge.
"""

from qdrant_client import QdrantClient
from qdrant_client.models import Filter

from corral_sinks._checks import fault_of as vector_fault_in
from corral_sinks.qdrant._aliases import folder_of
from corral_sinks.qdrant._clients import MemoryQdrant, connect
from corral_sinks.qdrant._conditions import field_path
from corral_sinks.qdrant._schema import vector_bytes
from corral_sinks.qdrant._stages import Fused, Nearest, Ranking
from corral_sinks.qdrant._storage import search_params
from corral_sinks.qdrant._upload import Limits
from corral_sinks.qdrant.bm25 import LANGUAGES, TOKENIZERS, Bm25
from corral_sinks.qdrant.embedded import EmbeddedQdrant
from corral_sinks.qdrant.sink import QdrantSink

__all__ = [
    "LANGUAGES",
    "TOKENIZERS",
    "Bm25",
    "EmbeddedQdrant",
    "Filter",
    "Fused",
    "Limits",
    "MemoryQdrant",
    "Nearest",
    "QdrantClient",
    "QdrantSink",
    "Ranking",
    "connect",
    "field_path",
    "folder_of",
    "search_params",
    "vector_bytes",
    "vector_fault_in",
]
