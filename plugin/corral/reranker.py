"""GGUFReranker: how well documents answer a query, scored as a model's authors would score them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from numpy.typing import NDArray
from pydantic import ConfigDict, PrivateAttr

from corral.calibration import share_cores
from corral.closing import Closing
from corral.engine.layout import choose_layout
from corral.engine.pairs import Limit, PairLayout
from corral.engine.scores import Head
from corral.errors import EngineError, UsageError
from corral.loading import OpenModel, open_model

__all__ = ["GGUFReranker"]


@dataclass(frozen=True, slots=True)
class _Parts:
    """What scoring needs of the model."""

    opened: OpenModel
    layout: PairLayout
    head: Head


class GGUFReranker(BaseDocumentCompressor, Closing):
    """A reranker in one GGUF file, run in this process by llama.cpp.

    Usable from many threads at once. Use it as a context manager, or call `close`, to free the
    model before the object goes.

    Attributes:
        model: as it was named.
        top_n: most documents that `compress_documents` returns; None returns all.
        score: scale of the scores.
        min_score: documents that score less are left out, in the scale of `score`.
        instruction: what the model is told to judge by.
        label: that is the score.
    """

    model_config = ConfigDict(frozen=True)

    model: str
    top_n: int | None = None
    score: Literal["probability", "raw"] = "probability"
    min_score: float | None = None
    instruction: str | None = None
    label: str | int | None = None
    _parts: _Parts = PrivateAttr()

    def __init__(  # noqa: PLR0913 - the public surface: all options, by keyword
        self,
        model: str | os.PathLike[str],
        *,
        top_n: int | None = None,
        score: Literal["probability", "raw"] = "probability",
        min_score: float | None = None,
        instruction: str | None = None,
        label: str | int | None = None,
        n_contexts: int | None = None,
        n_threads: int | None = None,
        n_ubatch: int | None = None,
        n_gpu_layers: int = 0,
        flash_attn: bool | None = None,
    ) -> None:
        """Open a model.

        Args:
            model: a path to a GGUF, or `hf:owner/repo[:file-or-quant]`.
            top_n: most documents that `compress_documents` returns; None returns all.
            score: "probability", from 0 to 1; or "raw": the logit of a model with one label, the
                log-odds of one with two.
            min_score: documents that score less are left out, in the scale of `score`.
            instruction: what the model is told to judge by, where its template has a place for
                it; None takes the template's own.
            label: name or index of the label that is the score, of a model with several; None
                takes the only one, or "yes".
            n_contexts: contexts to run side by side; None takes one a core, with a GPU one.
            n_threads: threads of each context; None shares the cores out.
            n_ubatch: most tokens of a decode; None lets it follow the texts. Encoders read a pair
                in one decode, so it also bounds their pairs.
            n_gpu_layers: layers to put on a GPU; -1 for all.
            flash_attn: None lets llama.cpp choose.

        Raises:
            ModelError: there is no such model, or it is no reranker.
            UsageError: an option is out of range, or the model has no such label.
        """
        _check(top_n=top_n, score=score, min_score=min_score)
        settings: dict[str, Any] = {
            "model": os.fspath(model),
            "top_n": top_n,
            "score": score,
            "min_score": min_score,
            "instruction": instruction,
            "label": label,
        }
        super().__init__(**settings)
        options = {
            "n_ubatch": n_ubatch,
            "n_gpu_layers": n_gpu_layers,
            "flash_attn": flash_attn,
            **share_cores(n_contexts, n_threads, on_gpu=n_gpu_layers != 0),
        }
        opened = open_model(self.model, pooling_type="rank", options=options)
        try:
            self._parts = _parts(opened, instruction=instruction, label=label)
        except BaseException:
            opened.engine.close()
            raise

    @property
    def max_tokens(self) -> int:
        """Longest pair, special tokens included, that is read whole."""
        return self._parts.opened.max_tokens

    def rerank(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Score texts by how well they answer a query.

        A query or text of white space alone counts as an empty one, which has a score too.

        Args:
            query: the question.
            texts: the documents; the end of one that is too long is not read.

        Returns:
            (n_texts,) float32 in the order of the texts, higher is better, in the scale of `score`.

        Raises:
            InputTooLongError: the query leaves no room for a document.
            EngineError: the model failed, or gave a score that is not a number.
        """
        return self._score(query, texts)[0]

    def compress_documents(
        self,
        documents: Sequence[Document],
        query: str,
        callbacks: Callbacks | None = None,  # noqa: ARG002 - LangChain's signature
    ) -> list[Document]:
        """Return copies of the documents, best first; equal scores keep their order.

        Their metadata gets `relevance_score`, and `relevance_truncated` (True) where the end of the
        document was not read. Those under `min_score` are left out, then those behind `top_n`.

        Args:
            documents: what was retrieved; nothing in it is changed.
            query: the question.
            callbacks: not used: a compressor is no run of its own.

        Raises:
            InputTooLongError: the query leaves no room for a document.
            EngineError: the model failed, or gave a score that is not a number.
        """
        scores, truncated = self._score(query, [document.page_content for document in documents])
        best = sorted(range(len(documents)), key=lambda number: -scores[number])
        kept = [n for n in best if self.min_score is None or scores[n] >= self.min_score]
        return [
            _scored(documents[n], float(scores[n]), truncated=truncated[n])
            for n in kept[: self.top_n]
        ]

    def close(self) -> None:
        """Free the model; using the object afterwards is an error, closing twice is harmless."""
        self._parts.opened.engine.close()

    def _score(self, query: str, texts: Sequence[str]) -> tuple[NDArray[np.float32], list[bool]]:
        """Score texts, and tell which of them were cut.

        Texts that are alike are scored once: their scores would differ in the last bit by their
        place in a decode, and so would their order.
        """
        if isinstance(texts, str) or not all(isinstance(text, str) for text in (query, *texts)):
            raise UsageError(
                "a query is a string, and texts are a list of strings; got "
                f"{type(query).__name__} and {type(texts).__name__}"
            )
        parts = self._parts
        wanted = [_or_empty(text) for text in texts]
        distinct = {text: number for number, text in enumerate(dict.fromkeys(wanted))}
        pairs = parts.layout.build(_or_empty(query), list(distinct))
        result = parts.opened.engine.run([pair.ids for pair in pairs])
        if result.defects:
            number, found = next(iter(result.defects.items()))
            raise EngineError(
                f"the model gave {len(result.defects)} of {len(pairs)} documents a score that is "
                "none, alone on a fresh context too; document "
                f"{wanted.index(list(distinct)[number])}: {found}"
            )
        rows = np.asarray(result.rows, dtype=np.float32).reshape(len(pairs), parts.head.n_labels)
        scale = parts.head.raw if self.score == "raw" else parts.head.probability
        numbers = [distinct[text] for text in wanted]
        return scale(rows)[numbers], [pairs[number].truncated for number in numbers]


def _parts(opened: OpenModel, *, instruction: str | None, label: str | int | None) -> _Parts:
    header = opened.resolved.header
    layout = choose_layout(
        header,
        opened.tokenizer,
        Limit(opened.max_tokens, opened.limit_source),
        causal=opened.engine.causal,
        instruction=instruction,
    )
    return _Parts(opened, layout, Head.of(header, opened.engine.n_cls_out, label))


def _check(*, top_n: int | None, score: str, min_score: float | None) -> None:
    """Check the ranges."""
    if score not in {"probability", "raw"}:
        raise UsageError(f'score {score!r} is unknown; it is "probability" or "raw"')
    if top_n is not None and top_n < 1:
        raise UsageError(f"top_n is {top_n}; it must be at least 1, or None for all")
    if score == "probability" and min_score is not None and not 0 <= min_score <= 1:
        raise UsageError(
            f'min_score is {min_score}; with score="probability" it is from 0 to 1. '
            'For a bound on raw scores use score="raw"'
        )


def _or_empty(text: str) -> str:
    return text if text.strip() else ""


def _scored(document: Document, score: float, *, truncated: bool) -> Document:
    metadata = {k: v for k, v in document.metadata.items() if k != "relevance_truncated"}
    metadata["relevance_score"] = score
    if truncated:
        metadata["relevance_truncated"] = True
    return document.model_copy(update={"metadata": metadata})
