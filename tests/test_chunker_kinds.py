"""The chunkers that cut by structure: the laws, for each."""

from dataclasses import replace

import pytest
from chunker_contract import ChunkerContract

from corral_chunkers import Heading
from corral_chunkers.auto import AutoChunker
from corral_chunkers.code import CodeChunker
from corral_chunkers.markdown import MarkdownChunker
from corral_chunkers.recursive import RecursiveChunker
from corral_chunkers.sentences import SentencesChunker


class TestRecursive(ChunkerContract):
    def make(self, tokenizer, *, size, overlap):
        return RecursiveChunker(tokenizer, size=size, overlap=overlap)


@pytest.mark.slow  # the same machinery as TestRecursive
class TestSentences(ChunkerContract):
    def make(self, tokenizer, *, size, overlap):
        return SentencesChunker(tokenizer, size=size, overlap=overlap)


@pytest.mark.slow  # TestAutoWithHeadingsBefore cuts Markdown, too
class TestMarkdown(ChunkerContract):
    def make(self, tokenizer, *, size, overlap):
        return MarkdownChunker(tokenizer, size=size, overlap=overlap)


class TestCode(ChunkerContract):
    format = "python"

    def make(self, tokenizer, *, size, overlap):
        return CodeChunker(tokenizer, size=size, overlap=overlap)


class TestAutoWithHeadingsBefore(ChunkerContract):
    format = "markdown"

    def document(self, text):
        heading = Heading(0, 1, "A heading of some length")
        return replace(super().document(text), title="The title", headings=(heading,))

    def make(self, tokenizer, *, size, overlap):
        return AutoChunker(tokenizer, size=size, overlap=overlap, context="headings")
