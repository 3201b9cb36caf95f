"""The chunker that suits a document's format."""

from collections.abc import Iterator, Mapping
from typing import Final

from corral_chunkers.code import LANGUAGES, CodeChunker
from corral_chunkers.contract import Chunk, Document, Tokenizer
from corral_chunkers.markdown import MarkdownChunker
from corral_chunkers.recursive import RecursiveChunker
from corral_chunkers.structured import StructuredChunker

__all__ = ["AutoChunker"]

_BY_FORMAT: Final[Mapping[str, type[StructuredChunker]]] = {
    "markdown": MarkdownChunker,
    **dict.fromkeys(LANGUAGES, CodeChunker),
}
"""Chunkers by format; all other formats are text with headings, and are cut recursively."""


class AutoChunker:
    """Cuts Markdown as such, source code by its syntax, and everything else recursively."""

    def __init__(
        self, tokenizer: Tokenizer, *, size: int, overlap: int, context: str = "none"
    ) -> None:
        """Make the chunkers; arguments and errors are those of each."""
        kinds: set[type[StructuredChunker]] = {RecursiveChunker, *_BY_FORMAT.values()}
        self._chunkers = {
            kind: kind(tokenizer, size=size, overlap=overlap, context=context) for kind in kinds
        }

    @property
    def settings(self) -> Mapping[str, str | int]:
        """What decides the cuts: the algorithms of all chunkers, and the size."""
        found = {kind.__name__: chunker.settings for kind, chunker in self._chunkers.items()}
        algorithms = "+".join(str(found[name]["algorithm"]) for name in sorted(found))
        return {**found[RecursiveChunker.__name__], "algorithm": algorithms}

    def chunk(self, document: Document) -> Iterator[Chunk]:
        """Yield the document's chunks.

        Raises:
            ChunkerError: a single character has more tokens than the size allows, or source code
                cannot be cut for want of tree-sitter.
        """
        kind = _BY_FORMAT.get(document.format, RecursiveChunker)
        return self._chunkers[kind].chunk(document)
