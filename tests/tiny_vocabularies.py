"""Small vocabularies of every kind of tokenizer that the engine knows.

Source of the tables: llama.cpp's src/llama-vocab.cpp.
"""

# ruff: noqa: SIM905 - word lists are for reading

import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from gguf import TokenType
from numpy.typing import NDArray

__all__ = ["Vocabulary", "bpe", "spm", "unigram", "wordpiece"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """A tokenizer's tables.

    Args:
        model: `tokenizer.ggml.model`: "bert" (WordPiece), "gpt2" (BPE), "llama" (SPM) or "t5"
            (Unigram).
        tokens: by id, as the reference tokenizer spells them.
        types: by id.
        special: ids by gguf's names: "bos", "eos", "unk", "sep", "pad", "mask".
        pre: `tokenizer.ggml.pre`.
        merges: of BPE, "left right".
        scores: of SPM and Unigram.
        add_space_prefix: of SPM and Unigram: whether a text begins with the mark of a word.
        add_bos, add_eos, add_sep: None leaves the key out.
    """

    model: str
    tokens: tuple[str, ...]
    types: tuple[int, ...]
    special: Mapping[str, int]
    pre: str = "default"
    merges: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    add_space_prefix: bool = False
    add_bos: bool | None = None
    add_eos: bool | None = None
    add_sep: bool | None = None

    @property
    def ordinary_ids(self) -> NDArray[np.int32]:
        """Ids that text can give; (n,) int32."""
        return np.flatnonzero(np.array(self.types) == TokenType.NORMAL).astype(np.int32)


_WORDS: Final = "the of and to in query document fish harbour ##ing ##ed ##er ##s ##tion".split()
_MERGES: Final = (  # GPT-2's first ones
    "Ġ t|Ġ a|h e|i n|r e|o n|Ġt he|e r|Ġ s|a t|Ġ w|Ġ o|e n|Ġ c|i t|i s|a n|o r|e s|Ġ b|e d|Ġ f|"
    "in g|Ġ p|o u|Ġa n|a l|a r|Ġt o|Ġ m|Ġo f|Ġ in|Ġ d|Ġ h|Ġan d|i c|a s|l e|Ġt h|i on"
).split("|")


def _vocabulary(
    n_vocab: int,
    tokens: Mapping[str, int],
    *,
    model: str,
    special: Mapping[str, str],
    **rest: Any,
) -> Vocabulary:
    """Fill a vocabulary up to n_vocab with tokens that no text gives.

    Args:
        n_vocab: tokens in all.
        tokens: the type of each, in the order of their ids.
        model: as in Vocabulary.
        special: tokens by gguf's names.
        rest: the other fields of Vocabulary.
    """
    n = n_vocab - len(tokens)
    if n < 0:
        raise ValueError(f"n_vocab is {n_vocab}; the tokenizer alone has {len(tokens)} tokens")
    ids = {token: i for i, token in enumerate(tokens)}
    return Vocabulary(
        model=model,
        tokens=(*tokens, *(f"[unused{i}]" for i in range(n))),
        types=(*tokens.values(), *[int(TokenType.UNUSED)] * n),
        special={name: ids[token] for name, token in special.items()},
        **rest,
    )


def _typed(token_type: TokenType, tokens: Iterable[str]) -> dict[str, int]:
    return dict.fromkeys(tokens, int(token_type))


def wordpiece(n_vocab: int) -> Vocabulary:
    """Make BERT's WordPiece for lower-case Latin text; other words are unknown."""
    letters = string.ascii_lowercase + string.digits
    pieces = [*string.punctuation, *letters, *(f"##{letter}" for letter in letters), *"海人"]
    return _vocabulary(
        n_vocab,
        _typed(TokenType.CONTROL, ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"))
        | _typed(TokenType.NORMAL, (*pieces, *_WORDS)),
        model="bert",
        special={
            "pad": "[PAD]",
            "unk": "[UNK]",
            "bos": "[CLS]",
            "sep": "[SEP]",
            "eos": "[SEP]",
            "mask": "[MASK]",
        },
    )


def _byte_letters() -> list[str]:
    """GPT-2's letter for each of the 256 bytes."""
    seen = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    unseen = [byte for byte in range(256) if byte not in seen]
    return [chr(b if b in seen else 256 + unseen.index(b)) for b in range(256)]


def bpe(
    n_vocab: int, *, pre: str, control: Sequence[str], special: Mapping[str, str]
) -> Vocabulary:
    """Make GPT-2's BPE with its first merges; text falls back on bytes.

    Args:
        n_vocab: tokens in all.
        pre: `tokenizer.ggml.pre`: how text is cut before merging.
        control: the control tokens.
        special: which of them is what, by gguf's names.
    """
    merged = [merge.replace(" ", "") for merge in _MERGES]
    return _vocabulary(
        n_vocab,
        _typed(TokenType.NORMAL, [*_byte_letters(), *merged]) | _typed(TokenType.CONTROL, control),
        model="gpt2",
        special=special,
        pre=pre,
        merges=tuple(_MERGES),
    )


def _sentence_pieces() -> list[str]:
    """Pieces from the likeliest on: GPT-2's merges, then single letters."""
    merged = [merge.replace(" ", "").replace("Ġ", "\u2581") for merge in _MERGES]
    return [*merged, "\u2581", *string.ascii_letters, *string.digits, *string.punctuation]


def _scores(n_vocab: int, before: int, pieces: Sequence[str]) -> tuple[float, ...]:
    """Score pieces so that few long ones beat many short ones, and earlier ones later ones."""
    after = n_vocab - before - len(pieces)
    return (*[0.0] * before, *(-10 - i / 100 for i in range(len(pieces))), *[0.0] * after)


def spm(n_vocab: int) -> Vocabulary:
    """Make Llama 2's SentencePiece BPE; text falls back on bytes."""
    head = (
        _typed(TokenType.UNKNOWN, ["<unk>"])
        | _typed(TokenType.CONTROL, ["<s>", "</s>"])
        | _typed(TokenType.BYTE, [f"<0x{byte:02X}>" for byte in range(256)])
    )
    pieces = _sentence_pieces()
    return _vocabulary(
        n_vocab,
        head | _typed(TokenType.NORMAL, pieces),
        model="llama",
        special={"unk": "<unk>", "bos": "<s>", "eos": "</s>"},
        scores=_scores(n_vocab, len(head), pieces),
        add_space_prefix=True,
    )


def unigram(n_vocab: int) -> Vocabulary:
    """Make XLM-RoBERTa's Unigram; what it has no piece for is unknown."""
    head = _typed(TokenType.CONTROL, ["<s>", "<pad>", "</s>"]) | _typed(
        TokenType.UNKNOWN, ["<unk>"]
    )
    pieces = _sentence_pieces()
    return _vocabulary(
        n_vocab,
        head | _typed(TokenType.NORMAL, pieces),
        model="t5",
        special={"bos": "<s>", "pad": "<pad>", "eos": "</s>", "sep": "</s>", "unk": "<unk>"},
        scores=_scores(n_vocab, len(head), pieces),
        add_space_prefix=True,
        add_bos=True,
        add_eos=True,
        add_sep=True,
    )
