"""Cut a text at the places that cost least.

Every place where a text may be cut has a cost: little at the end of a section or a paragraph, more
at that of a sentence, much inside a word. A chunk costs something too, the more the emptier it is,
and where it ends at a worse place than one that it goes over. The cuts are those of the least sum,
found by dynamic programming over the places, under the condition that every chunk fits. So a chunk
ends where a reader would end it, no remainder of three words is left behind, and because the costs
depend on the text and not on where it was cut before, the cuts behind an inserted paragraph are
soon those that they were.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from corral_chunkers.blocks import Block
from corral_chunkers.breaks import finer_breaks

__all__ = ["Boundary", "Structure", "Unit", "best_cuts", "places_to_cut"]

_EMPTINESS: Final = 1.0
"""What a chunk costs that is all but empty; falls with the square."""

_CROSSING: Final = 1.0
"""What it costs to go over a better place than the chunk's ends, a unit of the difference."""

_PLACES_PER_CHUNK: Final = 32
"""To choose from at most, where a text has no structure; a chunk may be as much emptier for it."""

_TOO_LONG: Final = 1e6
"""What a chunk costs that does not fit: it is taken only where there is no other way."""


class Boundary(NamedTuple):
    """A place where a text may be cut.

    Attributes:
        at: offset of what comes behind the cut.
        cost: of a cut there; an almost empty chunk costs 1.
    """

    at: int
    cost: float


class Unit(NamedTuple):
    """A part of a text that is better left whole.

    Attributes:
        start: offset of its first code point.
        end: offset behind its last one.
        cost: of a cut in it, beside the boundary's own, where the unit would fit into a chunk.
    """

    start: int
    end: int
    cost: float


class Structure(Protocol):
    """Where a text may be cut."""

    def boundaries(self, low: int, high: int) -> Sequence[Boundary]:
        """Return the boundaries behind low and in front of high, in order of `at`, no two alike."""
        ...

    def units(self, low: int, high: int) -> Sequence[Unit]:
        """Return the units that overlap what is between low and high."""
        ...


def places_to_cut(
    block: Block, structure: Structure, start: int, end: int, room: int
) -> list[Boundary]:
    """List the places where a stretch may be cut, its start and its end among them.

    Where two of the structure's boundaries are further apart than a chunk has room, finer ones are
    put between: lines, clauses, words, grapheme clusters, characters.

    Args:
        block: the tokens around the stretch.
        structure: of the text.
        start: offset of the stretch.
        end: offset behind it.
        room: tokens of the text that a chunk has room for.
    """
    found = [Boundary(start, 0.0), *structure.boundaries(start, end), Boundary(end, 0.0)]
    at = [boundary.at for boundary in found]
    costs = np.array([boundary.cost for boundary in found])
    for unit in structure.units(start, end):
        if unit.end <= block.end and block.n_tokens(unit.start, unit.end) <= room:
            low, high = np.searchsorted(at, (unit.start + 1, unit.end))
            costs[low:high] += unit.cost
    gaps = np.diff(block.index(at))
    places: list[Boundary] = []
    for number, gap in enumerate(gaps):
        places.append(Boundary(at[number], float(costs[number])))
        if gap > room:
            places += _finer(block, at[number], at[number + 1], room, rank=0)
    return [*places, found[-1]]


def _finer(block: Block, start: int, end: int, room: int, *, rank: int) -> Iterator[Boundary]:
    """Yield the coarsest places that cut a stretch into parts that fit."""
    step = finer_breaks(block.text, start, end, rank)
    if step is None:
        return
    offsets, cost = step
    edges = [start, *_sparse(block, offsets, room), end]
    gaps = np.diff(block.index(edges))
    for number, gap in enumerate(gaps):
        if number:
            yield Boundary(edges[number], cost)
        if gap > room:
            yield from _finer(block, edges[number], edges[number + 1], room, rank=rank + 1)


def _sparse(block: Block, offsets: Sequence[int], room: int) -> Sequence[int]:
    """Leave out places that are near each other, since every one costs a step of the search."""
    fineness = max(1, room // _PLACES_PER_CHUNK)
    is_first = np.diff(block.index(offsets) // fineness, prepend=-1) > 0
    return [offset for offset, kept in zip(offsets, is_first, strict=True) if kept]


def best_cuts(
    tokens: NDArray[np.int64], costs: NDArray[np.float64], rooms: NDArray[np.int64]
) -> list[int]:
    """Choose the places to cut at.

    Args:
        tokens: (n,) int64, tokens in front of each place, never decreasing.
        costs: (n,) float64, of a cut at each.
        rooms: (n,) int64, most tokens of a chunk that begins at each; at least 1.

    Returns:
        Numbers of the places to cut at, in order; the first and the last are among them.
    """
    n = len(tokens)
    best = np.zeros(n)
    came_from = np.zeros(n, np.int64)
    limits = tokens + rooms
    lows = np.searchsorted(tokens, tokens - rooms.max())
    for here in range(1, n):
        low = min(int(lows[here]), here - 1)
        emptiness = (limits[low:here] - tokens[here]) / rooms[low:here]
        total = best[low:here] + _EMPTINESS * np.square(emptiness)
        total += _CROSSING * _crossed(costs[low : here + 1])
        total[emptiness < 0] += _TOO_LONG
        at = int(total.argmin())
        best[here] = total[at] + costs[here]
        came_from[here] = low + at
    cuts = [n - 1]
    while cuts[-1]:
        cuts.append(int(came_from[cuts[-1]]))
    return cuts[::-1]


def _crossed(costs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how much better a place inside is than the worse of the ends.

    Args:
        costs: (n + 1,) of n places to begin at and the one to end at.

    Returns:
        (n,) float64, at least 0, of the chunk that begins at each.
    """
    inner = np.full(len(costs) - 1, np.inf)
    np.minimum.accumulate(costs[-2:0:-1], out=inner[-2::-1] if len(inner) > 1 else inner[:0])
    crossed: NDArray[np.float64] = np.maximum(costs[:-1], costs[-1]) - inner
    return np.maximum(crossed, 0.0)
