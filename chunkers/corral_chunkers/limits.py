"""How large a chunk may be, and what the model reads before it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar, Final, NamedTuple

from corral_chunkers.contract import Chunk, ChunkerError, Document, Tokenizer

__all__ = ["CONTEXTS", "Context", "Contexts", "LimitedChunker", "Limits"]

CONTEXTS: Final = ("none", "headings")
"""What the model may read before a chunk."""

_LARGEST_CONTEXT: Final = 4
"""A context takes at most one in so many of the tokens that a chunk has for text."""


class Context(NamedTuple):
    """What the model reads before a chunk.

    Attributes:
        text: with what parts it from the chunk; empty for nothing.
        n_tokens: of it alone, without prefix and special tokens.
    """

    text: str
    n_tokens: int


class Contexts:
    """The title of a document and the headings over an offset, as a line to read before a chunk.

    A title that is one of the headings stands over the chunks below that heading alone. Where a
    line is longer than a quarter of what a chunk has for text, its outermost parts go.
    """

    def __init__(self, limits: "Limits", document: Document) -> None:
        """Make the contexts of one document."""
        self._limits = limits
        is_heading = any(heading.text == document.title for heading in document.headings)
        self._title = (document.title,) if document.title and not is_heading else ()
        self._made: dict[tuple[str, ...], Context] = {}

    def of(self, heading_path: tuple[str, ...]) -> Context:
        """Return what to read before a chunk with these headings over it."""
        if heading_path not in self._made:
            self._made[heading_path] = self._make(heading_path)
        return self._made[heading_path]

    def _make(self, heading_path: tuple[str, ...]) -> Context:
        parts = self._title + heading_path
        for first in range(len(parts)):
            text = " > ".join(parts[first:]) + "\n\n"
            n_tokens = self._limits.count_alone(text)
            if n_tokens <= self._limits.room // _LARGEST_CONTEXT:
                return Context(text, n_tokens)
        return Context("", 0)


class Limits:
    """The settings that every chunker of ours has."""

    def __init__(self, tokenizer: Tokenizer, *, size: int, overlap: int, context: str) -> None:
        """Check the settings.

        Args:
            tokenizer: of the model that will read the chunks.
            size: most tokens of a chunk, prefix, context and special tokens included.
            overlap: most tokens of the previous chunk to repeat, no more than half of what the
                size leaves for text.
            context: one of CONTEXTS.

        Raises:
            ChunkerError: the size leaves no room for text, the overlap too little, or there is no
                such context.
        """
        self._around = around = tokenizer.count("")
        self.tokenizer, self.size, self.overlap, self.context = tokenizer, size, overlap, context
        self.room = room = size - around
        if room < 1:
            raise ChunkerError(
                f"a chunk size of {size} tokens leaves none for text: the model's prefix and "
                f"special tokens are {around}. Set a chunk size of at least {around + 1}."
            )
        if not 0 <= overlap <= room // 2:
            raise ChunkerError(
                f"a chunk overlap of {overlap} tokens is not between 0 and {room // 2}, half of "
                f"the {room} that a chunk size of {size} leaves for text beside the {around} of "
                "the model's prefix and special tokens. Set a smaller overlap or a larger size."
            )
        if context not in CONTEXTS:
            raise ChunkerError(f"there is no context {context!r}; take one of: none, headings.")

    @property
    def settings(self) -> Mapping[str, str | int]:
        """What decides the cuts, by name."""
        context = {} if self.context == "none" else {"context": self.context}
        return {"size": self.size, "overlap": self.overlap, **context}

    def contexts(self, document: Document) -> Contexts | None:
        """Make what is read before a document's chunks, if anything is."""
        return None if self.context == "none" else Contexts(self, document)

    def count_alone(self, text: str) -> int:
        """Count the tokens of a text without prefix and special tokens."""
        return self.tokenizer.count(text) - self._around

    def too_long(self, chunk: Chunk, source: str) -> ChunkerError:
        """Say that a single character does not fit."""
        return ChunkerError(
            f"the character U+{ord(chunk.text):04X} at offset {chunk.start} of {source} makes "
            f"{chunk.n_tokens} tokens with the model's prefix and special tokens; the chunk size "
            f"is {self.size}. Set a chunk size of at least {chunk.n_tokens}."
        )


class LimitedChunker(ABC):
    """A chunker with these settings."""

    algorithm: ClassVar[int]
    """Changes whenever the same settings cut elsewhere: part of a collection's fingerprint."""

    def __init__(
        self, tokenizer: Tokenizer, *, size: int, overlap: int, context: str = "none"
    ) -> None:
        """Check the settings.

        Args:
            tokenizer: of the model that will read the chunks.
            size: most tokens of a chunk, prefix, context and special tokens included.
            overlap: most tokens of the previous chunk to repeat, from the start of a word; 0 for
                none, and no more than half of what the size leaves for text.
            context: what the model reads before each chunk: "none", or "headings" for the title
                and the headings over it.

        Raises:
            ChunkerError: the size leaves no room for text, the overlap too little, or there is no
                such context.
        """
        self._limits = Limits(tokenizer, size=size, overlap=overlap, context=context)

    @property
    def settings(self) -> Mapping[str, str | int]:
        """What decides the cuts."""
        return {"algorithm": self.algorithm, **self._limits.settings}

    @abstractmethod
    def chunk(self, document: Document) -> Iterator[Chunk]:
        """Yield the document's chunks.

        Raises:
            ChunkerError: a single character has more tokens than the size allows.
        """
