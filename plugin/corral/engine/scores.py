"""From the rows of a classification head to scores, raw and as probabilities. Pure.

Source: llama-graph.cpp build_pooling (the graphs of qwen3 and qwen3vl end in a softmax, the others
in logits); the model cards of the rerankers for what becomes of logits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from corral.errors import GGUFError, UsageError
from corral.gguf_header import GGUFHeader

__all__ = ["Head", "choose_label", "read_labels"]

_SOFTMAX_IN_GRAPH: Final = frozenset({"qwen3", "qwen3vl"})
_YES: Final = "yes"
_PAIR: Final = 2
_TINY: Final = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True, slots=True)
class Head:
    """A classification head, and the label of it that counts.

    Args:
        n_labels: values of a row.
        label: index of the one that is the score.
        softmaxed: whether rows are probabilities already.
    """

    n_labels: int
    label: int
    softmaxed: bool

    @classmethod
    def of(cls, header: GGUFHeader, n_labels: int, label: str | int | None) -> "Head":
        """Take the head of a GGUF.

        Args:
            header: the GGUF's.
            n_labels: llama_model_n_cls_out.
            label: name or index of the label that counts; None where it is plain.

        Raises:
            GGUFError: the head gives the same score whatever it reads.
            UsageError: there is no such label, or several and none is named.
        """
        softmaxed = header.architecture in _SOFTMAX_IN_GRAPH
        if softmaxed and n_labels == 1:
            raise GGUFError(
                f"the GGUF's head has one label, and llama.cpp's {header.architecture} takes the "
                "softmax over the labels: every score would be 1. Convert the model again with "
                "`corral model convert`, which writes two rows"
            )
        return cls(n_labels, choose_label(read_labels(header), n_labels, label), softmaxed)

    def raw(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Score without bounds: the logit of one label; of two, the label's log-odds.

        Of several labels it is the label's logit, or its log-odds where the graph gives
        probabilities.

        Args:
            rows: (n, n_labels) float32.

        Returns:
            (n,) float32, finite where the rows are.
        """
        exact: NDArray[np.float64] = rows.astype(np.float64)
        chosen, others = exact[:, self.label], np.delete(exact, self.label, axis=1)
        if self.softmaxed:
            odds: NDArray[np.float64] = np.log(np.maximum(chosen, _TINY)) - np.log(
                np.maximum(others.sum(1), _TINY)
            )
            return odds.astype(np.float32)
        if self.n_labels == _PAIR:
            return (chosen - others[:, 0]).astype(np.float32)
        return chosen.astype(np.float32)

    def probability(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Score from 0 to 1: sigmoid of one logit, softmax of several, never applied twice.

        Args:
            rows: (n, n_labels) float32.

        Returns:
            (n,) float32.
        """
        if self.softmaxed:
            return np.array(rows[:, self.label])
        logits = rows.astype(np.float64)
        if self.n_labels == 1:
            logits = np.concatenate((logits, np.zeros_like(logits)), axis=1)
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares: NDArray[np.float64] = powers[:, self.label] / powers.sum(axis=1)
        return shares.astype(np.float32)


def read_labels(header: GGUFHeader) -> list[str]:
    """Return the names of a GGUF's labels; none where it has no names."""
    labels = header.arch("classifier.output_labels")
    return [str(label) for label in labels] if isinstance(labels, list) else []


def choose_label(labels: Sequence[str], n_labels: int, wanted: str | int | None) -> int:
    """Return the index of the label that is the score.

    Args:
        labels: names, or none.
        n_labels: how many there are.
        wanted: name (in any case) or index; None takes the only one, or "yes".

    Raises:
        UsageError: there is no such label, or several and none is named.
    """
    names = [label.lower() for label in labels]
    if wanted is None:
        if n_labels == 1:
            return 0
        if _YES in names:
            return names.index(_YES)
        raise UsageError(
            f"the model gives {n_labels} labels and none is plainly the score; name it with "
            f"label=: {_choices(labels, n_labels)}"
        )
    if isinstance(wanted, int) and 0 <= wanted < n_labels:
        return wanted
    if isinstance(wanted, str) and wanted.lower() in names:
        return names.index(wanted.lower())
    raise UsageError(f"label {wanted!r} is unknown; the model has {_choices(labels, n_labels)}")


def _choices(labels: Sequence[str], n_labels: int) -> str:
    return ", ".join(map(repr, labels)) if labels else f"numbers 0 to {n_labels - 1}"
