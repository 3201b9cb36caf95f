"""A chunker with the limits of a model, and of who reads the chunks after it."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from corral.embeddings import GGUFEmbeddings
from corral.errors import UsageError
from corral.plugins import load_chunker
from corral.size_units import SizeUnit, load_unit
from corral_chunkers import Chunk, Chunker, Document, Encoding

__all__ = ["ModelTokenizer", "make_chunker"]

_LARGEST_DEFAULT_CHUNK: Final = 512


@dataclass(frozen=True, slots=True)
class ModelTokenizer:
    """The model's tokens, as a chunker wants them."""

    embeddings: GGUFEmbeddings

    def encode(self, text: str) -> Encoding:
        """Tokens of the text alone."""
        return Encoding(*self.embeddings.tokenizer.encode(text))

    def count(self, text: str) -> int:
        """Tokens that the model reads for the text, prefix and special tokens included."""
        return self.embeddings.sequences(self.embeddings.document_prefix).count(text)


def make_chunker(
    embeddings: GGUFEmbeddings,
    *,
    name: str = "auto",
    size: int | None = None,
    unit: str | None = None,
    overlap: int = 0,
    context: str | None = None,
    late: bool = False,
    may_exceed: bool = False,
) -> Chunker:
    """Make a chunker for a model.

    Args:
        embeddings: the model.
        name: of the chunker's entry point.
        size: most tokens of a chunk; None takes what the model takes, but no more than 512.
        unit: what the size is counted in, as "tiktoken:cl100k_base", where the model's limit holds
            besides; None counts the model's own tokens, prefix and special tokens included.
        overlap: tokens of a chunk that repeat the end of the one before.
        context: what the model reads before each chunk: "none" or "headings"; None takes the
            headings, where chunks are read one by one and the chunker knows of contexts.
        late: whether chunks are pooled from a pass over the whole document.
        may_exceed: whether the user has said what is to become of chunks over the model's limit.

    Raises:
        UsageError: there is no such chunker or unit, or the settings do not go together.
        ChunkerError: the chunker cannot meet the settings.
    """
    limit = embeddings.max_tokens
    make = load_chunker(name)
    knows_contexts = "context" in inspect.signature(make).parameters
    if context is None:
        context = "headings" if knows_contexts and not late else "none"
    if late and context != "none":
        raise UsageError(
            f"context {context!r} is read before each chunk, and late chunking reads whole "
            "documents. Leave one of them out"
        )
    if size is None:  # late chunks need a document around them
        size = min(limit // 2 if late else limit, _LARGEST_DEFAULT_CHUNK)
    if unit is None and size > limit and not may_exceed:
        raise UsageError(
            f"chunk size is {size} tokens; the model takes {limit} ({embeddings.limit_source}). "
            f"Set --chunk-size {limit}, or say with --over-length what is to become of longer "
            "chunks"
        )
    options: dict[str, str] = {}
    if context != "none":
        if not knows_contexts:
            raise UsageError(
                f"the chunker {name!r} puts no context before its chunks. Take another chunker, "
                "or no context"
            )
        options["context"] = context
    tokenizer = ModelTokenizer(embeddings)
    if unit is None:
        return make(tokenizer, size=size, overlap=overlap, **options)
    both = _BothLimits(unit=load_unit(unit), model=tokenizer, size=size, limit=limit)
    return _Recounted(make(both, size=size, overlap=overlap, **options), tokenizer, unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class _BothLimits:
    """Tokens of a unit, raised over the size where the text is too long for the model.

    Args:
        unit: that the size is counted in.
        model: the model's tokens.
        size: most tokens of the unit.
        limit: most tokens of the model.
    """

    unit: SizeUnit
    model: ModelTokenizer
    size: int
    limit: int

    def encode(self, text: str) -> Encoding:
        """Tokens of whichever limit is reached first in most texts."""
        return (self.unit if self.size < self.limit else self.model).encode(text)

    def count(self, text: str) -> int:
        """Tokens of the unit, or as many over the size as the model's are over its limit."""
        return max(self.unit.count(text), self.size + self.model.count(text) - self.limit)


@dataclass(frozen=True, slots=True)
class _Recounted:
    """A chunker whose size is of a unit; its chunks' tokens are the model's."""

    chunker: Chunker
    tokenizer: ModelTokenizer
    unit: str

    @property
    def settings(self) -> Mapping[str, str | int]:
        return {**self.chunker.settings, "size_unit": self.unit}

    def chunk(self, document: Document) -> Iterator[Chunk]:
        for chunk in self.chunker.chunk(document):
            n_tokens = self.tokenizer.count(chunk.context + chunk.text)
            yield replace(chunk, n_tokens=n_tokens)
