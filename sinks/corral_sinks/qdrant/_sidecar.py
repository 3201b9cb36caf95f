"""What the embedded engine does not keep: a collection's settings and metadata."""

from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from qdrant_client import models

from corral_sinks import SinkError
from corral_sinks._files import replace

__all__ = ["SCHEMA_VERSION", "SIDECAR", "Sidecar"]

SIDECAR = "corral.json"
SCHEMA_VERSION: Final = 1


class Sidecar(BaseModel):
    """The file `corral.json` beside a collection's shard."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = SCHEMA_VERSION
    vectors: dict[str, models.VectorParams] = Field(default_factory=dict)
    sparse_vectors: dict[str, models.SparseVectorParams] = Field(default_factory=dict)
    on_disk_payload: bool | None = None
    hnsw_config: models.HnswConfigDiff | None = None
    indexes: dict[str, models.PayloadSchemaParams] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Replace the folder's sidecar, whole and durably."""
        replace(folder / SIDECAR, self.model_dump_json(indent=2, exclude_none=True).encode())

    @classmethod
    def read(cls, folder: Path) -> "Sidecar":
        """Read a folder's sidecar.

        Raises:
            SinkError: there is none, or it is another version's.
        """
        file = folder / SIDECAR
        try:
            return cls.model_validate_json(file.read_bytes())
        except FileNotFoundError as error:
            raise SinkError(
                f"{folder} is not a collection of corral's: it has no {SIDECAR}, or lost it. Use "
                "another folder or collection name, or bring the file back from a copy."
            ) from error
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            where = ".".join(map(str, fault["loc"])) or "the file"
            raise SinkError(
                f"{file} cannot be read by this version of corral, which knows schema version "
                f"{SCHEMA_VERSION}: {where}: {fault['msg']} (got {fault['input']!r:.80}). Use the "
                "version of corral that wrote it, or ingest into another folder."
            ) from error
