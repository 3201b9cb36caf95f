"""Sizes of chunks in the tokens of another model than the one that embeds them."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import tiktoken

from corral.errors import UsageError
from corral_chunkers import Encoding

__all__ = ["SizeUnit", "load_unit"]

_TIKTOKEN: Final = "tiktoken:"
_CACHED_AS: Final = {
    "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
    "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790",
}
"""Names that tiktoken gives the files in its cache: SHA-1 of where it takes them from."""


@dataclass(frozen=True, slots=True)
class SizeUnit:
    """Tokens of one of tiktoken's encodings."""

    encoding: tiktoken.Encoding

    def encode(self, text: str) -> Encoding:
        """Tokens of the text; what looks like a control token is text."""
        ids = self.encoding.encode(text, disallowed_special=())
        _, starts = self.encoding.decode_with_offsets(ids)
        spans = list(pairwise([*starts, len(text)]))
        return Encoding(np.array(ids, np.int32), np.array(spans, np.int64).reshape(-1, 2))

    def count(self, text: str) -> int:
        """Number of the text's tokens."""
        return len(self.encoding.encode(text, disallowed_special=()))


def load_unit(name: str) -> SizeUnit:
    """Load what a size is counted in.

    Args:
        name: "tiktoken:" and the name of one of its encodings.

    Raises:
        UsageError: there is no such unit, or its file is not here and cannot be had.
    """
    encoding = name.removeprefix(_TIKTOKEN)
    known = tiktoken.list_encoding_names()
    if encoding == name or encoding not in known:
        raise UsageError(
            f"there is no chunk size unit {name!r}; there are model (the default), and tiktoken: "
            f"with one of {', '.join(sorted(known))}"
        )
    try:
        return SizeUnit(tiktoken.get_encoding(encoding))
    except (OSError, ValueError) as error:  # no network; a file in the cache that is not whole
        cached_as = f" as {_CACHED_AS[encoding]}" if encoding in _CACHED_AS else ""
        raise UsageError(
            f"tiktoken's encoding {encoding} is not on this machine and cannot be fetched "
            f"({type(error).__name__}). Put {encoding}.tiktoken{cached_as} into the folder that "
            "the environment variable TIKTOKEN_CACHE_DIR names, or leave --chunk-size-unit out to "
            "count in the model's own tokens"
        ) from error
