"""Which pair layout a GGUF's reranker reads."""

import warnings
from typing import Final

from corral.engine.pairs import FamilyLayout, Limit, PairLayout, TemplateLayout
from corral.engine.tokenizer import GGUFTokenizer, control_tokens
from corral.errors import GGUFError, UsageError
from corral.gguf_header import GGUFHeader

__all__ = ["SECOND_SEGMENT_KEY", "choose_layout"]

SECOND_SEGMENT_KEY: Final = "corral.second_segment_offset"
"""Our converter's key: the embedding of token i as part of a second segment is row i + offset."""

_TEMPLATE_KEY: Final = "tokenizer.chat_template.rerank"
_SEGMENT_TYPES: Final = "token_types.weight"
# RoBERTa's kin, whose pairs have two separators; older files don't say it.
_ROBERTA: Final = frozenset(
    {"jina-v1-en", "jina-v2-code", "jina-v2-de", "jina-v2-es", "roberta-bpe"}
)


def choose_layout(
    header: GGUFHeader,
    tokenizer: GGUFTokenizer,
    limit: Limit,
    *,
    causal: bool,
    instruction: str | None = None,
) -> PairLayout:
    """Choose the template that the GGUF brings, else the pair of its family.

    Args:
        header: the GGUF's.
        tokenizer: the GGUF's.
        limit: longest sequence.
        causal: whether a token sees only those before it.
        instruction: for the template; None takes its own.

    Raises:
        GGUFError: a causal model without a template, or a damaged file.
        UsageError: there is an instruction and no place for one.
    """
    template = header.metadata.get(_TEMPLATE_KEY)
    if isinstance(template, str):
        return TemplateLayout(
            template,
            tokenizer=tokenizer,
            control=control_tokens(header),
            limit=limit,
            instruction=instruction,
        )
    if causal:
        raise GGUFError(
            f"the GGUF is a causal model without a rerank template ({_TEMPLATE_KEY}), so nothing "
            "says how it reads a query and a document. Convert the model again with "
            "`corral model convert`, or take another GGUF of it"
        )
    if instruction is not None:
        raise UsageError(
            f"instruction is given, and the GGUF has no rerank template ({_TEMPLATE_KEY}) with a "
            "place for one"
        )
    return FamilyLayout(
        tokenizer=tokenizer,
        limit=limit,
        separator=_separator(header, tokenizer),
        second_offset=_second_offset(header, tokenizer),
    )


def _separator(header: GGUFHeader, tokenizer: GGUFTokenizer) -> tuple[int, ...]:
    """Return what stands between the end of the query and the document, beside that end."""
    if tokenizer.kind == "wordpiece":
        return ()
    known = tokenizer.kind == "unigram" or header.metadata.get("tokenizer.ggml.pre") in _ROBERTA
    if not header.metadata.get("tokenizer.ggml.add_sep_token", known):
        return ()
    separator = header.metadata.get("tokenizer.ggml.seperator_token_id")
    return (separator,) if isinstance(separator, int) else tokenizer.tail[-1:]


def _second_offset(header: GGUFHeader, tokenizer: GGUFTokenizer) -> int:
    """Return the offset of the second segment's rows, 0 where the model tells no segments apart."""
    offset = header.metadata.get(SECOND_SEGMENT_KEY)
    tokens = header.metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)  # noqa: S101 - the tokenizer was built from it, for mypy
    if isinstance(offset, int):
        if not 0 < offset <= len(tokens) // 2:
            raise GGUFError(
                f"{SECOND_SEGMENT_KEY} is {offset}, and the GGUF has {len(tokens)} tokens, which "
                "must be twice as many. Convert the model again"
            )
        return offset
    types = header.tensors.get(_SEGMENT_TYPES)
    if tokenizer.kind == "wordpiece" and types and types.shape[0] > 1:
        warnings.warn(
            "the model tells the query's segment from the document's, and llama.cpp reads both as "
            "the first: its scores differ from the reference's. A GGUF that `corral model convert` "
            "made from the model's own folder has none of that",
            stacklevel=2,
        )
    return 0
