"""What may be split over several decodes, and how the parts combine. Pure.

Source: llama.h (enum llama_pooling_type), llama-graph.cpp build_pooling: a pooled row is made from
the tokens of one ubatch, so a sequence may be split only where earlier parts reach later ones
through causal attention and memory, and where the rows of the parts can be combined exactly.
"""

from collections.abc import Sequence
from enum import Enum, IntEnum

import numpy as np
from numpy.typing import NDArray

from corral.errors import PoolingError

__all__ = ["PoolingType", "SplitRule", "combine", "split_rule"]


class PoolingType(IntEnum):
    """How the rows of a sequence's tokens become one; names and values are llama.h's."""

    NONE = 0
    MEAN = 1
    CLS = 2
    LAST = 3
    RANK = 4

    @classmethod
    def parse(cls, value: "PoolingType | int | str") -> "PoolingType":
        """Read a name ("mean", in any case) or llama.h's number.

        Raises:
            PoolingError: it is neither; llama.cpp aborts on numbers it does not know.
        """
        try:
            return cls[value.upper()] if isinstance(value, str) else cls(value)
        except (KeyError, ValueError):
            names = ", ".join(member.name.lower() for member in cls)
            raise PoolingError(
                f"pooling_type {value!r} is unknown; it is one of {names} (llama.h)"
            ) from None


class SplitRule(Enum):
    """How a sequence that spans several decodes is put together again."""

    WHOLE = "the whole sequence must stand in one ubatch"
    LAST_PART = "the last part holds the row"
    WEIGHTED_MEAN = "the mean of the parts' rows, weighted by their tokens"
    COLLECT = "the rows of all parts, one after another"


_CAUSAL_RULES = {
    PoolingType.NONE: SplitRule.COLLECT,
    PoolingType.MEAN: SplitRule.WEIGHTED_MEAN,
    PoolingType.CLS: SplitRule.WHOLE,
    PoolingType.LAST: SplitRule.LAST_PART,
    PoolingType.RANK: SplitRule.LAST_PART,
}


def split_rule(pooling_type: PoolingType, *, causal: bool, has_memory: bool) -> SplitRule:
    """Say whether, and how, a sequence may span several decodes.

    Args:
        pooling_type: of the context.
        causal: whether a token attends only to those before it.
        has_memory: whether the context keeps keys and values between decodes.
    """
    return _CAUSAL_RULES[pooling_type] if causal and has_memory else SplitRule.WHOLE


def combine(
    rule: SplitRule, rows: Sequence[NDArray[np.float32]], n_tokens: Sequence[int]
) -> NDArray[np.float32]:
    """Put the rows of a sequence's parts together.

    Args:
        rule: the sequence's.
        rows: of each part (width,) float32, or for COLLECT (n_tokens, width).
        n_tokens: tokens of each part.

    Returns:
        (width,) float32, or for COLLECT (sum of n_tokens, width).
    """
    if rule is SplitRule.COLLECT:
        return np.concatenate(rows)
    if rule is SplitRule.WEIGHTED_MEAN:
        return np.average(np.stack(rows), axis=0, weights=n_tokens).astype(np.float32)
    return rows[-1]
