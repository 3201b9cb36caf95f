"""Text files to text, exactly: nothing is dropped, replaced or normalised.

Line ends and Unicode forms stay as they are in the file, so that offsets into the text are offsets
into what the file says. Only a byte order mark is not part of the text.
"""

import codecs
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from charset_normalizer import CharsetMatch, from_bytes

from corral.errors import EmptyTextError, NotTextError, ReadError

__all__ = [
    "DEFAULT_MAX_BYTES",
    "STDIN",
    "TextFile",
    "decode",
    "kind_of",
    "read_bytes",
    "read_text",
    "refuse_long_lines",
]

DEFAULT_MAX_BYTES: Final = 128 * 2**20
"""Largest file that is read, since a file is held in memory whole, as bytes and as text."""

STDIN: Final = Path("-")
"""Stands for standard input among the paths that are given."""

_LONGEST_LINE: Final = 16 * 2**20
"""Characters of a line that a person or a program may have meant to be read: a book has fewer."""

# O_NONBLOCK: opening a FIFO that nobody writes to would wait for ever.
_OPEN_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

_KINDS: Final = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)

# The marks of UTF-32 come first: that of UTF-16 LE is the start of UTF-32 LE's.
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

_SIGNATURES: Final = (
    (b"%PDF-", "a PDF"),
    (b"PK\x03\x04", "a ZIP archive or an office document"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old office document"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh91AY&SY", "bzip2 data"),
    (b"\xfd7zXZ\x00", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF87a", "a GIF image"),
    (b"GIF89a", "a GIF image"),
    (b"\x7fELF", "a program"),
    (b"GGUF", "a GGUF model"),
    (b"SQLite format 3\x00", "an SQLite database"),
)

# Encodings that are tried where a file is not UTF-8, the likelier first: it decides where
# charset-normalizer finds several equally plausible, as it does for most short texts.
_LEGACY: Final = (
    *("cp1252", "cp932", "gb18030", "big5", "euc_kr", "euc_jp", "cp1250", "cp1251"),
    *("koi8_r", "cp1253", "cp1254", "cp1255", "cp1256"),
)
_GUESSED_FROM: Final = 2**16
_GUESSED_FROM_LINES: Final = re.compile(rb"[^\n]*[\x80-\xff][^\n]*\n?")
_HALF_WIDTH_KATAKANA: Final = re.compile("[\uff61-\uff9f]")
_CONTROL_BYTES: Final = bytes({*range(0x20), 0x7F} - set(b"\t\n\v\f\r\x1b"))
_MOST_CONTROL: Final = 0.01


@dataclass(frozen=True, slots=True)
class TextFile:
    """What a file says.

    Args:
        text: all of it.
        encoding: Python's name of the encoding it was read in.
        guessed: whether the encoding was guessed from the bytes; UTF-8 and files with a byte
            order mark are not guessed.
    """

    text: str
    encoding: str
    guessed: bool = False


def read_text(path: Path, *, max_bytes: int = DEFAULT_MAX_BYTES) -> TextFile:
    """Read a text file.

    Args:
        path: of the file.
        max_bytes: size of the largest file to read.

    Raises:
        EmptyTextError: the file is empty, or holds nothing but white space.
        NotTextError: what is there is not a text file, or is too large.
        ReadError: the file cannot be opened or read, or changed while it was read.
    """
    raw = read_bytes(path, max_bytes=max_bytes)
    found = decode(str(path), raw)
    if not found.text or found.text.isspace():
        what = "holds nothing but white space" if raw else "is empty"
        raise EmptyTextError(f"{path} {what}.")
    return found


def read_bytes(path: Path, *, max_bytes: int = DEFAULT_MAX_BYTES) -> bytes:
    """Read a file, all of it as it was at one time.

    Raises:
        NotTextError: it is a folder, a FIFO or the like, or larger than max_bytes.
        ReadError: it cannot be opened or read, or changed while it was read.
    """
    try:
        return _read_bytes(path, max_bytes)
    except IsADirectoryError as error:
        raise NotTextError(f"{path} is a folder, not a file.") from error
    except OSError as error:
        raise ReadError(f"{path} cannot be read: {error.strerror or error}.") from error


def kind_of(mode: int) -> str | None:
    """Name what is not a regular file, by its `st_mode`; None for a regular file."""
    if stat.S_ISREG(mode):
        return None
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "no regular file")


def _read_bytes(path: Path, max_bytes: int) -> bytes:
    with open(path, "rb", opener=_open) as file:
        before = os.fstat(file.fileno())
        if kind := kind_of(before.st_mode):
            raise NotTextError(f"{path} is {kind}, not a file that can be read to its end.")
        if before.st_size > max_bytes:
            raise NotTextError(
                f"{path} has {before.st_size:,} bytes; the limit is {max_bytes:,}, since a file "
                "is held in memory whole. Split it, or raise the limit with --max-file-size."
            )
        raw = file.read(before.st_size + 1)
        after = os.fstat(file.fileno())
    if (len(raw), after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        raise ReadError(
            f"{path} changed while it was read: it had {before.st_size:,} bytes, then "
            f"{after.st_size:,}, of which {len(raw):,} were read. Run again when it is at rest."
        )
    return raw


def _open(path: str, _flags: int) -> int:
    return os.open(path, _OPEN_FLAGS)


def decode(
    path: str, raw: bytes, *, declared: str | None = None, long_lines: bool = False
) -> TextFile:
    """Turn the bytes of a text file into its text.

    Args:
        path: of the file, for messages.
        raw: all of its bytes.
        declared: encoding that the file itself names; taken where the bytes are not UTF-8 by a
            byte order mark or by their own shape.
        long_lines: whether a line may have any length.

    Raises:
        NotTextError: they are no text, or in no encoding that can be guessed, or one line of them
            is longer than any that was written to be read.
    """
    found = _decode(path, raw, declared)
    if not long_lines:
        refuse_long_lines(path, found.text)
    return found


def refuse_long_lines(path: str, text: str) -> None:
    """Refuse a text with a line that is too long to be one.

    Raises:
        NotTextError: there is one.
    """
    start = 0
    while len(text) - start > _LONGEST_LINE:
        reach = start + _LONGEST_LINE
        end = max(text.rfind("\n", start, reach), text.rfind("\r", start, reach))
        if end < 0:
            raise NotTextError(
                f"{path} has a line of more than {_LONGEST_LINE:,} characters, which is data and "
                "no text to be read. Break its lines."
            )
        start = end + 1


def _decode(path: str, raw: bytes, declared: str | None) -> TextFile:
    for mark, encoding in _MARKS:
        if raw.startswith(mark) and (text := _try(raw[len(mark) :], encoding)) is not None:
            return TextFile(text, encoding)
    _refuse_binary(path, raw)
    # A page of many encodings says it is UTF-8 and is not, or the other way round. Bytes over
    # 0x7F that read as UTF-8 are UTF-8.
    orders = ("utf-8", declared) if not raw.isascii() else (declared, "utf-8")
    for encoding in filter(None, orders):
        if (text := _try(raw, encoding)) is not None:
            return TextFile(text, encoding)
    _refuse_noise(path, raw)
    for encoding in _guesses(raw):
        if (text := _try(raw, encoding)) is not None:
            return TextFile(text, encoding, guessed=True)
    raise NotTextError(
        f"{path} is not UTF-8, nor any other encoding that could be guessed "
        f"({', '.join(_LEGACY)}). Convert it to UTF-8, for example with iconv."
    )


def _try(raw: bytes, encoding: str) -> str | None:
    try:
        return raw.decode(encoding)
    except (UnicodeError, LookupError):  # a declared encoding may not exist
        return None


def _refuse_binary(path: str, raw: bytes) -> None:
    for signature, kind in _SIGNATURES:
        if raw.startswith(signature):
            raise NotTextError(f"{path} is {kind}, whatever its name says.")
    if (at := raw.find(0)) >= 0:
        raise NotTextError(
            f"{path} is binary: it holds a NUL byte at offset {at:,}. If it is UTF-16 or UTF-32 "
            "without a byte order mark, convert it to UTF-8, for example with iconv."
        )


def _refuse_noise(path: str, raw: bytes) -> None:
    """Refuse what is no UTF-8 and has too many control characters for text in a legacy encoding."""
    n_control = len(raw) - len(raw.translate(None, _CONTROL_BYTES))
    if n_control > _MOST_CONTROL * len(raw):
        raise NotTextError(
            f"{path} is binary: {n_control:,} of its {len(raw):,} bytes are control characters."
        )


def _guesses(raw: bytes) -> Iterator[str]:
    """Name encodings to try, the likeliest first."""
    # The time grows with the bytes, and lines of ASCII tell nothing. No encoding that is tried
    # has a line feed inside a character.
    lines, n_bytes = [], 0
    for found in _GUESSED_FROM_LINES.finditer(raw):
        lines.append(found[0])
        n_bytes += len(found[0])
        if n_bytes > _GUESSED_FROM:
            break
    matches = sorted(from_bytes(b"".join(lines), cp_isolation=list(_LEGACY)), key=_plausibility)
    for match in matches:
        yield from _names(match)
    yield _LEGACY[0]


def _names(match: CharsetMatch) -> list[str]:
    """Name the encodings in which the bytes say the same, the commonest first."""
    return [name for name in _LEGACY if name in match.could_be_from_charset]


def _plausibility(match: CharsetMatch) -> tuple[bool, float, float, int]:
    """Sort key: less chaos, more likeness to a language, and then the commoner encoding."""
    # What is GB18030 is nearly always Shift-JIS as well, if half-width katakana were text.
    is_odd = _HALF_WIDTH_KATAKANA.search(str(match)) is not None
    order = _LEGACY.index(_names(match)[0])
    return (is_odd, round(match.chaos, 1), -round(match.coherence, 1), order)
