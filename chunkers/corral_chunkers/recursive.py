"""Chunks of whole paragraphs; of whole sentences where a paragraph does not fit; and so on."""

from typing import ClassVar

from corral_chunkers.contract import Document
from corral_chunkers.cutting import Structure
from corral_chunkers.prose import Prose
from corral_chunkers.structured import StructuredChunker

__all__ = ["RecursiveChunker"]


class RecursiveChunker(StructuredChunker):
    """Cuts text at headings, paragraphs, sentences, lines, clauses, words, in that order.

    Short paragraphs share a chunk. One that does not fit is cut between its sentences and shares
    none; a sentence that does not fit is cut at its lines, clauses, or words, of scripts without
    spaces too.
    """

    algorithm: ClassVar[int] = 1

    def read(self, document: Document) -> tuple[Document, Structure]:
        """Return the document as it is, and its paragraphs."""
        return document, Prose(document.text, document.headings)
