"""WordPiece (BERT and its kin)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from corral.engine.tokenizer._encoding import HuggingFaceEncoder
from corral.errors import GGUFError

if TYPE_CHECKING:
    from corral.engine.tokenizer._vocabulary import Vocabulary

__all__ = ["wordpiece_encoder"]

# https://github.com/huggingface/transformers: WordpieceTokenizer's default; no known model differs.
_MAX_CHARS_PER_WORD: Final = 100
_SPACE: Final = "▁"
_CASED_SHARE: Final = 0.01


def wordpiece_encoder(vocabulary: Vocabulary) -> HuggingFaceEncoder:
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
    return HuggingFaceEncoder(tokenizer)


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
