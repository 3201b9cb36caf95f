"""Open a model for use: which file, which pooling, which limits, and the engine that runs it."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from corral.engine.options import EngineOptions
from corral.engine.pool import Engine
from corral.engine.pooling import PoolingType, SplitRule
from corral.engine.tokenizer import GGUFTokenizer, load_tokenizer
from corral.errors import PoolingError, UsageError
from corral.gguf_header import GGUFHeader
from corral.models import Profile, ResolvedModel, resolve
from corral.models.convert.common import MAX_TOKENS_KEY
from corral.vetting import vet

__all__ = ["OpenModel", "choose_pooling", "open_model", "parse_attention"]

_ATTENTION = {"causal": True, "non-causal": False}
_HEAD_TENSOR = "cls.output.weight"
# Architectures whose graph has the head under another name. Source: llama.cpp's src/models.
_OTHER_HEAD_TENSORS = {"jina-bert-v2": "cls.weight"}

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
    engine: Engine
    tokenizer: GGUFTokenizer
    pooling_type: PoolingType
    max_tokens: int
    limit_source: str


def open_model(
    ref: str, *, pooling_type: PoolingType | int | str | None, options: Mapping[str, Any]
) -> OpenModel:
    """Open a model.

    Args:
        ref: a path, `hf:owner/repo[:file-or-quant]`, or the name of a built-in.
        pooling_type: overrides the model's own; None takes that.
        options: further EngineOptions by name.

    Raises:
        ModelError: there is no such model, or it cannot be used.
    """
    resolved = resolve(ref)
    header = resolved.header
    pooling = choose_pooling(pooling_type, header, resolved.profile)
    vet(resolved, pooling)
    _warn_of_lost_layers(header)
    engine = Engine(resolved.path, EngineOptions(pooling_type=pooling, **options))
    try:
        _check_attention(options.get("causal"), engine, header)
        tokenizer = load_tokenizer(header, engine.tokenize)
        if pooling is PoolingType.LAST:
            tokenizer = tokenizer.with_eos()
    except BaseException:
        engine.close()
        raise
    limits = [(engine.max_tokens, _engine_limit(engine, header))]
    if isinstance(own := header.metadata.get(MAX_TOKENS_KEY), int):
        limits.append((own, MAX_TOKENS_KEY))
    if resolved.profile and resolved.profile.max_tokens:
        limits.append((resolved.profile.max_tokens, f"profile {resolved.profile.name}"))
    max_tokens, limit_source = min(limits)
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


def _check_attention(asked: bool | None, engine: Engine, header: GGUFHeader) -> None:  # noqa: FBT001 - three values
    if asked and not engine.causal:
        raise UsageError(
            f'attention is "causal"; a {header.architecture} model keeps no memory, and llama.cpp '
            'always lets its tokens look both ways. Leave it out, or take "non-causal"'
        )


def _engine_limit(engine: Engine, header: GGUFHeader) -> str:
    n_ctx_train = header.arch("context_length")
    whole = engine.rule is SplitRule.WHOLE and engine.max_tokens != n_ctx_train
    return "n_ubatch" if whole else f"{header.architecture}.context_length"


def choose_pooling(
    requested: PoolingType | int | str | None, header: GGUFHeader, profile: Profile | None
) -> PoolingType:
    """Choose the pooling type: what was asked for, else the GGUF's, else the profile's.

    Raises:
        PoolingError: none of them says it, or RANK has no head to read.
    """
    own = _own_pooling(header, profile)
    if requested is None and own is None:
        raise PoolingError(
            f"{header.architecture} GGUF without {header.architecture}.pooling_type, and no "
            "profile knows the model: it may be a chat model. If it is an embedding model, pass "
            'pooling_type "mean", "cls" or "last", as its model card says'
        )
    chosen = PoolingType.parse(requested) if requested is not None else own
    assert chosen is not None  # noqa: S101 - one of the two is given, for mypy
    ranks = chosen is PoolingType.RANK
    if ranks and not _has_head(header):
        raise PoolingError(
            "pooling_type rank needs a classification head, and the GGUF has no tensor "
            f"{_head_tensor(header)}: it was converted without one, or is no reranker. "
            "`corral model convert` keeps the head of a Hugging Face folder"
        )
    if own is not None and chosen is not own and not ranks:
        warnings.warn(
            f"pooling_type {chosen.name.lower()} overrides {own.name.lower()}, which the model "
            "was trained with: its vectors will be wrong unless you know better",
            stacklevel=4,  # the line that makes the object: Python shows a warning once a line
        )
    return chosen


def _own_pooling(header: GGUFHeader, profile: Profile | None) -> PoolingType | None:
    number = header.arch("pooling_type")
    if isinstance(number, int):
        return PoolingType.parse(number)
    if _has_head(header):
        return PoolingType.RANK
    if profile and profile.pooling_type:
        return PoolingType.parse(profile.pooling_type)
    return None


def _head_tensor(header: GGUFHeader) -> str:
    return _OTHER_HEAD_TENSORS.get(header.architecture, _HEAD_TENSOR)


def _has_head(header: GGUFHeader) -> bool:
    return _head_tensor(header) in header.tensors


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
