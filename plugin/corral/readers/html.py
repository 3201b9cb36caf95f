"""HTML: the main text with its headings; scripts, styles and navigation are left out."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from corral.readers.contract import RawFile, ReaderOptions
from corral.readers.layout import Layout
from corral.readers.libraries import library
from corral.reading import decode
from corral_chunkers import Document

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

__all__ = ["HtmlReader", "lay_out"]

_CHARSET: Final = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([\w:.-]+)", re.IGNORECASE)
_SEARCHED_BYTES: Final = 4096

# As browsers read them (WHATWG Encoding): a superset, or what the page must be in to name it so.
_AS_READ: Final = {"iso-8859-1": "cp1252", "latin1": "cp1252", "us-ascii": "cp1252",
                   "ascii": "cp1252", "utf-16": "utf-8", "utf-16le": "utf-8", "shift_jis": "cp932",
                   "gb2312": "gb18030", "gbk": "gb18030", "ks_c_5601-1987": "cp949",
                   "euc-kr": "cp949"}  # fmt: skip

_LEFT_OUT: Final = frozenset({
    "script", "style", "template", "noscript", "nav", "head", "iframe", "object", "svg",
    "canvas", "audio", "video", "map", "datalist", "select", "textarea", "button", "input",
    "dialog",
})  # fmt: skip
_ROLES: Final = frozenset({"navigation", "search", "banner", "contentinfo", "menu", "menubar"})
_FURNITURE: Final = frozenset({"header", "footer", "aside"})
_PARAGRAPHS: Final = frozenset({
    "address", "article", "blockquote", "details", "dl", "fieldset", "figure", "form", "footer",
    "header", "hgroup", "hr", "main", "menu", "ol", "p", "pre", "section", "table", "ul",
})  # fmt: skip
_LINES: Final = frozenset({
    "body", "br", "caption", "dd", "div", "dt", "figcaption", "li", "legend", "summary", "tr",
})  # fmt: skip
_CELLS: Final = frozenset({"td", "th"})
_LISTS: Final = frozenset({"ol", "ul", "menu"})
_SECTIONS: Final = frozenset({"article", "main", "section"})
_HEADINGS: Final = {f"h{level}": level for level in range(1, 7)}
_MAIN: Final = "main, [role=main]"


class HtmlReader:
    """Reads HTML by the rules of HTML 5, as browsers do, however broken it is."""

    suffixes: Final = (".html", ".htm", ".xhtml")
    version: Final = 1
    confined: Final = True

    def read(self, file: RawFile, options: ReaderOptions) -> Iterator[Document]:  # noqa: ARG002
        """Yield the page."""
        text = decode(file.path, file.raw, declared=_declared(file.raw), long_lines=True).text
        layout = Layout()
        title, language = lay_out(text, layout, file.path)
        yield layout.document(source=file.source, format="html", title=title, language=language)


def lay_out(text: str, layout: Layout, path: str) -> tuple[str | None, str | None]:
    """Add a page's main text to a layout.

    Returns:
        Its title and its language, where it says them.
    """
    with library("selectolax", path):
        from selectolax.lexbor import LexborHTMLParser
    page = LexborHTMLParser(text)
    if (main := _main(page)) is not None:
        _Walk(layout).walk(main)
    layout.end_paragraph()
    title = page.css_first("title")
    words = " ".join(title.text().split()) if title else ""
    first = next((heading.text for heading in layout.headings), None)
    language = page.root.attributes.get("lang") if page.root else None
    return words or first, language or None


def _declared(raw: bytes) -> str | None:
    found = _CHARSET.search(raw, 0, _SEARCHED_BYTES)
    if found is None:
        return None
    name = found[1].decode("ascii", "replace").lower()
    return _AS_READ.get(name, name)


def _main(page: "LexborHTMLParser") -> "LexborNode | None":
    """Return what holds the page's text: its one main part, else its one article, else all."""
    for selector in (_MAIN, "article"):
        found = page.css(selector)
        if len(found) == 1:
            return found[0]
    return page.body


class _Walk:
    """What is known on the way through a page."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._preformatted = 0
        self._sections = 0
        self._items: list[int | None] = []

    def walk(self, root: "LexborNode") -> None:
        """Visit what is below a node, without recursion: pages nest as deep as they like."""
        self._sections += root.tag != "body"
        pending = [(root, True)]
        while pending:
            node, enters = pending.pop()
            tag = node.tag or ""
            if not enters:
                self._leave(tag)
            elif tag == "-text":
                self._say(node.text_content or "")
            else:
                self._enter(tag, node)
                pending.append((node, False))
                children = [child for child in node.iter(include_text=True) if self._wants(child)]
                pending += [(child, True) for child in reversed(children)]

    def _wants(self, node: "LexborNode") -> bool:
        """Whether a node's content is part of the text."""
        tag = node.tag or ""
        if tag == "-text":
            return True
        if tag in _LEFT_OUT or (tag in _FURNITURE and not self._sections):
            return False
        attributes = node.attributes
        return not (
            "hidden" in attributes
            or attributes.get("aria-hidden") == "true"
            or attributes.get("role") in _ROLES
            or (tag == "a" and "headerlink" in (attributes.get("class") or ""))
        )

    def _say(self, text: str) -> None:
        if self._preformatted:
            self._layout.verbatim(text)
        else:
            self._layout.flow(text)

    def _enter(self, tag: str, node: "LexborNode") -> None:
        self._count(tag, 1)
        if tag in _HEADINGS:
            self._layout.open_heading(_HEADINGS[tag])
        elif tag in _PARAGRAPHS:
            self._layout.end_paragraph()
        elif tag in _LINES:
            self._layout.end_line()
        elif tag in _CELLS and _follows_cell(node):
            self._layout.flow(" | ")
        if tag in _LISTS:
            self._items.append(1 if tag == "ol" else None)
        elif tag == "li":
            self._layout.marker(self._next_marker())

    def _leave(self, tag: str) -> None:
        self._count(tag, -1)
        if tag in _HEADINGS:
            self._layout.close_heading()
        elif tag in _PARAGRAPHS:
            self._layout.end_paragraph()
        elif tag in _LINES:
            self._layout.end_line()
        if tag in _LISTS:
            self._items.pop()

    def _count(self, tag: str, step: int) -> None:
        self._preformatted += step * (tag == "pre")
        self._sections += step * (tag in _SECTIONS)

    def _next_marker(self) -> str:
        number = self._items[-1] if self._items else None
        if number is None:
            return "- "
        self._items[-1] = number + 1
        return f"{number}. "


def _follows_cell(node: "LexborNode") -> bool:
    before = node.prev
    while before is not None and before.tag not in _CELLS:
        before = before.prev
    return before is not None
