"""Open a model for use: which file, which pooling, which limits, and the engine that runs it."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from corral import models
from corral.engine.options import EngineOptions
from corral.engine.pool import Engine
from corral.engine.pooling import PoolingType
from corral.engine.tokenizer import GGUFTokenizer, load_tokenizer
from corral.engine.worker import WorkerEngine
from corral.errors import PoolingError, UsageError
from corral.gguf_header import GGUFHeader
from corral.models import Profile, ResolvedModel, resolve
from corral.vetting import vet

__all__ = ["OpenModel", "choose_pooling", "open_model", "parse_attention"]

_ATTENTION = {"causal": True, "non-causal": False}
_DENSE_TENSORS = {"gemma-embedding": ("dense_2.weight", "dense_3.weight")}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenModel:
    """A model ready to run.

    Args:
        resolved: which file it is, its header and its profile.
        engine: runs it.
        tokenizer: its ids, with the special tokens that its pooling needs.
        pooling_type: in force.
        max_tokens: longest sequence, special tokens included.
        limit_source: where max_tokens comes from.
    """

    resolved: ResolvedModel
    engine: Engine | WorkerEngine
    tokenizer: GGUFTokenizer
    pooling_type: PoolingType
    max_tokens: int
    limit_source: str


def open_model(
    ref: str,
    *,
    pooling_type: PoolingType | int | str | None,
    options: Mapping[str, Any],
    token_rows: bool = False,
    isolate: bool = False,
) -> OpenModel:
    """Open a model.

    Args:
        ref: a path, `hf:owner/repo[:file-or-quant]`, or the name of a built-in.
        pooling_type: overrides the model's own; None takes that.
        options: further EngineOptions by name.
        token_rows: have the engine give a row for each token, and leave the pooling to the caller.
        isolate: run it in a process of its own.

    Raises:
        ModelError: there is no such model, or it cannot be used.
    """
    resolved = resolve(ref)
    header = resolved.header
    pooling = choose_pooling(pooling_type, header, resolved.profile)
    vet(resolved, pooling)
    _warn_of_lost_layers(header)
    make = WorkerEngine if isolate else Engine
    given = PoolingType.NONE if token_rows else pooling
    engine = make(resolved.path, EngineOptions(pooling_type=given, **options))
    try:
        _check_attention(options.get("causal"), engine, header)
        tokenizer = load_tokenizer(header, engine.tokenize)
        if pooling is PoolingType.LAST:
            tokenizer = tokenizer.with_eos()
        max_tokens, limit_source = _limit(engine, header, resolved.profile)
    except BaseException:
        engine.close()
        raise
    return OpenModel(
        resolved=resolved,
        engine=engine,
        tokenizer=tokenizer,
        pooling_type=pooling,
        max_tokens=max_tokens,
        limit_source=limit_source,
    )


def _warn_of_lost_layers(header: GGUFHeader) -> None:
    lost = [
        name for name in _DENSE_TENSORS.get(header.architecture, ()) if name not in header.tensors
    ]
    if lost:
        warnings.warn(
            f"the GGUF has no {' and '.join(lost)}: it was converted without the dense layers that "
            f"{header.architecture} models have behind their pooling, and its vectors are not the "
            "model's. Convert it with --sentence-transformers-dense-modules",
            stacklevel=4,
        )


def _check_attention(
    asked: bool | None,  # noqa: FBT001 - three values
    engine: Engine | WorkerEngine,
    header: GGUFHeader,
) -> None:
    if asked and not engine.causal:
        raise UsageError(
            f'attention is "causal"; a {header.architecture} model keeps no memory, and llama.cpp '
            'always lets its tokens look both ways. Leave it out, or take "non-causal"'
        )
    own = models.causal_attention(header)
    if asked is not None and asked != own:
        warnings.warn(
            f"attention {'causal' if asked else 'non-causal'} overrides "
            f"{'causal' if own else 'non-causal'}, which the model was trained with: its vectors "
            "will be wrong unless you know better",
            stacklevel=4,
        )


def _limit(
    engine: Engine | WorkerEngine, header: GGUFHeader, profile: Profile | None
) -> tuple[int, str]:
    """Give the longest sequence, and what bounds it."""
    longest, source = models.max_tokens(header, profile)
    return (
        (engine.max_tokens, "n_ubatch")
        if longest is None or engine.max_tokens < longest
        else (longest, source)
    )


def choose_pooling(
    requested: PoolingType | int | str | None, header: GGUFHeader, profile: Profile | None
) -> PoolingType:
    """Choose the pooling type: what was asked for, else the GGUF's, else the profile's.

    Raises:
        PoolingError: none of them says it, or RANK has no head to read.
    """
    name, said_by = models.pooling_type(header, profile)
    own = None if name is None else PoolingType.parse(name)
    chosen = own if requested is None else PoolingType.parse(requested)
    if chosen is None:
        raise PoolingError(
            f"it is not known how this {header.architecture} GGUF pools ({said_by}): it may be a "
            'chat model. If it is an embedding model, pass pooling_type "mean", "cls" or "last", '
            "as its model card says"
        )
    ranks = chosen is PoolingType.RANK
    if ranks and models.head_tensor(header) not in header.tensors:
        raise PoolingError(
            "pooling_type rank needs a classification head, and the GGUF has no tensor "
            f"{models.head_tensor(header)}: it was converted without one, or is no reranker. "
            "`corral model convert` keeps the head of a Hugging Face folder"
        )
    if own is not None and chosen is not own and not ranks:
        warnings.warn(
            f"pooling_type {chosen.name.lower()} overrides {own.name.lower()}, which the model "
            "was trained with: its vectors will be wrong unless you know better",
            stacklevel=4,  # the line that makes the object: Python shows a warning once a line
        )
    return chosen


def parse_attention(value: str | None) -> bool | None:
    """Read "causal" or "non-causal"; None takes the model's.

    Raises:
        UsageError: it is neither.
    """
    if value is None:
        return None
    if value not in _ATTENTION:
        raise UsageError(f"attention {value!r} is unknown; it is one of {', '.join(_ATTENTION)}")
    return _ATTENTION[value]
