"""Ids from llama.cpp, offsets from aligning its pieces with the text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

from corral.engine.tokenizer._bpe import bytes_of
from corral.engine.tokenizer._encoding import Encoding, code_point_spans
from corral.engine.tokenizer._vocabulary import NORMAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from corral.engine.tokenizer._vocabulary import Vocabulary

__all__ = ["AlignedEncoder", "align"]

_BYTE_PIECE: Final = re.compile("<0x([0-9A-F]{2})>")
# Bytes that are searched for a piece that does not stand where the one before ended.
_WINDOW: Final = 64


class AlignedEncoder:
    """llama_tokenize as an encoder."""

    def __init__(
        self, vocabulary: Vocabulary, llama_tokenize: Callable[[str], NDArray[np.int32]]
    ) -> None:
        self._tokenize = llama_tokenize
        byte_level = vocabulary.model == "gpt2"
        self._pieces = [
            _bytes(token, byte_level=byte_level and kind == NORMAL)
            for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)
        ]

    def encode(self, text: str) -> Encoding:
        """Return ids and offsets."""
        ids = self._tokenize(text)
        raw = text.encode()
        starts, ends = align(raw, [self._pieces[i] for i in ids])
        return Encoding(ids, code_point_spans(raw, starts, ends))

    def encode_ids(self, text: str) -> NDArray[np.int32]:
        """Return the ids."""
        return self._tokenize(text)


def align(raw: bytes, pieces: list[bytes]) -> tuple[list[int], list[int]]:
    """Find where each piece stands in the text.

    A piece that is not found (the text was normalised on its way) gets what lies between its
    neighbours, and so do all of a run of such pieces. What no piece stands for goes to the one
    behind it, and at the end to the last one.

    Args:
        raw: the text in UTF-8.
        pieces: what each token stands for, in order.

    Returns:
        The first byte of each piece and the one behind it; both never decrease, and together they
        cover the text.
    """
    starts: list[int] = []
    ends: list[int] = []
    n_lost = 0  # pieces at the end of the lists whose end is not known yet
    at = 0
    for piece in pieces:
        starts.append(at)
        found = _find(raw, piece, at, first=len(starts) == 1)
        if found is None:
            n_lost += 1
            ends.append(at)
            continue
        start, at = found
        if n_lost:
            starts[-1] = start
            ends[-n_lost:] = [start] * n_lost
            n_lost = 0
        ends.append(at)
    n_last = max(n_lost, 1) if ends else 0
    ends[len(ends) - n_last :] = [len(raw)] * n_last
    return starts, ends


def _find(raw: bytes, piece: bytes, at: int, *, first: bool) -> tuple[int, int] | None:
    """Return the span of a piece at or soon behind a byte, or None."""
    if raw.startswith(piece, at):
        return at, at + len(piece)
    # The blank that some tokenizers put in front of a text is not in the text.
    bare = piece.lstrip(b" ")
    if not bare:
        return (at, at) if first else None
    start = raw.find(bare, at, at + _WINDOW + len(bare))
    return None if start < 0 else (start, start + len(bare))


def _bytes(token: str, *, byte_level: bool) -> bytes:
    """Return the bytes that a token stands for."""
    if byte_level and (raw := bytes_of(token)) is not None:
        return raw
    if match := _BYTE_PIECE.fullmatch(token):
        return bytes.fromhex(match[1])
    return token.replace("▁", " ").encode("utf-8", "surrogateescape")
