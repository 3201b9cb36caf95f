"""What decides the vectors of a collection: kept with it, compared before files are read. Pure."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from corral.errors import CollectionError

__all__ = ["METADATA_KEY", "SCHEMA_VERSION", "TENANTS", "Fingerprint"]

METADATA_KEY: Final = "corral"
"""Where the fingerprint stands in the collection's metadata."""

TENANTS: Final = "tenants"
"""The field that says, where it is true, that every chunk belongs to a tenant."""

SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What decides the vectors of a collection.

    Args:
        model: as it was named by the run that made the collection; not compared.
        fields: every setting that a vector or a chunk depends on, by name.
        names: where further files are that the vectors are made with, by their part; not compared.
    """

    model: str
    fields: Mapping[str, Any]
    names: Mapping[str, str] = field(default_factory=dict)

    def to_metadata(self) -> dict[str, Any]:
        """Give the collection metadata that holds it."""
        names = {"names": dict(self.names)} if self.names else {}
        return {METADATA_KEY: {"model": self.model, "fingerprint": dict(self.fields), **names}}

    @property
    def key(self) -> str:
        """Eight hexadecimal digits that stand for the fields."""
        fields = json.dumps(dict(self.fields), sort_keys=True).encode()
        return hashlib.sha256(fields).hexdigest()[:8]

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], *, collection: str) -> Self:
        """Read it from a collection's metadata.

        Raises:
            CollectionError: there is none: the collection was not written by corral.
        """
        held = metadata.get(METADATA_KEY)
        if not isinstance(held, Mapping) or not isinstance(held.get("fingerprint"), Mapping):
            raise CollectionError(
                f"collection {collection!r} holds no fingerprint: it was not written by corral, "
                "so which model made its vectors is unknown. Take another collection"
            )
        return cls(
            model=str(held.get("model")),
            fields=held["fingerprint"],
            names=held.get("names") or {},
        )

    def require_tenant(self, tenant: str | None, *, collection: str) -> None:
        """Refuse to read chunks of all tenants as if they were one's, and the other way round.

        Raises:
            CollectionError: there is a tenant and the collection has none, or none and it has.
        """
        if self.fields.get(TENANTS, False) and tenant is None:
            raise CollectionError(
                f"the chunks of collection {collection!r} belong to tenants; say whose to use: "
                "tenant=NAME, on the command line --tenant NAME"
            )
        if tenant is not None and not self.fields.get(TENANTS, False):
            raise CollectionError(
                f"the chunks of collection {collection!r} belong to no tenants, so there are none "
                f"of {tenant!r}; leave the tenant out, or take a collection made with --tenant"
            )

    def differences(self, other: "Fingerprint") -> list[tuple[str, Any, Any]]:
        """List (field, own value, other's value) where they differ."""
        names = [*self.fields, *(name for name in other.fields if name not in self.fields)]
        return [
            (name, self.fields.get(name), other.fields.get(name))
            for name in names
            if self.fields.get(name) != other.fields.get(name)
        ]

    def require_equal(self, wanted: "Fingerprint", *, collection: str) -> None:
        """Refuse to mix vectors of different kinds.

        Raises:
            CollectionError: a field differs; each is listed, held and wanted.
        """
        differences = self.differences(wanted)
        if differences:
            raise CollectionError(
                f"collection {collection!r} was made with other settings than this run's:\n"
                + _table(differences)
                + "\nTake another --collection, or the settings it was made with, or build it anew "
                "with these by --reindex, which keeps it till then"
            )


def _table(differences: Sequence[tuple[str, Any, Any]]) -> str:
    return "\n".join(
        f"  {name}: the collection has {held!r}, this run has {wanted!r}"
        for name, held, wanted in differences
    )
