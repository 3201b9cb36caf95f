"""Which GGUF: built-in models, paths, the hub; and what is known of model families.

model = resolve("minilm")  # or a path, or "hf:owner/repo:Q8_0"
model.path, model.header, model.profile, model.sha256
"""

from corral.models.builtin import BUILTINS, BuiltinModel, pull
from corral.models.description import (
    causal_attention,
    describe,
    head_tensor,
    max_tokens,
    pooling_type,
)
from corral.models.profiles import Profile
from corral.models.resolve import ResolvedModel, resolve

__all__ = [
    "BUILTINS",
    "BuiltinModel",
    "Profile",
    "ResolvedModel",
    "causal_attention",
    "describe",
    "head_tensor",
    "max_tokens",
    "pooling_type",
    "pull",
    "resolve",
]
