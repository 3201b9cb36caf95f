"""Which reader reads which file: by the end of its name, else by its first bytes."""

import re
import zipfile
from collections.abc import Mapping
from functools import cache
from io import BytesIO
from typing import Final, NamedTuple

from corral.plugins import READERS, available, load_reader
from corral.readers.contract import Reader

__all__ = ["NamedReader", "reader_for", "readers", "suffixes"]

_FALLBACK: Final = "text"
_HTML: Final = re.compile(rb"\s*(?:<!doctype html|<html)\b", re.IGNORECASE)
_PARTS: Final = {
    "META-INF/container.xml": "epub",
    "ppt/presentation.xml": "pptx",
    "word/document.xml": "docx",
}


class NamedReader(NamedTuple):
    """A reader, and the name of its entry point."""

    name: str
    reader: Reader

    @property
    def label(self) -> str:
        """Name and version, as they stand in the payload."""
        return f"{self.name}/{self.reader.version}"


@cache
def readers() -> Mapping[str, NamedReader]:
    """All readers that are installed, by name.

    Raises:
        UsageError: one of them cannot be imported.
    """
    return {name: NamedReader(name, load_reader(name)()) for name in available(READERS)}


def suffixes() -> tuple[str, ...]:
    """Ends of the names of all files that some reader reads, in lower case."""
    return tuple(sorted({end for found in readers().values() for end in found.reader.suffixes}))


def reader_for(name: str, raw: bytes) -> NamedReader:
    """Choose the reader of a file.

    Args:
        name: of the file; where several suffixes fit, the longest decides.
        raw: the file's bytes, which decide where the name does not.
    """
    name = name.lower()
    fitting = [
        (len(end), found)
        for found in readers().values()
        for end in found.reader.suffixes
        if name.endswith(end)
    ]
    if fitting:
        return max(fitting, key=lambda pair: pair[0])[1]
    return readers().get(_sniffed(raw), readers()[_FALLBACK])


def _sniffed(raw: bytes) -> str:
    if raw.startswith(b"%PDF-"):
        return "pdf"
    if raw.startswith(b"PK\x03\x04"):
        return _sniffed_zip(raw)
    return "html" if _HTML.match(raw) else _FALLBACK


def _sniffed_zip(raw: bytes) -> str:
    try:
        names = set(zipfile.ZipFile(BytesIO(raw)).namelist())
    except (zipfile.BadZipFile, NotImplementedError, ValueError):
        return _FALLBACK
    return next((name for part, name in _PARTS.items() if part in names), _FALLBACK)
