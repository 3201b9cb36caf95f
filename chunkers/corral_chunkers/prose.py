"""Where prose may be cut: at the ends of its paragraphs and sentences, and at its headings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from corral_chunkers.breaks import line_starts, paragraph_ends, sentence_ends
from corral_chunkers.contract import Heading
from corral_chunkers.cutting import Boundary, Unit

__all__ = ["Prose"]

_BEFORE_A_HEADING: Final = -0.3
"""A new part is a better place than a new paragraph, 0."""

_BEHIND_A_HEADING: Final = 2.0
_SENTENCE: Final = 0.7
_LINE: Final = 0.85


@dataclass(frozen=True, slots=True)
class Prose:
    """A text of paragraphs, which may have headings.

    Args:
        text: the whole text.
        headings: in order of `start`.
    """

    text: str
    headings: Sequence[Heading] = ()

    def boundaries(self, low: int, high: int) -> Sequence[Boundary]:
        """Return the ends of paragraphs, sentences and lines, and what is in front of headings.

        A line that ends with a sentence ends a paragraph: many texts have no blank lines. Other
        lines count in a text without sentences, such as YAML, or a list.
        """
        text = self.text
        sentences = set(sentence_ends(text, low, high))
        costs = dict.fromkeys(sentences, _SENTENCE)
        for line in line_starts(text, low, high):
            costs[line] = 0.0 if line in sentences else _LINE
        costs |= dict.fromkeys(paragraph_ends(text, low, high), 0.0)
        starts = [heading.start for heading in self.headings if low <= heading.start < high]
        for behind in _behind_headings(starts, sorted(costs)):
            costs[behind] = _BEHIND_A_HEADING
        costs |= {start: _BEFORE_A_HEADING for start in starts if start > low}
        return [Boundary(at, costs[at]) for at in sorted(costs)]

    def units(self, low: int, high: int) -> Sequence[Unit]:  # noqa: ARG002 - a Structure has them
        """Return none."""
        return ()


def _behind_headings(starts: Sequence[int], places: Sequence[int]) -> list[int]:
    """Return the places that follow headings: a cut there would leave a heading without its text.

    Args:
        starts: of the headings, in order.
        places: to cut at, in order.
    """
    at = np.searchsorted(places, starts, side="right")
    return [places[number] for number in at if number < len(places)]
