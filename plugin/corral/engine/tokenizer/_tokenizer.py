"""The tokenizer of a GGUF: which encoder reads its vocabulary, and what stands round a text."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from corral.engine.tokenizer._aligned import AlignedEncoder
from corral.engine.tokenizer._bpe import bpe_encoder
from corral.engine.tokenizer._encoding import without_surrogates
from corral.engine.tokenizer._pretokenizers import PRE_TOKENIZERS, PreTokenizer
from corral.engine.tokenizer._sentencepiece import spm_encoder, unigram_encoder
from corral.engine.tokenizer._vocabulary import CONTROL, read_vocabulary
from corral.engine.tokenizer._wordpiece import wordpiece_encoder
from corral.errors import GGUFError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np
    from numpy.typing import NDArray

    from corral.engine.tokenizer._encoding import Encoder, Encoding
    from corral.engine.tokenizer._vocabulary import Vocabulary
    from corral.gguf_header import GGUFHeader

__all__ = ["GGUFTokenizer", "control_tokens", "load_tokenizer"]

_logger = logging.getLogger(__name__)

Kind: TypeAlias = Literal["wordpiece", "bpe", "spm", "unigram", "llama"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GGUFTokenizer:
    """Text to tokens with a GGUF's own vocabulary; safe to use from several threads.

    Special tokens never come out of a text: "</s>" or "[SEP]" in a document are characters like
    any others. A lone surrogate, which has no UTF-8, is read as U+FFFD, one character for one.

    Attributes:
        kind: "wordpiece", "bpe" (byte-level), "spm" (SentencePiece's BPE), "unigram", or "llama"
            where ids come from `llama_tokenize`.
        head: ids that the model wants in front of each text.
        tail: ids that the model wants behind each text.
        unk_id: id of the unknown token, or None.
        pad_id: id of the padding token, or None.
        eos_id: id of the end of a text, never of a chat's turn; None where there is none.
    """

    kind: Kind
    head: tuple[int, ...]
    tail: tuple[int, ...]
    unk_id: int | None
    pad_id: int | None
    eos_id: int | None
    encoder: Encoder

    def encode(self, text: str) -> Encoding:
        """Return ids and offsets of a text: no special tokens, no prefix.

        Args:
            text: any string.

        Returns:
            ids (n,) int32; offsets (n, 2) int64 in code points of the text.
        """
        return self.encoder.encode(without_surrogates(text))

    def encode_batch(self, texts: Iterable[str]) -> list[NDArray[np.int32]]:
        """Return the ids of each text, (n,) int32, on the calling thread alone."""
        return [self.encoder.encode_ids(without_surrogates(text)) for text in texts]

    def with_eos(self) -> GGUFTokenizer:
        """Return this tokenizer with EOS behind each text, once: a LAST-pooled model reads it.

        Raises:
            GGUFError: the vocabulary names no EOS.
        """
        if self.eos_id is None:
            raise GGUFError(
                "the GGUF names no end-of-sequence token (tokenizer.ggml.eos_token_id), which a "
                "model with LAST pooling reads its vector from. Convert the model again."
            )
        if self.tail[-1:] == (self.eos_id,):
            return self
        return replace(self, tail=(*self.tail, self.eos_id))


def load_tokenizer(
    header: GGUFHeader, llama_tokenize: Callable[[str], NDArray[np.int32]]
) -> GGUFTokenizer:
    """Build the tokenizer of a GGUF.

    Args:
        header: of the GGUF.
        llama_tokenize: llama.cpp's own, without special tokens, for vocabularies that are not
            known here.

    Returns:
        The tokenizer; its ids are the reference tokenizer's unless its kind is "llama".

    Raises:
        GGUFError: the vocabulary is missing or does not hold together.
    """
    vocabulary = read_vocabulary(header)
    kind, encoder = _encoder(vocabulary, llama_tokenize)
    eos = vocabulary.end_of_text()
    return GGUFTokenizer(
        kind=kind,
        head=_head(vocabulary),
        tail=_tail(vocabulary, eos),
        unk_id=vocabulary.token_id("unknown"),
        pad_id=vocabulary.token_id("padding"),
        eos_id=eos,
        encoder=encoder,
    )


def control_tokens(header: GGUFHeader) -> dict[str, int]:
    """Return the control tokens' ids by their text, to parse a template that the GGUF brings.

    Raises:
        GGUFError: the vocabulary is missing or does not hold together.
    """
    vocabulary = read_vocabulary(header)
    return {
        text: i
        for i, (text, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True))
        if kind == CONTROL
    }


def _encoder(
    vocabulary: Vocabulary, llama_tokenize: Callable[[str], NDArray[np.int32]]
) -> tuple[Kind, Encoder]:
    """Choose and build the encoder."""
    match vocabulary.model:
        case "bert":
            return "wordpiece", wordpiece_encoder(vocabulary)
        case "t5":
            return "unigram", unigram_encoder(vocabulary)
        case "llama":
            return "spm", spm_encoder(vocabulary)
        case "gpt2" if vocabulary.pre in PRE_TOKENIZERS:
            return "bpe", bpe_encoder(vocabulary, PRE_TOKENIZERS[vocabulary.pre])
    _logger.warning(
        "the vocabulary's tokenizer (tokenizer.ggml.model %r, tokenizer.ggml.pre %r) is not known "
        "here: token ids come from llama.cpp and may differ from the ones the model was trained "
        "with",
        vocabulary.model,
        vocabulary.pre,
    )
    return "llama", AlignedEncoder(vocabulary, llama_tokenize)


def _defaults(vocabulary: Vocabulary) -> PreTokenizer:
    """Return what stands round a text where the file does not say it.

    Source: llama-vocab.cpp, llama_vocab::impl::load; for RoBERTa's kin and ModernBERT, which
    llama.cpp would leave bare, their post-processors.
    """
    if vocabulary.model == "gpt2" and vocabulary.pre in PRE_TOKENIZERS:
        return PRE_TOKENIZERS[vocabulary.pre]
    return PreTokenizer(
        patterns=(), add_bos=vocabulary.model == "llama", add_eos=vocabulary.model == "t5"
    )


def _head(vocabulary: Vocabulary) -> tuple[int, ...]:
    """Return what stands in front of each text."""
    if vocabulary.model == "bert":
        return (_required(vocabulary, "[CLS]", "bos", "cls"),)
    if vocabulary.flag("add_bos_token", default=_defaults(vocabulary).add_bos):
        return (_required(vocabulary, "BOS", "bos"),)
    return ()


def _tail(vocabulary: Vocabulary, eos: int | None) -> tuple[int, ...]:
    """Return what stands behind each text."""
    if vocabulary.model == "bert":
        return (_required(vocabulary, "[SEP]", "seperator", "eos"),)
    if vocabulary.flag("add_eos_token", default=_defaults(vocabulary).add_eos):
        return (_required(vocabulary, "EOS", "eos") if eos is None else eos,)
    return ()


def _required(vocabulary: Vocabulary, what: str, *names: str) -> int:
    """Return an id that the model cannot do without."""
    found = vocabulary.token_id(*names)
    if found is None:
        keys = " or ".join(f"tokenizer.ggml.{name}_token_id" for name in names)
        raise GGUFError(
            f"the GGUF's model wants {what} round each text and its vocabulary names none "
            f"({keys}). Convert the model again."
        )
    return found
