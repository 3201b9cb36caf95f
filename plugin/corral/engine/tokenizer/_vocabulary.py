"""A GGUF's vocabulary, and the ids in it that mean something."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from corral.errors import GGUFError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from corral.gguf_header import GGUFHeader

__all__ = ["BYTE", "CONTROL", "NORMAL", "USER_DEFINED", "Vocabulary", "read_vocabulary"]

# llama.h: enum llama_token_type
NORMAL: Final = 1
UNKNOWN: Final = 2
CONTROL: Final = 3
USER_DEFINED: Final = 4
UNUSED: Final = 5
BYTE: Final = 6

_NEVER_IN_TEXT: Final = frozenset({UNKNOWN, CONTROL, UNUSED})

# Ends of a chat turn. An embedding model's LAST token is the end of the text, even where the GGUF
# was made from a chat model's settings and names one of these as its EOS.
_END_OF_TURN: Final = frozenset(
    {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<turn|>", "<|end|>", "<|return|>"}
)
_END_OF_TEXT: Final = ("<|endoftext|>", "<|end_of_text|>", "<eos>", "</s>")
_ROLES: Final = ("bos", "eos", "unknown", "seperator", "padding", "cls", "mask")
_BRACKETED: Final = re.compile(r"<.*>|\[.*\]", re.DOTALL)

# Ids where the file names none. Source: llama-vocab.cpp, llama_vocab::impl::load
_DEFAULT_IDS: Final[Mapping[str, Mapping[str, int]]] = {
    "bert": {"bos": 101, "unknown": 100, "seperator": 102, "padding": 0},
    "llama": {"bos": 1, "eos": 2, "unknown": 0},
    "t5": {"eos": 1, "unknown": 2, "padding": 0},
    "gpt2": {"bos": 11, "eos": 11},
}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens by id, and what the file says about them.

    Attributes:
        model: `tokenizer.ggml.model`: "bert", "gpt2", "llama", "t5", ...
        pre: `tokenizer.ggml.pre`, "" where the file has none.
        tokens: text by id.
        types: llama.h's token type by id.
        metadata: the file's metadata.
    """

    model: str
    pre: str
    tokens: list[str]
    types: list[int]
    metadata: Mapping[str, object]

    def pieces(self) -> list[str]:
        """Return the text by id of what text can become; the rest as text that cannot occur.

        A control token's text in a document is text. In place of it stands its id behind a blank,
        and blanks never reach a model of `tokenizers`: they are split off, or written otherwise.
        """
        return [
            f" {i}"
            if kind in _NEVER_IN_TEXT or not _is_unicode(text) or _is_filler(text, i)
            else text
            for i, (text, kind) in enumerate(zip(self.tokens, self.types, strict=True))
        ]

    def user_defined(self) -> dict[str, int]:
        """Return the tokens that are cut out of the text before anything else, with their ids."""
        return {
            text: i
            for i, (text, kind) in enumerate(zip(self.tokens, self.types, strict=True))
            if kind == USER_DEFINED and text and _is_unicode(text) and not _is_filler(text, i)
        }

    def floats(self, key: str) -> list[float]:
        """Return `tokenizer.ggml.{key}`, which must have a number for each token."""
        values = self.metadata.get(f"tokenizer.ggml.{key}")
        if not isinstance(values, list) or len(values) < len(self.tokens):
            n_values = len(values) if isinstance(values, list) else 0
            raise GGUFError(
                f"the GGUF has {n_values} tokenizer.ggml.{key} for its {len(self.tokens)} tokens; "
                f"a tokenizer of the model {self.model!r} needs one for each. "
                "Convert the model again with a current converter."
            )
        return cast("list[float]", values)

    def merges(self) -> list[tuple[str, str]]:
        """Return `tokenizer.ggml.merges` as pairs; a left part may start with a blank."""
        values = cast("list[str]", self.metadata.get("tokenizer.ggml.merges", []))
        cuts = [merge.find(" ", 1) for merge in values]
        return [(m[:cut], m[cut + 1 :]) for m, cut in zip(values, cuts, strict=True)]

    def flag(self, name: str, *, default: bool) -> bool:
        """Return the boolean `tokenizer.ggml.{name}`."""
        return bool(self.metadata.get(f"tokenizer.ggml.{name}", default))

    def token_id(self, *names: str) -> int | None:
        """Return the first of `tokenizer.ggml.{name}_token_id` that the vocabulary holds.

        Where the file has none of them: llama.cpp's default for the first name.
        """
        for name in names:
            found = self.metadata.get(f"tokenizer.ggml.{name}_token_id")
            if isinstance(found, int) and 0 <= found < len(self.tokens):
                return found
        default = _DEFAULT_IDS.get(self.model, {}).get(names[0])
        return default if default is not None and default < len(self.tokens) else None

    def end_of_text(self) -> int | None:
        """Return the id of the EOS, and never of a chat's end of turn where there is another."""
        eos = self.token_id("eos")
        if eos is None or self.tokens[eos] not in _END_OF_TURN:
            return eos
        wanted = set(_END_OF_TEXT)
        found = {text: i for i, text in enumerate(self.tokens) if text in wanted}
        return next((found[text] for text in _END_OF_TEXT if text in found), eos)


def read_vocabulary(header: GGUFHeader) -> Vocabulary:
    """Take the vocabulary out of a GGUF's header.

    Raises:
        GGUFError: there is none, or its parts do not fit each other.
    """
    metadata = header.metadata
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens:
        raise GGUFError(
            "the GGUF holds no vocabulary (tokenizer.ggml.tokens), so no text can be read with it. "
            "Take a GGUF that was converted together with its tokenizer."
        )
    types = metadata.get("tokenizer.ggml.token_type", [NORMAL] * len(tokens))
    if not isinstance(types, list) or len(types) < len(tokens):
        raise GGUFError(
            f"the GGUF's tokenizer.ggml.token_type does not fit its {len(tokens)} tokens. "
            "Convert the model again with a current converter."
        )
    model = str(metadata.get("tokenizer.ggml.model", ""))
    pre = str(metadata.get("tokenizer.ggml.pre", ""))
    return Vocabulary(model, pre, tokens, _mended(types[: len(tokens)], tokens, metadata), metadata)


def _mended(types: list[int], tokens: list[str], metadata: Mapping[str, object]) -> list[int]:
    """Return the types, with CONTROL for control tokens that the file calls something else.

    Converters take over what a model's settings say, and some call "</s>" a word of the user's.
    """
    mended = list(types)
    ends = _END_OF_TURN | set(_END_OF_TEXT)
    for i, kind in enumerate(types):
        if kind == USER_DEFINED and tokens[i] in ends:
            mended[i] = CONTROL
    for role in _ROLES:
        named = metadata.get(f"tokenizer.ggml.{role}_token_id")
        if (
            isinstance(named, int)
            and 0 <= named < len(tokens)
            and _BRACKETED.fullmatch(tokens[named])
        ):
            mended[named] = CONTROL
    return mended


def _is_unicode(text: str) -> bool:
    """Tell whether the header's reader found UTF-8 there."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _is_filler(text: str, token_id: int) -> bool:
    """Tell whether a converter made the token up to fill the vocabulary."""
    return text == f"[PAD{token_id}]"
