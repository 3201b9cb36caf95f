"""A tokenizer.json's tokens by id, as GGUF lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from corral.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from corral.models.convert.checkpoint import Checkpoint

__all__ = [
    "CONTROL",
    "NORMAL",
    "UNUSED",
    "USER_DEFINED",
    "Tokens",
    "read_tokens",
    "require_fast",
    "steps_of",
]

NORMAL: Final = 1  # gguf.TokenType
CONTROL: Final = 3
USER_DEFINED: Final = 4
UNUSED: Final = 5


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a model, one for each row of its embedding.

    Attributes:
        texts: By id.
        types: By id.
    """

    texts: list[str]
    types: list[int]

    @property
    def ids(self) -> dict[str, int]:
        """Ids by token."""
        return {text: i for i, text in enumerate(self.texts)}


def require_fast(checkpoint: Checkpoint, kind: str) -> Mapping[str, Any]:
    """Return tokenizer.json, which must hold a model of this kind.

    Raises:
        ModelError: It is not there, or holds another kind.
    """
    path = checkpoint.folder / "tokenizer.json"
    fast: Mapping[str, Any] | None = checkpoint.json("tokenizer.json")
    if fast is None:
        raise ModelError(
            f"{path} is missing, and the vocabulary is read from nowhere else. Write it with "
            'transformers: AutoTokenizer.from_pretrained("MODEL").save_pretrained("DIR")'
        )
    found = fast["model"].get("type")
    if found != kind:
        raise ModelError(f"{path} has a tokenizer of the kind {found}; the model takes {kind}")
    return fast


def read_tokens(
    checkpoint: Checkpoint, fast: Mapping[str, Any], vocabulary: Mapping[int, str]
) -> Tokens:
    """Return the tokens of a vocabulary with those added to it, filled up to the model's rows.

    Args:
        checkpoint: Its config.json says how many rows there are.
        fast: tokenizer.json.
        vocabulary: Tokens by id, the added ones left out or not.

    Raises:
        ModelError: More tokens than rows.
    """
    added = {entry["id"]: entry for entry in fast.get("added_tokens", [])}
    by_id = {**vocabulary, **{i: entry["content"] for i, entry in added.items()}}
    n_rows = checkpoint.size("vocab_size")
    if max(by_id) >= n_rows:
        raise ModelError(
            f"the vocabulary has ids up to {max(by_id)}, and the model has rows for {n_rows} "
            "(vocab_size in config.json): the tokenizer's files belong to another model"
        )
    types = dict.fromkeys(by_id, NORMAL)
    types |= {i: CONTROL if entry["special"] else USER_DEFINED for i, entry in added.items()}
    return Tokens(
        # llama.cpp's own converter names rows without a token so.
        texts=[by_id.get(i, f"[PAD{i}]") for i in range(n_rows)],
        types=[types.get(i, UNUSED) for i in range(n_rows)],
    )


def steps_of(step: Mapping[str, Any] | None, name: str) -> list[Mapping[str, Any]]:
    """Return the steps of a part of tokenizer.json, be it a sequence, one step or null.

    Args:
        step: The part.
        name: Under which a sequence has its steps.
    """
    if step is None:
        return []
    return list(step[name]) if step["type"] == "Sequence" else [step]
