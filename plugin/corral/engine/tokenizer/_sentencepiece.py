"""SentencePiece's two models: BPE by scores (Llama 2, Gemma) and Unigram (XLM-R, T5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from corral.engine.tokenizer._encoding import HuggingFaceEncoder
from corral.engine.tokenizer._vocabulary import BYTE, NORMAL, USER_DEFINED
from corral.errors import GGUFError

if TYPE_CHECKING:
    from corral.engine.tokenizer._vocabulary import Vocabulary

__all__ = ["spm_encoder", "unigram_encoder"]

_SPACE: Final = "▁"
_N_ASCII: Final = 0x80


def spm_encoder(vocabulary: Vocabulary) -> HuggingFaceEncoder:
    """Build the reference's BPE with byte fallback from a vocabulary of the model "llama".

    Raises:
        GGUFError: it has no scores, or no token for what is unknown.
    """
    pieces = vocabulary.pieces()
    user_defined = vocabulary.user_defined()
    # Converters write a user-defined run of blanks as blanks; the reference's is a run of "▁".
    pieces = [piece.replace(" ", _SPACE) if piece in user_defined else piece for piece in pieces]
    ids = {piece: i for i, piece in enumerate(pieces)}
    # SentencePiece starts from characters, be they pieces or not, so that "\t\t" is found in a
    # vocabulary that has "<0x09>" and no "\t".
    for code in range(_N_ASCII):
        if (byte_piece := f"<0x{code:02X}>") in ids:
            ids.setdefault(chr(code), ids[byte_piece])
    model = models.BPE(
        vocab=ids,
        merges=_merges_by_score(vocabulary, pieces, ids),
        unk_token=pieces[_unknown(vocabulary)],
        fuse_unk=True,
        byte_fallback=BYTE in vocabulary.types,
    )
    tokenizer = Tokenizer(model)
    blanks = normalizers.Replace(" ", _SPACE)
    tokenizer.normalizer = (
        normalizers.Sequence([normalizers.Prepend(_SPACE), blanks])
        if vocabulary.flag("add_space_prefix", default=True)
        else blanks
    )
    tokenizer.add_tokens(
        [AddedToken(text, normalized=False) for text in user_defined if " " not in text]
    )
    return HuggingFaceEncoder(tokenizer)


def unigram_encoder(vocabulary: Vocabulary) -> HuggingFaceEncoder:
    """Build the reference's Unigram from a vocabulary of the model "t5".

    Raises:
        GGUFError: it has no scores, or no token for what is unknown.
    """
    scored = list(zip(vocabulary.pieces(), vocabulary.floats("scores"), strict=False))
    tokenizer = Tokenizer(
        models.Unigram(scored, _unknown(vocabulary), byte_fallback=BYTE in vocabulary.types)
    )
    charsmap = vocabulary.metadata.get("tokenizer.ggml.precompiled_charsmap")
    if charsmap:
        octets = bytes(value & 0xFF for value in cast("list[int]", charsmap))
        tokenizer.normalizer = normalizers.Precompiled(octets)
    prefix = vocabulary.flag("add_space_prefix", default=True)
    metaspace = pre_tokenizers.Metaspace(_SPACE, "always" if prefix else "never")
    tokenizer.pre_tokenizer = (
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
        if vocabulary.flag("remove_extra_whitespaces", default=True)
        else metaspace
    )
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in vocabulary.user_defined()])
    return HuggingFaceEncoder(tokenizer)


def _unknown(vocabulary: Vocabulary) -> int:
    """Return the id of the unknown token."""
    unknown = vocabulary.token_id("unknown")
    if unknown is None:
        raise GGUFError(
            f"the GGUF has a vocabulary of the model {vocabulary.model!r} without an unknown token "
            "(tokenizer.ggml.unknown_token_id). Convert the model again."
        )
    return unknown


def _merges_by_score(
    vocabulary: Vocabulary, pieces: list[str], ids: dict[str, int]
) -> list[tuple[str, str]]:
    """Return the merges that SentencePiece's BPE makes, first the best.

    It joins the two neighbours whose union is the piece with the highest score; user-defined
    pieces have 0, which converters overwrite.

    Source: https://github.com/huggingface/transformers, generate_merges
    """
    scores = vocabulary.floats("scores")
    found: list[tuple[float, int, int, str, str]] = []
    for piece, kind, score in zip(pieces, vocabulary.types, scores, strict=False):
        if kind not in (NORMAL, USER_DEFINED):
            continue
        rank = 0.0 if kind == USER_DEFINED else score
        for cut in range(1, len(piece)):
            left = piece[:cut]
            if left in ids and (right := piece[cut:]) in ids:
                found.append((rank, cut, len(right), left, right))
    found.sort(key=lambda merge: merge[:3], reverse=True)
    return [merge[3:] for merge in found]
