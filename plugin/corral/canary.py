"""Whether a model gives vectors at all on this machine: asked before a run, of texts of ours.

A faulty GPU kernel, a damaged conversion or a type that overflows makes every vector NaN or nothing
but zeros, or those of all texts over a length. A run would report each chunk as lost, one by one.
"""

from typing import Final

from corral.embeddings import GGUFEmbeddings
from corral.errors import EngineError

__all__ = ["require_vectors"]

_SHORT: Final = ("sheep", "hill")
_LONG: Final = (
    "A shepherd counts them at dusk and closes the last gate behind him. " * 7,
    "Wool is sorted by its fineness, washed twice and dried in the wind. " * 7,
)
"""Over 64 tokens, from which on other kernels do the work, and some of them alone are at fault."""

_ROOM: Final = 512
"""Tokens, of which a long text takes no more, were each character one."""


def require_vectors(model: GGUFEmbeddings) -> None:
    """Refuse a model that gives usable vectors of no short text, or of no longer one.

    One of two that fails is no reason: there are models that fail at single texts.

    Raises:
        EngineError: it names the model, what is wrong with the vectors, and the ways out.
    """
    kinds = (_SHORT, _LONG) if model.max_tokens >= _ROOM else (_SHORT,)
    for texts in kinds:
        defects = model.embed_checked(texts, prefix="").defects
        if len(defects) == len(texts):
            raise EngineError(
                f"the model {model.model} gives no usable vector on this machine, not even of "
                f"{texts[0]!r}: {defects[0]}. Nothing of this run is stored. Try it without flash "
                "attention (--no-flash-attn), on the CPU alone (--n-gpu-layers 0), with one thread "
                "(--n-threads 1), or take a file of the model with weights of another type (F32, "
                "F16, Q8_0)"
            )
