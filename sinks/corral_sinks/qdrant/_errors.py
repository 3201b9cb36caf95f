"""Turn what Qdrant's client, engine and transport raise into the sinks' errors.

SinkError
├── TooLargeError               the server takes no request of this size: split it
└── SinkUnavailableError
    └── TransientError          the same call may succeed later: wait and retry
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc
import httpx
from qdrant_client.common.client_exceptions import QdrantException, ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from corral_sinks import SinkError, SinkUnavailableError

__all__ = ["Place", "TooLargeError", "TransientError", "mapped_errors"]

_TRANSIENT_STATUS = frozenset({408, 425, 429})
_TRANSIENT_CODES = frozenset(
    {
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.UNKNOWN,
    }
)
_SIZE_CODES = frozenset({grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.RESOURCE_EXHAUSTED})
_SIZE_WORDS = ("larger than max", "message length too large")
"""Of gRPC's own server and of tonic, which Qdrant's is made of, or a proxy between.

Sources: grpc src/core message_size_filter.cc; tonic src/codec/decode.rs.
"""
_KEY_CODES = frozenset({grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED})
_FOREIGN_STATUS = frozenset({301, 302, 307, 308, 400, 404, 405, 501})
_MARKUP_BEGINS = 20
"""Qdrant speaks JSON; a page of HTML is another server's."""
_MOST_WORDS = 500


class TooLargeError(SinkError):
    """The server takes no request of this size."""


class TransientError(SinkUnavailableError):
    """The same call may succeed later.

    Args:
        message: what happened.
        retry_after: seconds that the server asked to wait, or None.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        """Keep what the server asked for."""
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a call goes, for messages.

    Args:
        name: such as "the Qdrant server at http://localhost:6333".
        api_key: sent to it, or None; never shown.
    """

    name: str
    api_key: str | None = field(default=None, repr=False)

    def redact(self, words: object) -> str:
        """Text of an error on one line, without the key, at most 500 characters."""
        text = " ".join(str(words).split()) or type(words).__name__
        if self.api_key:
            text = text.replace(self.api_key, "***")
        return text[:_MOST_WORDS].rstrip(".")


@contextmanager
def mapped_errors(place: Place) -> Iterator[None]:
    """Let nothing but SinkError and its kin out of a block of third-party calls.

    The embedded engine raises plain `Exception`, and a panic in it is a `BaseException`; the block
    should hold nothing else than calls into the client or the engine.
    """
    try:
        yield
    except SinkError:
        raise
    except Exception as error:
        raise _mapped(error, place) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise SinkError(f"{place.name} broke down: {place.redact(error)}.") from error


def _mapped(error: Exception, place: Place) -> SinkError:
    """Choose the sinks' error for a third party's."""
    mapped = SinkError(f"{place.name}: {place.redact(error)}.")
    match error:
        case ResourceExhaustedResponse():
            words = f"{place.name} asks to slow down: {place.redact(error)}."
            mapped = TransientError(words, retry_after=float(error.retry_after_s))
        case QdrantException():
            mapped = TransientError(f"{place.name} asks to slow down: {place.redact(error)}.")
        case UnexpectedResponse():
            mapped = _from_status(error.status_code or 0, _words(error), place)
        case ResponseHandlingException():
            mapped = _from_transport(error.source, place)
        case httpx.HTTPError() | httpx.InvalidURL():
            mapped = _from_transport(error, place)
        case grpc.RpcError():
            mapped = _from_grpc(error, place)
        case json.JSONDecodeError():
            mapped = SinkError(
                f"{place.name} did not answer as Qdrant does: no JSON. Is the address right?"
            )
    return mapped


def _from_status(status: int, words: str, place: Place) -> SinkError:
    said = f"HTTP {status}: {place.redact(words)}"
    if status in {401, 403}:
        return _key_error(said, place)
    if status in _FOREIGN_STATUS and "<" in words[:_MARKUP_BEGINS]:
        return SinkError(
            f"{place.name} did not answer as Qdrant does ({said:.80}...). Is the address right? "
            "Qdrant's REST is on port 6333 unless changed."
        )
    # Actix, which Qdrant's REST runs on, answers 400 to JSON over service.max_request_size_mb.
    if status == 413 or (status == 400 and "larger than allowed" in words):  # noqa: PLR2004
        return TooLargeError(f"{place.name} takes no request of this size ({said}).")
    if status in _TRANSIENT_STATUS or status >= 500:  # noqa: PLR2004
        return TransientError(f"{place.name} failed ({said}).")
    return SinkError(f"{place.name} refused ({said}).")


def _from_transport(error: Exception, place: Place) -> SinkError:
    terminal = isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError)
    if isinstance(error, httpx.TransportError) and not terminal:
        return TransientError(f"cannot reach {place.name}: {place.redact(error)}.")
    return SinkError(
        f"{place.name} did not answer as Qdrant does: {place.redact(error)}. Is the address right?"
    )


def _from_grpc(error: grpc.RpcError, place: Place) -> SinkError:
    call: object = error  # a failed call is raised as an error that is the call too
    code = call.code() if isinstance(call, grpc.Call) else grpc.StatusCode.UNKNOWN
    details = call.details() if isinstance(call, grpc.Call) else None
    said = f"gRPC {code.name}: {place.redact(details or error)}"
    if code in _KEY_CODES:
        return _key_error(said, place)
    if code in _SIZE_CODES and any(words in str(details) for words in _SIZE_WORDS):
        return TooLargeError(f"{place.name} takes no request of this size ({said}).")
    if code is grpc.StatusCode.UNAVAILABLE:
        return TransientError(f"cannot reach {place.name} ({said}).")
    if code in _TRANSIENT_CODES:
        return TransientError(f"{place.name} failed ({said}).")
    return SinkError(f"{place.name} refused ({said}).")


def _key_error(said: str, place: Place) -> SinkError:
    if place.api_key:
        return SinkError(
            f"{place.name} refused the api key ({said}). Put a key that it knows, with the right "
            "to write, into the environment variable QDRANT_API_KEY."
        )
    return SinkError(
        f"{place.name} asks for an api key ({said}). Put it into the environment variable "
        "QDRANT_API_KEY."
    )


def _words(error: UnexpectedResponse) -> str:
    """Return what the server said, out of its JSON where it is Qdrant's."""
    try:
        return str(json.loads(error.content)["status"]["error"])
    except (KeyError, TypeError, ValueError):
        return error.content.decode(errors="replace") or error.reason_phrase
