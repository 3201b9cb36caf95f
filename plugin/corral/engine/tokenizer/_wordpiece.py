"""WordPiece (BERT and its kin)."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from corral.engine.tokenizer._encoding import Encoding, HuggingFaceEncoder, without_gaps
from corral.errors import GGUFError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from corral.engine.tokenizer._vocabulary import Vocabulary

__all__ = ["wordpiece_encoder"]

# https://github.com/huggingface/transformers: WordpieceTokenizer's default; no known model differs.
_MAX_CHARS_PER_WORD: Final = 100
_SPACE: Final = "▁"
_CASED_SHARE: Final = 0.01

_WORDS: Final = re.compile(r"[^ \t\n\r]+")
"""What is parted for certain: other white space may be a control character, which BERT drops."""

_KEPT_CHARACTERS: Final = 131_072
"""Of the words that are remembered, some 20 thousand in 7 MB; then they are forgotten."""


class _Word(NamedTuple):
    """The tokens of a word, as bytes, which are joined quickly.

    Attributes:
        ids: (n_tokens,) int32.
        offsets: (n_tokens, 2) int64, into the word.
    """

    ids: bytes
    offsets: bytes


class _WordPieceEncoder:
    """An encoder that remembers words.

    White space parts what WordPiece reads, so a word has the same tokens wherever it stands, and
    most words of a text have been read before. Every text is read at least twice, to be cut and
    to be embedded.
    """

    def __init__(self, encoder: HuggingFaceEncoder) -> None:
        self._encoder = encoder
        self._known: dict[str, _Word] = {}
        self._n_kept = 0

    def encode(self, text: str) -> Encoding:
        """Return ids and offsets."""
        found = list(_WORDS.finditer(text))
        words = self._read([word.group() for word in found])
        n_tokens = [len(word.ids) // np.int32().itemsize for word in words]
        starts = np.repeat(np.array([word.start() for word in found], np.int64), n_tokens)
        inside = np.frombuffer(b"".join([word.offsets for word in words]), np.int64).reshape(-1, 2)
        offsets = inside + starts[:, np.newaxis]
        if not all(n_tokens):
            offsets = without_gaps(text, offsets)
        return Encoding(_ids(words), offsets)

    def encode_ids(self, text: str) -> NDArray[np.int32]:
        """Return the ids."""
        return _ids(self._read(_WORDS.findall(text)))

    def _read(self, words: Sequence[str]) -> list[_Word]:
        known = self._known  # other threads may forget it meanwhile
        new = [word for word in dict.fromkeys(words) if word not in known]
        if new:
            if self._n_kept > _KEPT_CHARACTERS:
                known = self._known = {}
                self._n_kept = 0
                new = list(dict.fromkeys(words))
            known.update(zip(new, self._encode(new), strict=True))
            self._n_kept += sum(map(len, new))
        return [known[word] for word in words]

    def _encode(self, words: Sequence[str]) -> list[_Word]:
        """Encode words in one call, which costs less than one for each."""
        ids, offsets = self._encoder.encode_gappy(" ".join(words))
        edges = np.cumsum([0, *(len(word) + 1 for word in words)])
        cuts = np.searchsorted(offsets[:, 0], edges)
        is_read = cuts[:-1] < cuts[1:]
        of = np.repeat(np.arange(len(words)), np.diff(cuts))
        starts, ends = offsets.T
        starts[cuts[:-1][is_read]] = edges[:-1][is_read]
        np.maximum(ends, np.minimum([*starts[1:], edges[-1]], edges[of + 1] - 1), out=ends)
        offsets -= edges[of, np.newaxis]
        return [
            _Word(ids[first:last].tobytes(), offsets[first:last].tobytes())
            for first, last in pairwise(cuts.tolist())
        ]


def _ids(words: Sequence[_Word]) -> NDArray[np.int32]:
    return np.frombuffer(bytearray().join([word.ids for word in words]), np.int32)


def wordpiece_encoder(vocabulary: Vocabulary) -> _WordPieceEncoder:
    """Build the reference's WordPiece from a vocabulary of the model "bert".

    Raises:
        GGUFError: there is no token for unknown words.
    """
    unknown = vocabulary.token_id("unknown")
    if unknown is None:
        raise GGUFError(
            "the GGUF has a WordPiece vocabulary without an unknown token "
            "(tokenizer.ggml.unknown_token_id). Convert the model again."
        )
    pieces = [_as_in_bert(piece) for piece in vocabulary.pieces()]
    ids = {piece: i for i, piece in enumerate(pieces)}
    model = models.WordPiece(
        vocab=ids,
        unk_token=pieces[unknown],
        max_input_chars_per_word=_MAX_CHARS_PER_WORD,
    )
    tokenizer = Tokenizer(model)
    lowercase = vocabulary.flag("normalizer.lowercase", default=not _looks_cased(pieces))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=True,
        strip_accents=vocabulary.flag("normalizer.strip_accents", default=lowercase),
        lowercase=lowercase,
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return _WordPieceEncoder(HuggingFaceEncoder(tokenizer))


def _as_in_bert(piece: str) -> str:
    """Undo the converter's mapping: "▁word" starts a word, "word" goes on with one."""
    if piece.startswith(_SPACE):
        return piece[1:]
    special = piece.startswith(" ") or (piece.startswith("[") and piece.endswith("]"))
    return piece if special else f"##{piece}"


def _looks_cased(pieces: list[str]) -> bool:
    """Tell whether the vocabulary knows capitals: files of older converters do not say it."""
    n_capitals = sum("A" <= piece[:1] <= "Z" for piece in pieces)
    return n_capitals > _CASED_SHARE * len(pieces)
