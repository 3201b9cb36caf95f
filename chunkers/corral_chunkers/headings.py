"""Where the headings of a text stand: those of Markdown, and those of a wiki."""

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Final, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.front_matter import front_matter_plugin

from corral_chunkers.contract import Heading

__all__ = [
    "MarkdownOutline",
    "line_offsets",
    "markdown_outline",
    "parse_markdown",
    "wiki_headings",
]

_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_WIKI: Final = re.compile(
    r"^[ \t]*(?P<left>=(?:[ \t]?=){0,5})[ \t]*(?P<text>[^=\s](?:[^\r\n]{0,198}[^=\s])?)[ \t]*"
    r"(?P<right>=(?:[ \t]?=){0,5})[ \t]*(?=[\r\n]|\Z)",
    re.MULTILINE,
)


class MarkdownOutline(NamedTuple):
    """What a Markdown text says of itself.

    Attributes:
        headings: in order, those in quotes and lists left out; `start` is where the line starts,
            hashes and all.
        front_matter: YAML between the lines of hyphens at the top, or "".
    """

    headings: tuple[Heading, ...]
    front_matter: str


def markdown_outline(text: str) -> MarkdownOutline:
    """Find the headings of a text, by the rules of CommonMark; of a wiki, where it has none.

    Source: https://spec.commonmark.org, with the front matter of Pandoc and Jekyll.
    """
    tokens, starts = parse_markdown(text), line_offsets(text)
    front = next((token.content for token in tokens if token.type == "front_matter"), "")
    return MarkdownOutline(tuple(_headings(tokens, starts)) or wiki_headings(text), front)


def wiki_headings(text: str) -> tuple[Heading, ...]:
    """Find the lines that stand between as many equals signs on both sides, one to six.

    Many plain texts have such headings: exports of wikis, and corpora made of them, where the
    signs may stand apart (" = = Plot = = ").

    Source: https://www.mediawiki.org/wiki/Help:Formatting, "Section headings".
    """
    found = ((line, line["left"].count("=")) for line in _WIKI.finditer(text))
    return tuple(
        Heading(line.start("left"), level, line["text"])
        for line, level in found
        if line["right"].count("=") == level
    )


def parse_markdown(text: str) -> list[Token]:
    """Return the blocks of a text as markdown-it's tokens; what stands in lines is not parsed."""
    return _parser().parse(text)


def line_offsets(text: str) -> list[int]:
    """Return the offset of each line, as markdown-it counts lines, and that of the text's end."""
    return [found.start() for found in _LINE.finditer(text)]


@cache
def _parser() -> MarkdownIt:
    # Tables, so that a line of hyphens below a row makes no heading of it. What stands in the
    # lines is parsed for headings alone, which takes a tenth of the time.
    parser = MarkdownIt("commonmark").enable("table").use(front_matter_plugin)
    parser.core.ruler.disable("inline")
    return parser


@cache
def _inline_parser() -> MarkdownIt:
    return MarkdownIt("commonmark")


def _headings(tokens: list[Token], starts: list[int]) -> Iterator[Heading]:
    for opening, content in pairwise(tokens):
        if opening.type == "heading_open" and opening.level == 0 and opening.map:
            text = " ".join(_plain(content.content).split())
            if text:
                yield Heading(starts[opening.map[0]], int(opening.tag[1:]), text)


def _plain(markup: str) -> str:
    """Leave out the markup of a line."""
    children = _inline_parser().parseInline(markup)[0].children or []
    return "".join(" " if child.type == "softbreak" else _words(child) for child in children)


def _words(token: Token) -> str:
    return token.content if token.type in {"text", "code_inline", "image"} else ""
