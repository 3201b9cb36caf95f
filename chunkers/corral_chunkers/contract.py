"""What a chunker takes and gives, and the laws that it keeps."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Chunk",
    "Chunker",
    "ChunkerError",
    "ChunkerFactory",
    "Document",
    "Encoding",
    "Heading",
    "Tokenizer",
]


class ChunkerError(ValueError):
    """A chunker's settings cannot be met."""


class Heading(NamedTuple):
    """What a part of a document is called, and where it stands.

    Attributes:
        start: offset of its first code point in the document's text.
        level: 1 for the outermost.
        text: in one line, without markup.
        end: offset behind the part that it heads; None where that reaches to the next heading
            of the same level or of one further out.
    """

    start: int
    level: int
    text: str
    end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A text as a reader gave it.

    Args:
        text: the whole text, unchanged: offsets count its code points.
        source: URI of the text relative to the root it was found under.
        metadata: what else the reader knew, JSON values only.
        format: what it was read from, in lower case: "text", "markdown", "html", "pdf", "python".
        title: of the whole, in one line; None where it is not known.
        headings: in order of `start`.
        pages: offset at which each page starts, in order; empty where there are no pages.
        language: of the text (BCP 47), or of the program; None where it is not known.
    """

    text: str
    source: str
    metadata: Mapping[str, object] = field(default_factory=dict)
    format: str = "text"
    title: str | None = None
    headings: tuple[Heading, ...] = ()
    pages: tuple[int, ...] = ()
    language: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of a document.

    Args:
        text: equal to `document.text[start:end]`, neither empty nor white space only.
        start: offset of the first code point.
        end: offset behind the last code point.
        n_tokens: tokens that the model reads for it, prefix, context and special tokens included.
        heading_path: headings over its first character, the outermost first.
        page: that its first character stands on, counted from 1; None where there are no pages.
        language: the document's.
        parent: (start, end) offsets of the part under the last heading of the path; None where
            there is no heading over it. It may end before the chunk does.
        context: what the model reads between the prefix and the text, to embed the chunk.
    """

    text: str
    start: int
    end: int
    n_tokens: int
    heading_path: tuple[str, ...] = ()
    page: int | None = None
    language: str | None = None
    parent: tuple[int, int] | None = None
    context: str = ""


class Encoding(NamedTuple):
    """Tokens of a text, without special tokens.

    Attributes:
        ids: (n_tokens,) int32.
        offsets: (n_tokens, 2) int64, start and end of each token in code points of the text;
            starts and ends never decrease.
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]


class Tokenizer(Protocol):
    """Counts in the tokens of the model that will read the chunks."""

    def encode(self, text: str) -> Encoding:
        """Tokens of the text alone: no prefix, no special tokens."""
        ...

    def count(self, text: str) -> int:
        """Tokens the model reads for the text, document prefix and special tokens included."""
        ...


class Chunker(Protocol):
    """Cuts a document.

    Law: `document.text[chunk.start:chunk.end] == chunk.text`; chunks come lazily and in order of
    `start`; together they cover everything but white space; `chunk.n_tokens` equals
    `tokenizer.count(chunk.context + chunk.text)` and is at most the size; the same document and
    settings give the same chunks.
    """

    @property
    def settings(self) -> Mapping[str, str | int]:
        """What decides the cuts, by name: part of a collection's fingerprint."""
        ...

    def chunk(self, document: Document) -> Iterator[Chunk]:
        """Yield the document's chunks."""
        ...


class ChunkerFactory(Protocol):
    """What an entry point of the group `corral.chunkers` holds."""

    def __call__(self, tokenizer: Tokenizer, *, size: int, overlap: int) -> Chunker:
        """Make a chunker; raise ChunkerError where the settings cannot be met.

        One that can put headings before its chunks takes a further argument, `context`; it is
        given where the user asks for it.

        Args:
            tokenizer: of the model that will read the chunks.
            size: most tokens of a chunk, prefix and special tokens included.
            overlap: tokens of the previous chunk to repeat; 0 for none.
        """
        ...
