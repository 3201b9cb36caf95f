"""Where in a document a chunk stands: its headings and its page."""

from bisect import bisect_right
from typing import Final

from corral_chunkers.contract import Chunk, Document, Heading, Tokenizer
from corral_chunkers.limits import Context, Contexts

__all__ = ["Places"]


_NO_CONTEXT: Final = Context("", 0)


class Places:
    """Makes the chunks of a document, each with the place where it stands."""

    def __init__(self, document: Document, contexts: Contexts | None = None) -> None:
        """Lay out the document's headings and pages.

        Args:
            document: with its headings.
            contexts: what the model reads before its chunks; None for nothing.
        """
        self.document = document
        self._contexts = contexts
        self._starts, self._paths = _lay_out(document)

    def chunk(self, start: int, end: int, n_tokens: int) -> Chunk:
        """Return the chunk between two offsets."""
        document = self.document
        path = self._path(start)
        return Chunk(
            text=document.text[start:end],
            start=start,
            end=end,
            n_tokens=n_tokens,
            heading_path=tuple(heading.text for heading in path),
            page=max(bisect_right(document.pages, start), 1) if document.pages else None,
            language=document.language,
            parent=(path[-1].start, self._end(path[-1])) if path else None,
            context=self.context(start).text,
        )

    def counted(self, start: int, end: int, tokenizer: Tokenizer) -> Chunk:
        """Return the chunk between two offsets without white space at its end."""
        text = self.document.text[start:end].rstrip()
        n_tokens = tokenizer.count(self.context(start).text + text)
        return self.chunk(start, start + len(text), n_tokens)

    def context(self, start: int) -> Context:
        """Return what the model reads before a chunk that begins at an offset."""
        return self._contexts.of(self.heading_path(start)) if self._contexts else _NO_CONTEXT

    def part_start(self, offset: int) -> int:
        """Return from where on the headings over an offset are the same."""
        at = bisect_right(self._starts, offset) - 1
        return self._starts[at] if at >= 0 else 0

    def heading_path(self, start: int) -> tuple[str, ...]:
        """Return the headings over an offset, the outermost first."""
        return tuple(heading.text for heading in self._path(start))

    def _path(self, start: int) -> tuple[Heading, ...]:
        at = bisect_right(self._starts, start) - 1
        return self._paths[at] if at >= 0 else ()

    def _end(self, heading: Heading) -> int:
        return len(self.document.text) if heading.end is None else heading.end


def _lay_out(document: Document) -> tuple[list[int], list[tuple[Heading, ...]]]:
    """Return offsets, and from each on the headings that hold; what holds has an end."""
    headings = _ended(document)
    edges = sorted({edge for heading in headings for edge in (heading.start, heading.end or 0)})
    paths: list[tuple[Heading, ...]] = []
    opened: list[Heading] = []
    coming = iter([*headings, None])
    heading = next(coming)
    for edge in edges:
        opened = [one for one in opened if (one.end or 0) > edge]
        while heading is not None and heading.start == edge:
            opened = [one for one in opened if one.level < heading.level]
            opened.append(heading)
            heading = next(coming)
        paths.append(tuple(opened))
    return edges, paths


def _ended(document: Document) -> list[Heading]:
    """Give each heading the end of its part."""
    ended: list[Heading] = []
    behind: list[Heading] = []  # nearest first in reverse: each further out than the one before
    for heading in reversed(document.headings):
        while behind and behind[-1].level > heading.level:
            behind.pop()
        end = behind[-1].start if behind else len(document.text)
        behind.append(heading)
        ended.append(heading if heading.end is not None else heading._replace(end=end))
    return ended[::-1]
