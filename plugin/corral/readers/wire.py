"""Documents and errors as bytes, between us and the process that reads: JSON, which is data."""

import json
from dataclasses import asdict
from typing import Any, Final

from corral import errors
from corral.errors import ReadError
from corral.readers.contract import RawFile, ReaderOptions
from corral_chunkers import Document, Heading

__all__ = ["END", "document_of", "pack", "pack_document", "pack_error", "unpack", "unpack_request"]

END: Final = b"{}"
"""Says that a file's last document was sent."""

_ERRORS: Final = {name: getattr(errors, name) for name in ("EmptyTextError", "NotTextError")}


def pack(name: str, file: RawFile, options: ReaderOptions) -> bytes:
    """Write what is asked of a reader, all but the file's bytes."""
    request = {"reader": name, "path": file.path, "source": file.source, **asdict(options)}
    return json.dumps(request).encode()


def unpack_request(message: bytes, raw: bytes) -> tuple[str, RawFile, ReaderOptions]:
    """Read what `pack` wrote."""
    request = json.loads(message)
    name = request.pop("reader")
    file = RawFile(raw=raw, path=request.pop("path"), source=request.pop("source"))
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in request.items()
    }
    return name, file, ReaderOptions(**fields)


def pack_document(document: Document) -> bytes:
    """Write a document; lone surrogates come through, too."""
    return json.dumps({"document": asdict(document)}).encode()


def pack_error(error: ReadError) -> bytes:
    """Write why a file gives no (more) documents."""
    return json.dumps({"error": type(error).__name__, "message": str(error)}).encode()


def unpack(message: bytes) -> Document | ReadError | None:
    """Read an answer: a document, an error, or None for the end."""
    answer = json.loads(message)
    if "document" in answer:
        return document_of(answer["document"])
    if "error" in answer:
        error: ReadError = _ERRORS.get(answer["error"], ReadError)(answer["message"])
        return error
    return None


def document_of(fields: dict[str, Any]) -> Document:
    """Make a document of its fields as JSON."""
    headings = tuple(Heading(*heading) for heading in fields["headings"])
    return Document(**{**fields, "headings": headings, "pages": tuple(fields["pages"])})
