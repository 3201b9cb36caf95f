"""Which chunk is which: ids that stay while the text stays, wherever it moves. Pure."""

import hashlib
import uuid
from collections import Counter
from typing import Final

__all__ = ["ChunkIds", "content_hash"]

_NAMESPACE: Final = uuid.UUID("5d9c0a52-7d2c-5c3e-9a3b-1f0f6f1d8c41")


def content_hash(text: str) -> str:
    """SHA-256 of a text's UTF-8, in hex; a lone surrogate counts as its own three bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class ChunkIds:
    """Ids for the chunks of one source, in the order of the source.

    An id is the UUIDv5 of source, hash of the chunk's text, and how many chunks of the source
    with the same text came before. So an inserted paragraph re-keys nothing else, equal texts in
    two sources keep points of their own, and so do equal texts in one. A tenant's name comes before
    them, so that two tenants may have the same source; where a vector depends on the whole
    document, the document's hash comes after the source. The fields are length-prefixed: no two
    different tuples read the same.
    """

    def __init__(
        self, source: str, *, tenant: str | None = None, document_hash: str | None = None
    ) -> None:
        """Begin with the source's first chunk."""
        fields = (tenant, source, document_hash)
        self._common = tuple(field for field in fields if field is not None)
        self._seen: Counter[str] = Counter()

    def next(self, text_hash: str) -> str:
        """Give the id of the next chunk; canonical text form of a UUID."""
        fields = (*self._common, text_hash, str(self._seen[text_hash]))
        self._seen[text_hash] += 1
        name = "".join(f"{len(field)}:{field}" for field in fields)
        return str(uuid.uuid5(_NAMESPACE, name.encode("utf-8", "surrogatepass").hex()))
