"""E-books: the chapters in their order, each read as HTML."""

import posixpath
import zipfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from corral.errors import ReadError
from corral.readers.archives import opened
from corral.readers.contract import RawFile, ReaderOptions
from corral.readers.html import lay_out
from corral.readers.layout import Layout
from corral.readers.libraries import library
from corral.reading import decode
from corral_chunkers import Document

if TYPE_CHECKING:
    from lxml.etree import _Element

__all__ = ["EpubReader"]

_CONTAINER: Final = "META-INF/container.xml"
_ROOT: Final = ".//{urn:oasis:names:tc:opendocument:xmlns:container}rootfile"
_OPF: Final = ".//{http://www.idpf.org/2007/opf}"
_DC: Final = ".//{http://purl.org/dc/elements/1.1/}"
_PAGES: Final = frozenset({"application/xhtml+xml", "text/html"})


class EpubReader:
    """Reads an .epub: its package file with lxml, its chapters with the reader of HTML.

    The field's own library, EbookLib, is under the AGPL.
    """

    suffixes: Final = (".epub",)
    version: Final = 1
    confined: Final = True

    def read(self, file: RawFile, options: ReaderOptions) -> Iterator[Document]:  # noqa: ARG002
        """Yield the book.

        Raises:
            ReadError: what it says of its parts is not there.
        """
        archive = opened(file)
        root = _xml(archive, _CONTAINER, file.path).find(_ROOT)
        package_name = root.get("full-path", "") if root is not None else ""
        package = _xml(archive, package_name, file.path)
        layout = Layout()
        for name in _chapters(package, package_name):
            text = decode(file.path, _member(archive, name, file.path), long_lines=True).text
            lay_out(text, layout, file.path)
        yield layout.document(
            source=file.source,
            format="epub",
            title=package.findtext(f"{_DC}title"),
            language=package.findtext(f"{_DC}language"),
        )


def _chapters(package: "_Element", package_name: str) -> Iterator[str]:
    """Yield the names of the book's pages in the order of reading, without its contents page."""
    items = {
        item.get("id"): item.get("href", "")
        for item in package.iterfind(f"{_OPF}item")
        if item.get("media-type") in _PAGES and "nav" not in item.get("properties", "").split()
    }
    folder = posixpath.dirname(package_name)
    for reference in package.iterfind(f"{_OPF}itemref"):
        if href := items.get(reference.get("idref")):
            yield posixpath.normpath(posixpath.join(folder, unquote(href.partition("#")[0])))


def _xml(archive: zipfile.ZipFile, name: str, path: str) -> "_Element":
    """Parse a member; entities stay as they are, and nothing is fetched."""
    with library("lxml", path):
        from lxml import etree
    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    return etree.fromstring(_member(archive, name, path), parser)


def _member(archive: zipfile.ZipFile, name: str, path: str) -> bytes:
    try:
        return archive.read(name)
    except KeyError:
        raise ReadError(
            f"{path} is damaged: it names a part {name!r}, which is not in it."
        ) from None
