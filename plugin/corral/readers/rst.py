"""reStructuredText, as it is, with its headings."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from corral.readers.contract import RawFile, ReaderOptions
from corral.readers.libraries import library
from corral.reading import decode
from corral_chunkers import Document, Heading

if TYPE_CHECKING:
    from docutils import nodes

__all__ = ["RstReader"]

_DEEPEST: Final = 6
_LINE: Final = re.compile(r"(.*?)(?:\r\n|\r|\n|\Z)")
_ADORNMENT: Final = re.compile(r"([!-/:-@[-`{-~])\1*\s*")
_ROLE: Final = re.compile(r":[\w:+.-]+:`([^`<]*?)(?:\s*<[^`>]*>)?`")
_MARKUP: Final = re.compile(r"[`*]+")
# A text of a stranger's reads no file of ours, and what is odd in it is not for a reader to say.
_SETTINGS: Final = {
    "file_insertion_enabled": False,
    "raw_enabled": False,
    "report_level": 5,
    "halt_level": 5,
    "syntax_highlight": "none",
    "line_length_limit": 2**20,
}


class RstReader:
    """Gives a reStructuredText file's text unchanged; docutils finds the sections."""

    suffixes: Final = (".rst", ".rest")
    version: Final = 1
    confined: Final = True

    def read(self, file: RawFile, options: ReaderOptions) -> Iterator[Document]:  # noqa: ARG002
        """Yield the text."""
        text = decode(file.path, file.raw).text
        headings = tuple(_headings(text, file.path))
        yield Document(
            text=text,
            source=file.source,
            format="rst",
            title=headings[0].text if headings else None,
            headings=headings,
        )


class _NoInliner:
    """Leaves the words of a paragraph alone: only sections are wanted, at a tenth of the time."""

    def init_customizations(self, settings: Any) -> None:  # noqa: ANN401 - docutils' own bag
        """Need nothing."""

    def parse(self, text: str, *_: object) -> tuple[list["nodes.Text"], list["nodes.Node"]]:
        """Give the text back."""
        from docutils import nodes

        return [nodes.Text(text)], []


def _headings(text: str, path: str) -> Iterator[Heading]:
    """Find the line of each section's title, from the one before on."""
    lines = [(found.start(1), found[1].strip()) for found in _LINE.finditer(text)]
    at = 0
    for title, level in _sections(text, path):
        while at + 1 < len(lines):
            (start, line), (_, below) = lines[at], lines[at + 1]
            at += 1
            if line == title and _ADORNMENT.fullmatch(below):
                yield Heading(start, level, _plain(title))
                break


def _sections(text: str, path: str) -> Iterator[tuple[str, int]]:
    """Yield the raw titles of all sections, with their levels."""
    with library("docutils", path):
        from docutils import nodes
        from docutils.frontend import get_default_settings
        from docutils.parsers.rst import Parser
        from docutils.utils import new_document
    settings = get_default_settings(Parser)
    for name, value in _SETTINGS.items():
        setattr(settings, name, value)
    document = new_document("text", settings)
    inliner: Any = _NoInliner()
    Parser(inliner=inliner).parse(text, document)
    for section in document.findall(nodes.section):
        title = section.next_node(nodes.title)
        if title is not None:
            yield title.astext(), min(len(section.section_hierarchy()), _DEEPEST)


def _plain(title: str) -> str:
    return " ".join(_MARKUP.sub("", _ROLE.sub(r"\1", title)).split())
