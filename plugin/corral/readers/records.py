"""Files of records (CSV, TSV, JSON, JSON lines): each record, or so many, a document of its own.

A record is named by its id field, else by the hash of its text: a row that is put in at the top
then renames no other, so that no other is embedded again.
"""

import csv
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import islice
from typing import Any, Final
from urllib.parse import quote

from corral.errors import ReadError
from corral.readers.contract import RawFile, ReaderOptions
from corral.reading import decode
from corral_chunkers import Document

__all__ = ["CsvReader", "JsonLinesReader", "JsonReader"]

Record = tuple[int, Mapping[str, Any]]
"""A record's number in its file, counted from 1, and its fields."""

_LONGEST_CELL: Final = 16 * 2**20
_SNIFFED: Final = 2**16
_DELIMITERS: Final = ",;\t|"
_NAME_DIGITS: Final = 16


class CsvReader:
    """Reads CSV and TSV with Python's csv; the first row names the fields."""

    suffixes: Final = (".csv", ".tsv")
    version: Final = 1
    confined: Final = True

    def read(self, file: RawFile, options: ReaderOptions) -> Iterator[Document]:
        """Yield the rows; each knows the number of its line as `record`, the header being 1."""
        text = decode(file.path, file.raw).text
        csv.field_size_limit(_LONGEST_CELL)
        delimiter = _delimiter(text, file)

        def records() -> Iterator[Record]:
            rows = csv.reader(StringIO(text, newline=""), delimiter=delimiter)
            header = next(rows, [])
            for number, cells in enumerate(rows, start=2):
                if cells:
                    yield number, _row(header, cells)

        return _documents(records, file, options, "csv")


class JsonReader:
    """Reads JSON: a list is its elements, anything else one record."""

    suffixes: Final = (".json",)
    version: Final = 1
    confined: Final = True

    def read(self, file: RawFile, options: ReaderOptions) -> Iterator[Document]:
        """Yield the records; each knows its number as `record`, counted from 1."""
        content = _parsed(decode(file.path, file.raw, long_lines=True).text, file.path)
        elements = content if isinstance(content, list) else [content]
        records = [(number, _fields(element)) for number, element in enumerate(elements, start=1)]
        return _documents(lambda: records, file, options, "json")


class JsonLinesReader:
    """Reads a JSON value a line."""

    suffixes: Final = (".jsonl", ".ndjson")
    version: Final = 1
    confined: Final = True

    def read(self, file: RawFile, options: ReaderOptions) -> Iterator[Document]:
        """Yield the lines; each knows its number as `record`, counted from 1."""
        text = decode(file.path, file.raw, long_lines=True).text

        def records() -> Iterator[Record]:
            for number, line in enumerate(StringIO(text), start=1):
                if not line.isspace():
                    yield number, _fields(_parsed(line, f"line {number:,} of {file.path}"))

        return _documents(records, file, options, "jsonl")


def _delimiter(text: str, file: RawFile) -> str:
    if file.source.lower().endswith(".tsv"):
        return "\t"
    try:
        return csv.Sniffer().sniff(text[:_SNIFFED].partition("\n")[0], _DELIMITERS).delimiter
    except csv.Error:
        return ","


def _row(header: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    """Name a row's cells; those behind the header's end by their number."""
    names = [*header, *(f"column {n}" for n in range(len(header) + 1, len(cells) + 1))]
    return dict(zip(names, cells, strict=False))


def _parsed(text: str, where: str) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return json.loads(text, parse_constant=str)  # NaN is no JSON, so nothing to store
    except ValueError as error:
        raise ReadError(f"{where} is no JSON: {error}.") from error


def _fields(element: object) -> Mapping[str, Any]:
    """Give a record's fields; what is no object is one field without a name."""
    return element if isinstance(element, dict) else {"": element}


def _documents(
    read: Callable[[], Iterable[Record]],
    file: RawFile,
    options: ReaderOptions,
    format: str,  # noqa: A002
) -> Iterator[Document]:
    """Yield the documents once all of them have been made: a file with a bad record gives none.

    So what is stored of the file before stays whole, and stands beside nothing newer.
    """
    for _ in _made(read(), file, options, format):
        pass
    yield from _made(read(), file, options, format)


def _made(
    records: Iterable[Record],
    file: RawFile,
    options: ReaderOptions,
    format: str,  # noqa: A002
) -> Iterator[Document]:
    names = _Names(file, options)
    records = iter(records)
    while group := list(islice(records, options.rows)):
        text = "\n\n".join(filter(None, (_text(record, file, options) for record in group)))
        number, first = group[0]
        known = {name: _value(first, name) for name in options.metadata_fields}
        yield Document(
            text=text,
            source=f"{file.source}#{names.of(group[0], text)}",
            format=format,
            metadata={**known, "record": number},
        )


class _Names:
    """Fragments for the records of a file, each given once."""

    def __init__(self, file: RawFile, options: ReaderOptions) -> None:
        self._file = file
        self._id_field = options.id_field
        self._numbers: dict[str, int] = {}
        self._texts: Counter[str] = Counter()

    def of(self, record: Record, text: str) -> str:
        """Name a record."""
        number, fields = record
        if self._id_field is None:
            digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
            self._texts[digest] += 1
            n = self._texts[digest]
            return digest[:_NAME_DIGITS] + (f"-{n}" if n > 1 else "")
        name = _value(fields, self._id_field)
        if name is None:
            raise ReadError(
                f"record {number:,} of {self._file.path} has no field {self._id_field!r} "
                "(--id-field) to be named by."
            )
        shown = _shown(name)
        first = self._numbers.setdefault(shown, number)
        if first != number:
            raise ReadError(
                f"records {first:,} and {number:,} of {self._file.path} have the same "
                f"{self._id_field} {shown!r}. Name another --id-field, or none."
            )
        return quote(shown, safe="", errors="surrogatepass")


def _text(record: Record, file: RawFile, options: ReaderOptions) -> str:
    """Give what is to be read of a record."""
    number, fields = record
    if not options.text_fields:
        return "\n".join(
            f"{name}: {_shown(value)}" if name else _shown(value)
            for name, value in fields.items()
            if value not in (None, "")
        )
    values = [_value(fields, name) for name in options.text_fields]
    if all(value is None for value in values):
        has = ", ".join(map(repr, list(fields)[:10])) or "none"
        raise ReadError(
            f"record {number:,} of {file.path} has no field "
            f"{' or '.join(map(repr, options.text_fields))} (--text-field); it has: {has}."
        )
    return "\n\n".join(_shown(value) for value in values if value is not None)


def _value(fields: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value of a field; a dot leads into objects; None where there is none."""
    if name in fields:
        return fields[name]
    outer, _, inner = name.partition(".")
    value = fields.get(outer)
    return _value(value, inner) if inner and isinstance(value, dict) else None


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
