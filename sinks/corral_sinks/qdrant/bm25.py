"""BM25 as sparse vectors, by the code of Qdrant's engine: words counted, hashed, offline.

Source: qdrant 1.19 lib/bm25; Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import qdrant_edge as qe
from qdrant_client import models

from corral_sinks import SinkError, SparseVector

__all__ = ["LANGUAGES", "NO_LANGUAGE", "TOKENIZERS", "Bm25"]

NO_LANGUAGE: Final = "none"
"""Takes words as they stand: none is too common to count, none is cut to its stem."""

LANGUAGES: Final = (*(language.value for language in models.Language), NO_LANGUAGE)
"""Whose stop words and stemmer there are; one without a stemmer has its stop words alone."""

_TOKENIZERS: Final = {
    "multilingual": qe.TokenizerType.Multilingual,
    "word": qe.TokenizerType.Word,
    "whitespace": qe.TokenizerType.Whitespace,
    "code": qe.TokenizerType.Code,
    "prefix": qe.TokenizerType.Prefix,
}

TOKENIZERS: Final = tuple(_TOKENIZERS)
"""Ways to find words; "multilingual" alone finds them where no spaces are, as in Chinese."""


class Bm25:
    """Makes the sparse vectors whose dot product, with IDF by the store, is BM25.

    Usable from many threads at once.

    Args:
        language: of the stop words and the stemmer: one of LANGUAGES.
        tokenizer: how words are found: one of TOKENIZERS.
        ascii_folding: whether accents are taken away.
        k: how slowly repetitions of a word stop to matter.
        b: how much a long text is weighed down, 0 to 1.
        avg_len: words of a usual text.

    Raises:
        SinkError: there is no such language or tokenizer, or a number is out of range.
    """

    def __init__(
        self,
        *,
        language: str = "english",
        tokenizer: str = "multilingual",
        ascii_folding: bool = False,
        k: float = 1.2,
        b: float = 0.75,
        avg_len: float = 256.0,
    ) -> None:
        """Check the settings."""
        _refuse_unknown("language", language, LANGUAGES)
        _refuse_unknown("tokenizer", tokenizer, TOKENIZERS)
        self.settings: Mapping[str, str | bool | float] = {
            "language": language,
            "tokenizer": tokenizer,
            "ascii_folding": ascii_folding,
            "k": k,
            "b": b,
            "avg_len": avg_len,
        }
        words: dict[str, Any] = {"language": language}
        if language == NO_LANGUAGE:
            words = {"stemmer": qe.DisabledStemmer(), "stopwords": qe.StopwordsSet()}
        try:
            self._model = qe.Bm25(
                qe.Bm25Config(
                    k=k,
                    b=b,
                    avg_len=avg_len,
                    tokenizer=_TOKENIZERS[tokenizer],
                    ascii_folding=ascii_folding,
                    **words,
                )
            )
        except ValueError as error:
            raise SinkError(f"BM25 cannot be set so: {error}.") from error

    def embed_document(self, text: str) -> SparseVector | None:
        """Weigh the words of a text; None where it has none that count."""
        return _vector(self._model.embed_document(text))

    def embed_query(self, text: str) -> SparseVector | None:
        """Give each word of a query the weight 1; None where it has none that count."""
        return _vector(self._model.embed_query(text))


def _refuse_unknown(kind: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise SinkError(f"BM25 knows no {kind} {given!r}; it knows {', '.join(known)}.")


def _vector(given: qe.SparseVector) -> SparseVector | None:
    if not given.indices:
        return None
    return SparseVector(
        indices=np.array(given.indices, dtype=np.uint32),
        values=np.array(given.values, dtype=np.float32),
    )
