"""How each byte-level BPE tokenizer cuts a text into words, by `tokenizer.ggml.pre`.

The patterns are the ones of the reference's tokenizer.json. A name stands here only where the
reference's whole definition is known; what is missing is left to llama.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PRE_TOKENIZERS", "PreTokenizer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreTokenizer:
    """The steps in front of the merges, and the special tokens around a text.

    Attributes:
        patterns: regular expressions, applied in turn to what the one before left.
        nfc: the text is brought to Unicode's NFC first.
        ignore_merges: a word that is a token is that token, whatever the merges say.
        add_bos: BOS stands first where the GGUF says nothing.
        add_eos: EOS stands last where the GGUF says nothing.
    """

    patterns: tuple[str, ...]
    nfc: bool = False
    ignore_merges: bool = False
    add_bos: bool = False
    add_eos: bool = False


_GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DIGITS: Final = r"\p{N}"
_CONTRACTION: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_NEWLINES: Final = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3: Final = (
    _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _NEWLINES
)
_QWEN2: Final = (
    _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _NEWLINES
)
_QWEN35: Final = (
    _CONTRACTION
    + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
    + _NEWLINES
)

_ROBERTA: Final = PreTokenizer(patterns=(_GPT2,), add_bos=True, add_eos=True)

PRE_TOKENIZERS: Final[Mapping[str, PreTokenizer]] = {
    "command-r": PreTokenizer(patterns=(_DIGITS, _GPT2), nfc=True, add_bos=True),
    "f2llmv2": PreTokenizer(patterns=(_QWEN2,), nfc=True),
    "gpt-2": PreTokenizer(patterns=(_GPT2,)),
    "jina-v1-en": _ROBERTA,
    "jina-v2-code": _ROBERTA,
    "jina-v2-de": _ROBERTA,
    "jina-v2-es": _ROBERTA,
    "llama-bpe": PreTokenizer(patterns=(_LLAMA3,), ignore_merges=True, add_bos=True),
    "llama-v3": PreTokenizer(patterns=(_LLAMA3,), ignore_merges=True, add_bos=True),
    "llama3": PreTokenizer(patterns=(_LLAMA3,), ignore_merges=True, add_bos=True),
    "modern-bert": PreTokenizer(patterns=(_GPT2,), nfc=True, add_bos=True, add_eos=True),
    "qwen2": PreTokenizer(patterns=(_QWEN2,), nfc=True),
    "qwen35": PreTokenizer(patterns=(_QWEN35,), nfc=True),
    "refact": PreTokenizer(patterns=(_DIGITS, _GPT2)),
    "roberta-bpe": _ROBERTA,
    "starcoder": PreTokenizer(patterns=(_DIGITS, _GPT2)),
}
