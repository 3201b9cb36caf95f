"""Chunks of whole sentences."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from corral_chunkers.breaks import paragraph_ends, sentence_ends
from corral_chunkers.contract import Document
from corral_chunkers.cutting import Boundary, Structure, Unit
from corral_chunkers.structured import StructuredChunker

__all__ = ["SentencesChunker"]


@dataclass(frozen=True, slots=True)
class _Sentences:
    text: str

    def boundaries(self, low: int, high: int) -> Sequence[Boundary]:
        ends = {*sentence_ends(self.text, low, high), *paragraph_ends(self.text, low, high)}
        return [Boundary(end, 0.0) for end in sorted(ends)]

    def units(self, low: int, high: int) -> Sequence[Unit]:  # noqa: ARG002 - a Structure has them
        return ()


class SentencesChunker(StructuredChunker):
    """Cuts text between sentences alone, wherever the paragraphs end, and so fills its chunks.

    A sentence that does not fit is cut at its lines, clauses, or words.
    """

    algorithm: ClassVar[int] = 1

    def read(self, document: Document) -> tuple[Document, Structure]:
        """Return the document as it is, and its sentences."""
        return document, _Sentences(document.text)
