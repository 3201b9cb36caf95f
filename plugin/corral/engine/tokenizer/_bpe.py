"""Byte-level BPE (GPT-2 and what came after it)."""

from __future__ import annotations

import unicodedata
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from corral.engine.tokenizer._encoding import Encoding, HuggingFaceEncoder, code_point_spans

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from corral.engine.tokenizer._encoding import Encoder
    from corral.engine.tokenizer._pretokenizers import PreTokenizer
    from corral.engine.tokenizer._vocabulary import Vocabulary

__all__ = ["BYTES", "bpe_encoder", "bytes_of"]


def _byte_alphabet() -> dict[str, int]:
    """Return GPT-2's character for each byte, turned round.

    Source: https://github.com/openai/gpt-2/blob/master/src/encoder.py, bytes_to_unicode
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + i): byte for i, byte in enumerate(others)
    }


BYTES: Final = _byte_alphabet()
# Code points that tiktoken is given at once: its regex engine runs out of stack on a run of blanks
# about eight times as long.
_MAX_LENGTH: Final = 1 << 17


def bytes_of(piece: str) -> bytes | None:
    """Return the bytes that a byte-level token stands for, or None where it is not byte-level."""
    try:
        return bytes([BYTES[character] for character in piece])
    except KeyError:
        return None


def bpe_encoder(vocabulary: Vocabulary, pre: PreTokenizer) -> Encoder:
    """Build the reference's BPE: on tiktoken where that gives the same ids, else on tokenizers."""
    ranks = _ranks(vocabulary, pre)
    return (
        HuggingFaceEncoder(_tokenizer(vocabulary, pre))
        if ranks is None
        else (_TiktokenEncoder(vocabulary, pre, ranks))
    )


class _TiktokenEncoder:
    """tiktoken for texts in the normal form that the model reads, tokenizers for the others.

    The others are few: decomposed characters where the model wants NFC, and huge texts.
    """

    def __init__(self, vocabulary: Vocabulary, pre: PreTokenizer, ranks: dict[bytes, int]) -> None:
        self._vocabulary = vocabulary
        self._pre = pre
        user_defined = vocabulary.user_defined()
        self._user_defined = frozenset(user_defined)
        self._encoding = tiktoken.Encoding(
            "gguf",
            pat_str=pre.patterns[0],
            mergeable_ranks=ranks,
            special_tokens=user_defined,
        )
        self._sizes = np.zeros(len(vocabulary.tokens), np.int64)
        for piece, i in ranks.items():
            self._sizes[i] = len(piece)
        for text, i in user_defined.items():
            self._sizes[i] = len(text.encode())

    @cached_property
    def _general(self) -> HuggingFaceEncoder:
        """Takes every text; built for the first that needs it."""
        return HuggingFaceEncoder(_tokenizer(self._vocabulary, self._pre))

    def encode(self, text: str) -> Encoding:
        """Return ids and offsets."""
        if not self._takes(text):
            return self._general.encode(text)
        ids = self._ids(text)
        ends = np.cumsum(self._sizes[ids])
        return Encoding(ids, code_point_spans(text.encode(), ends - self._sizes[ids], ends))

    def encode_ids(self, text: str) -> NDArray[np.int32]:
        """Return the ids."""
        return self._ids(text) if self._takes(text) else self._general.encode_ids(text)

    def _takes(self, text: str) -> bool:
        if len(text) > _MAX_LENGTH:
            return False
        return not self._pre.nfc or unicodedata.is_normalized("NFC", text)

    def _ids(self, text: str) -> NDArray[np.int32]:
        found = self._encoding.encode_to_numpy(
            text, allowed_special=self._user_defined, disallowed_special=()
        )
        return found.astype(np.int32)


def _ranks(vocabulary: Vocabulary, pre: PreTokenizer) -> dict[bytes, int] | None:
    """Return tiktoken's ranks, or None where it would not give the ids that the merges give.

    tiktoken joins the two neighbours whose union has the lowest id. That is the merge list's order
    if its results ascend by id and every token of several bytes is such a result. A token that no
    merge makes is found by tiktoken as a whole word, which is what `ignore_merges` says.
    """
    user_defined = vocabulary.user_defined()
    if len(pre.patterns) > 1 or _any_prefix(user_defined):
        return None
    ids = {piece: i for i, piece in enumerate(vocabulary.pieces()) if piece not in user_defined}
    results = [ids.get(left + right, -1) for left, right in vocabulary.merges()]
    if results != sorted(results) or min(results, default=0) < 0:
        return None
    made = set(results)
    ranks: dict[bytes, int] = {}
    for piece, i in ids.items():
        raw = bytes_of(piece)
        if raw is None:
            if not piece.startswith(" "):
                return None
        elif len(raw) == 1 or i in made or pre.ignore_merges:
            ranks[raw] = i
        else:
            return None
    return ranks if all(bytes([byte]) in ranks for byte in range(0x100)) else None


def _any_prefix(texts: Mapping[str, int]) -> bool:
    """Tell whether a text starts with another: tiktoken would take either of the two."""
    in_order = sorted(texts)
    return any(after.startswith(before) for before, after in pairwise(in_order))


def _tokenizer(vocabulary: Vocabulary, pre: PreTokenizer) -> Tokenizer:
    """Build the BPE on tokenizers."""
    ids = {piece: i for i, piece in enumerate(vocabulary.pieces())}
    merges = [
        pair
        for pair in vocabulary.merges()
        if pair[0] in ids and pair[1] in ids and pair[0] + pair[1] in ids
    ]
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges, ignore_merges=pre.ignore_merges))
    if pre.nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in pre.patterns]
        + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in vocabulary.user_defined()])
    return tokenizer
