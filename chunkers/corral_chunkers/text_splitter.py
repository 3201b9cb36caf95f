"""Any text splitter of LangChain's kind as a chunker: its pieces, found again in the document."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from corral_chunkers.breaks import skip_white_space
from corral_chunkers.contract import Chunk, ChunkerError, Document, Tokenizer
from corral_chunkers.places import Places
from corral_chunkers.tokens import TokensChunker

__all__ = ["TextSplitter", "TextSplitterChunker"]

_ALGORITHM: Final = 2
"""Changes whenever the same pieces become other chunks."""

_SHOWN: Final = 40


class TextSplitter(Protocol):
    """What is needed of a langchain_text_splitters.TextSplitter."""

    def split_text(self, text: str) -> Sequence[str]:
        """Return the pieces of a text, in order."""
        ...


class TextSplitterChunker:
    """Cuts where a text splitter does, and keeps the laws of a chunker.

    A splitter gives pieces without offsets; each is looked for behind the start of the one before,
    whatever white space stands between its words: splitters that leave separators out make one
    blank of two. The chunk has the document's white space. What is left out between two pieces
    goes to the later one. A piece over the size is cut into windows.

    Args:
        tokenizer: of the model that will read the chunks.
        splitter: gives the pieces; it does not change what they say.
        size: most tokens of a chunk, prefix and special tokens included.
        name: of the splitter and its settings: part of a collection's fingerprint.

    Raises:
        ChunkerError: the size leaves no room for text.
    """

    def __init__(
        self, tokenizer: Tokenizer, splitter: TextSplitter, *, size: int, name: str
    ) -> None:
        """Check the size."""
        self._tokenizer, self._splitter = tokenizer, splitter
        self._windows = TokensChunker(tokenizer, size=size, overlap=0)
        self._size, self._name = size, name

    @property
    def settings(self) -> Mapping[str, str | int]:
        """What decides the cuts."""
        return {
            "algorithm": _ALGORITHM,
            "splitter": self._name,
            "size": self._size,
            "overlap": 0,
            "context": "none",
        }

    def chunk(self, document: Document) -> Iterator[Chunk]:
        """Yield the document's chunks.

        Raises:
            ChunkerError: a piece is not in the text, or a character does not fit.
        """
        places = Places(document)
        previous = covered = -1
        for start, end in self._spans(document):
            first = start if start > previous else covered
            for chunk in self._fitting(places, first, end):
                yield chunk
                previous, covered = chunk.start, skip_white_space(document.text, chunk.end)

    def _spans(self, document: Document) -> Iterator[tuple[int, int]]:
        """Yield where the pieces are; together they hold all but white space."""
        text = document.text
        last, covered = -1, skip_white_space(text, 0)
        for piece in map(str.strip, self._splitter.split_text(text)):
            if not piece:
                continue
            words = re.compile(r"\s+".join(map(re.escape, piece.split())))
            found = words.search(text, last + 1)
            if not found:  # without white space, a piece may be the one before once more
                found = words.search(text, max(last, 0))
            if not found:
                raise ChunkerError(
                    f"the text splitter {self._name} changed the text of {document.source}: "
                    f"{piece[:_SHOWN]!r} does not stand in it behind offset {last}. Take one that "
                    "leaves its pieces as they are"
                )
            last, end = found.span()
            if end <= covered:
                continue
            yield min(last, covered), end
            covered = skip_white_space(text, end)
        if covered < len(text):
            yield covered, len(text)

    def _fitting(self, places: Places, start: int, end: int) -> Iterator[Chunk]:
        """Yield the chunk between two offsets, or the windows that it must be cut into."""
        whole = places.counted(start, end, self._tokenizer)
        if whole.n_tokens <= self._size:
            yield whole
            return
        part = Document(text=whole.text, source=places.document.source)
        for window in self._windows.chunk(part):
            yield places.chunk(start + window.start, start + window.end, window.n_tokens)
