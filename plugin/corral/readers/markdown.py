"""Markdown, as it is, with its headings, and the title and language of its front matter."""

from collections.abc import Iterator
from typing import Final

import yaml

from corral.readers.contract import RawFile, ReaderOptions
from corral.reading import decode
from corral_chunkers import Document
from corral_chunkers.headings import markdown_outline

__all__ = ["MarkdownReader", "markdown_document"]


class MarkdownReader:
    """Gives a Markdown file's text unchanged; markdown-it finds the headings."""

    suffixes: Final = (".md", ".markdown", ".mdown", ".mkd")
    version: Final = 1
    confined: Final = True

    def read(self, file: RawFile, options: ReaderOptions) -> Iterator[Document]:  # noqa: ARG002
        """Yield the text."""
        yield markdown_document(decode(file.path, file.raw).text, file.source)


def markdown_document(text: str, source: str) -> Document:
    """Make a document of a Markdown text."""
    outline = markdown_outline(text)
    said = _front_matter(outline.front_matter)
    first = next((heading.text for heading in outline.headings if heading.level == 1), None)
    return Document(
        text=text,
        source=source,
        format="markdown",
        title=said.get("title") or first,
        language=said.get("lang") or said.get("language"),
        headings=outline.headings,
    )


def _front_matter(text: str) -> dict[str, str]:
    """Read the texts of a front matter; what is no YAML says nothing."""
    try:
        said = yaml.safe_load(text) if text else None
    except yaml.YAMLError:
        return {}
    pairs = said.items() if isinstance(said, dict) else ()
    return {key: " ".join(value.split()) for key, value in pairs if isinstance(value, str)}
