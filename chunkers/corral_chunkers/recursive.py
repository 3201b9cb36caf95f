"""Chunks of whole paragraphs; of whole sentences where a paragraph does not fit; and so on."""

from dataclasses import replace
from typing import ClassVar

from corral_chunkers.contract import Document
from corral_chunkers.cutting import Structure
from corral_chunkers.headings import wiki_headings
from corral_chunkers.prose import Prose
from corral_chunkers.structured import StructuredChunker

__all__ = ["RecursiveChunker"]


class RecursiveChunker(StructuredChunker):
    """Cuts text at headings, paragraphs, sentences, lines, clauses, words, in that order.

    Short paragraphs share a chunk. One that does not fit is cut between its sentences and shares
    none; a sentence that does not fit is cut at its lines, clauses, or words, of scripts without
    spaces too.
    """

    algorithm: ClassVar[int] = 2

    def read(self, document: Document) -> tuple[Document, Structure]:
        """Return the document with its headings, and its paragraphs."""
        if document.format == "text" and not document.headings:
            document = replace(document, headings=wiki_headings(document.text))
        return document, Prose(document.text, document.headings)
