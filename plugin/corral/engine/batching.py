"""From token counts to the decodes that run them. Pure.

Sequences are packed contiguously: on CPU flash attention skips the tiles of the mask that belong to
other sequences, and small packs beat large ones (docs/performance.md).
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = ["Job", "Part", "common_prefix", "plan_jobs"]


@dataclass(frozen=True, slots=True)
class Part:
    """Tokens [start, stop) of sequence number `index`."""

    index: int
    start: int
    stop: int

    def __len__(self) -> int:
        """Count the tokens."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Job:
    """Decodes that one context runs in order, memory kept between them.

    Args:
        decodes: the parts of each decode; part number i of a decode has sequence id i.
        n_prefix: leading tokens, the same in all sequences of the call, that stand in memory
            already and belong to no part.
    """

    decodes: tuple[tuple[Part, ...], ...]
    n_prefix: int = 0

    @property
    def n_cells(self) -> int:
        """Tokens that stand in memory when the job is done."""
        return self.n_prefix + sum(map(_n_tokens, self.decodes))

    @property
    def widest(self) -> int:
        """Tokens of the largest decode."""
        return max(map(_n_tokens, self.decodes))


def common_prefix(sequences: Sequence[NDArray[np.int32]], *, at_least: int) -> int:
    """Count the leading tokens that all sequences share, leaving one token to each.

    Args:
        sequences: token ids.
        at_least: a shorter prefix is not worth its copies and counts as 0.

    Returns:
        0 for fewer than two sequences.
    """
    if len(sequences) <= 1:
        return 0
    first = sequences[0]
    shared = min(len(sequence) for sequence in sequences) - 1
    for sequence in sequences[1:]:
        if shared < at_least:
            return 0
        differs = np.flatnonzero(sequence[:shared] != first[:shared])
        if len(differs):
            shared = int(differs[0])
    return shared if shared >= at_least else 0


def plan_jobs(
    n_tokens: Mapping[int, int],
    *,
    pack_tokens: int,
    n_ubatch: int,
    n_seq_max: int,
    n_prefix: int = 0,
) -> Iterator[Job]:
    """Plan the decodes for sequences of these lengths, the longest first.

    Every pack begins with the longest sequence that is left and is filled up with the longest that
    still fits: fewer decodes than by taking them in order, and the last to finish is a short one.

    Args:
        n_tokens: length of each sequence by its number, at least n_prefix + 1.
        pack_tokens: most tokens of a decode that holds several sequences.
        n_ubatch: most tokens of a decode; a longer sequence takes several, in a job of its own.
        n_seq_max: most sequences of a decode.
        n_prefix: leading tokens that all sequences share and that are decoded elsewhere.

    Yields:
        Jobs that hold every token of every sequence behind its prefix exactly once.
    """
    parts = [Part(index, n_prefix, length) for index, length in n_tokens.items()]
    left = sorted(parts, key=lambda part: (len(part), -part.index))
    while left:
        longest = left.pop()
        if len(longest) > n_ubatch:
            yield Job(_split(longest, n_ubatch), n_prefix)
            continue
        pack = [longest]
        room = min(pack_tokens, n_ubatch) - len(longest)
        while len(pack) < n_seq_max and (n_fitting := bisect_right(left, room, key=len)):
            pack.append(left.pop(n_fitting - 1))
            room -= len(pack[-1])
        yield Job((tuple(pack),), n_prefix)


def _n_tokens(decode: tuple[Part, ...]) -> int:
    return sum(map(len, decode))


def _split(part: Part, n_ubatch: int) -> tuple[tuple[Part, ...], ...]:
    edges = [*range(part.start, part.stop, n_ubatch), part.stop]
    return tuple((Part(part.index, start, stop),) for start, stop in pairwise(edges))
