"""What a reader takes and gives, and the laws that it keeps."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from corral_chunkers import Document

__all__ = ["RawFile", "Reader", "ReaderFactory", "ReaderOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFile:
    """A file as it was read.

    Args:
        raw: all of its bytes.
        path: as it is named in messages.
        source: its URI relative to the root it was found under.
    """

    raw: bytes
    path: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """What the user said about files of records (CSV, TSV, JSON, JSON lines).

    Args:
        text_fields: fields that are a record's text, one below the other; none takes all fields,
            each with its name.
        metadata_fields: fields that go into a record's metadata.
        id_field: field that names a record within its file; None names it by its text.
        rows: records that make one document.
    """

    text_fields: tuple[str, ...] = ()
    metadata_fields: tuple[str, ...] = ()
    id_field: str | None = None
    rows: int = 1


class Reader(Protocol):
    """Turns a file of one format into documents.

    Law: the same bytes and options give the same documents, in the same order; nothing is read
    but the bytes given, and nothing is written. A file is one document whose source is the file's,
    or several, each with a source of its own: the file's, "#", and a fragment in URI syntax that
    no other document of the file has. Metadata are JSON values.
    """

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Ends of the names of its files, in lower case, each with its dot."""
        ...

    @property
    def version(self) -> int:
        """Raised whenever the same bytes give another text; stands in the payload."""
        ...

    @property
    def confined(self) -> bool:
        """Whether a file may make it crash, hang or take memory: it then gets its own process."""
        ...

    def read(self, file: RawFile, options: ReaderOptions) -> Iterator[Document]:
        """Yield the file's documents.

        Raises:
            EmptyTextError: the file is sound, and there is no text in it.
            NotTextError: it is of another format, or the library for this one is not installed.
            ReadError: it is damaged. Any other exception counts as that, too.
        """
        ...


class ReaderFactory(Protocol):
    """What an entry point of the group `corral.readers` holds."""

    def __call__(self) -> Reader:
        """Make a reader, without importing the library of its format."""
        ...
