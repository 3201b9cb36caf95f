"""How to run a model, and the sizes that follow from it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from corral.engine.batching import Job, Limits, plan_jobs
from corral.engine.pooling import PoolingType, SplitRule
from corral.errors import UsageError

__all__ = ["DEFAULT_PACK_TOKENS", "EngineOptions", "Sizes"]

_LOGITS_BYTES: Final = 256 * 2**20
DEFAULT_PACK_TOKENS: Final = 384
_MIN_PACK: Final = 128
_MAX_PACK: Final = 8192
"""The mask of a decode grows with its square, and larger batches overflow llama.cpp's CUDA copies
(ggml-org/llama.cpp#14325)."""
_NO_LIMIT: Final = float("inf")
_RANGES: Final = {
    "n_contexts": (1, 256, "each is a thread with memory of its own"),
    "n_threads": (1, 512, "ggml.h, GGML_MAX_N_THREADS"),
    "n_ubatch": (1, _NO_LIMIT, "it is held to what the model takes"),
    "pack_tokens": (1, _NO_LIMIT, "it is held to what memory takes"),
    "n_gpu_layers": (-1, 2**31 - 1, "-1 puts all on the GPU"),
}
_DEFAULT_N_UBATCH: Final = 512
_FLASH_ROWS: Final = 64
"""Tokens from which on ggml's flash attention sums in float32 (ops.cpp, Q_TILE_SZ); below it sums
in float16, and a score would tell how large the decode was that it came from."""
_SQUARE_PER_WEIGHT: Final = 0.5
"""Of the best job_tokens, for each weight of the logits: it was measured on models whose best lies
between 100 and 3,000 (docs/performance.md)."""
_JOB_BYTES: Final = 512 * 2**20
_JOBS_BYTES: Final = 2 * 2**30
"""Of keys and values, in F16: of a job, and of the jobs of all contexts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """How to run a model.

    Args:
        pooling_type: of every context.
        causal: attention; None takes the model's.
        n_contexts: contexts, each on its own thread.
        n_threads: threads of each context.
        n_ubatch: most tokens of a decode; None lets it grow to what the longest text needs.
        pack_tokens: tokens of a decode that holds several sequences.
        n_gpu_layers: layers to put on a GPU; -1 for all.
        flash_attn: None lets llama.cpp choose.
        share_prefix: whether a causal model decodes only once what all texts of a call begin with.
    """

    pooling_type: PoolingType
    causal: bool | None = None
    n_contexts: int = 1
    n_threads: int = 1
    n_ubatch: int | None = None
    pack_tokens: int = DEFAULT_PACK_TOKENS
    n_gpu_layers: int = 0
    flash_attn: bool | None = None
    share_prefix: bool = True

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name, (least, most, source) in _RANGES.items():
            value = getattr(self, name)
            if value is None and name == "n_ubatch":
                continue
            if not isinstance(value, int) or isinstance(value, bool):
                raise UsageError(f"{name} is {value!r}; it must be a whole number")
            if not least <= value <= most:
                bounds = f"at least {least}" + (f" and at most {most}" if most < _NO_LIMIT else "")
                raise UsageError(f"{name} is {value}; it must be {bounds} ({source})")


class ModelShape(Protocol):
    """What the sizes need to know of a model; names are llama.h's."""

    n_ctx_train: int
    n_vocab: int
    n_embd: int
    n_layer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What a model and its options make possible.

    Args:
        rule: whether sequences may span decodes.
        limits: of the decodes; for WHOLE n_ubatch is the longest sequence.
        max_tokens: longest sequence.
    """

    rule: SplitRule
    limits: Limits
    max_tokens: int

    @classmethod
    def derive(
        cls, options: EngineOptions, model: ModelShape, *, rule: SplitRule, n_seq_max: int
    ) -> "Sizes":
        """Work the sizes out.

        llama.cpp computes n_vocab logits for every token of a decode that gives rows, and keeps
        them as float32: packs of models with large vocabularies are held to 256 MiB of them.

        The more sequences end in one decode, the fewer such tokens there are, and the more tokens
        of others stand in memory, which the mask has to hide: both together cost least at the root
        of the one over the other.
        """
        whole = rule is SplitRule.WHOLE
        affordable = max(_MIN_PACK, min(_MAX_PACK, _LOGITS_BYTES // (4 * model.n_vocab)))
        pack_tokens = min(options.pack_tokens, affordable)
        n_ubatch = options.n_ubatch or (model.n_ctx_train if whole else _DEFAULT_N_UBATCH)
        n_ubatch = min(n_ubatch, max(model.n_ctx_train, pack_tokens))  # no decode is larger
        limits = Limits(
            pack_tokens=min(pack_tokens, n_ubatch),
            n_ubatch=n_ubatch,
            n_seq_max=n_seq_max,
            n_contexts=options.n_contexts,
            full_tokens=_FLASH_ROWS,
            fills_up=options.pooling_type is PoolingType.RANK,
            tails=rule is SplitRule.LAST_PART,
            job_tokens=_job_tokens(model, options.n_contexts),
        )
        return cls(
            rule=rule,
            limits=limits,
            max_tokens=min(model.n_ctx_train, n_ubatch) if whole else model.n_ctx_train,
        )

    def plan(self, n_tokens: Mapping[int, int], n_prefix: int = 0) -> list[Job]:
        """Plan the jobs for sequences of these lengths, by number."""
        return plan_jobs(n_tokens, self.limits, n_prefix)


def _job_tokens(model: ModelShape, n_contexts: int) -> int:
    best = math.isqrt(int(_SQUARE_PER_WEIGHT * model.n_vocab * model.n_embd))
    most = min(_JOB_BYTES, _JOBS_BYTES // n_contexts)
    return max(1, min(best, most // (4 * model.n_layer * model.n_embd)))
