"""What a tokenizer.json says of special tokens: what stands round a text, and between two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from corral.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from corral.models.convert.checkpoint import Checkpoint

__all__ = ["Frame", "read_frame"]

_NOTHING = frozenset({None, "ByteLevel"})


@dataclass(frozen=True, slots=True)
class Frame:
    """The special tokens that a tokenizer adds.

    Attributes:
        before: In front of a text; "" for none.
        after: Behind a text; "" for none.
        two_between: Whether two tokens stand between the texts of a pair.
    """

    before: str = ""
    after: str = ""
    two_between: bool = False

    def metadata(self, checkpoint: Checkpoint, ids: Mapping[str, int]) -> dict[str, object]:
        """Return the flags and ids of special tokens as `tokenizer.ggml.*` pairs.

        Args:
            checkpoint: Names the special tokens in tokenizer_config.json.
            ids: By token.
        """
        named = checkpoint.json("tokenizer_config.json") or {}
        roles = {
            "bos": self.before or _text(named.get("bos_token")),
            "eos": self.after or _text(named.get("eos_token")),
            "seperator": _text(named.get("sep_token")),  # that is how GGUF spells it
            "unknown": _text(named.get("unk_token")),
            "padding": _text(named.get("pad_token")),
            "mask": _text(named.get("mask_token")),
            "cls": _text(named.get("cls_token")),
        }
        return {
            "tokenizer.ggml.add_bos_token": bool(self.before),
            "tokenizer.ggml.add_eos_token": bool(self.after),
            "tokenizer.ggml.add_sep_token": self.two_between,
            **{
                f"tokenizer.ggml.{role}_token_id": ids[token]
                for role, token in roles.items()
                if token in ids
            },
        }


def read_frame(checkpoint: Checkpoint, fast: Mapping[str, Any]) -> Frame:
    """Read the post-processor of a tokenizer.json.

    Raises:
        ModelError: It is of a kind that a GGUF cannot say.
    """
    frames = list(_frames(checkpoint, fast.get("post_processor")))
    if len(frames) > 1:
        raise ModelError(f"{checkpoint.folder / 'tokenizer.json'} adds special tokens twice")
    return frames[0] if frames else Frame()


def _frames(checkpoint: Checkpoint, processor: Mapping[str, Any] | None) -> Iterator[Frame]:
    """Yield what each step of a post-processor adds, if it adds anything."""
    kind = processor["type"] if processor else None
    if processor is None or kind in _NOTHING:
        return
    if kind == "Sequence":
        for step in processor["processors"]:
            yield from _frames(checkpoint, step)
    elif kind in {"BertProcessing", "RobertaProcessing"}:
        two = kind == "RobertaProcessing"
        yield Frame(processor["cls"][0], processor["sep"][0], two_between=two)
    elif kind == "TemplateProcessing":
        yield _template(checkpoint, processor)
    else:
        raise ModelError(
            f"{checkpoint.folder / 'tokenizer.json'} has a post-processor of the kind {kind}; "
            "TemplateProcessing, BertProcessing and RobertaProcessing can be converted"
        )


def _template(checkpoint: Checkpoint, processor: Mapping[str, Any]) -> Frame:
    """Read a template such as `<s> $A </s>` with its pair."""
    single = [_name(part) for part in processor["single"]]
    pair = [_name(part) for part in processor.get("pair") or []]
    text = single.index("")
    before, after = single[:text], single[text + 1 :]
    if len(before) > 1 or len(after) > 1:
        raise ModelError(
            f"{checkpoint.folder / 'tokenizer.json'} puts {before} before and {after} behind a "
            "text; a GGUF can have one token on each side"
        )
    between = pair.index("", pair.index("") + 1) - pair.index("") - 1 if pair.count("") > 1 else 0
    return Frame("".join(before), "".join(after), two_between=between > 1)


def _name(part: Mapping[str, Any]) -> str:
    """Return a template part's special token, or "" for a text's place."""
    return str(part["SpecialToken"]["id"]) if "SpecialToken" in part else ""


def _text(token: object) -> str:
    """Return a token that tokenizer_config.json gives as text or as an object."""
    return str(token["content"]) if isinstance(token, dict) else str(token or "")
