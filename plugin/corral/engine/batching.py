"""From token counts to the decodes that run them. Pure.

Sequences are packed contiguously: on CPU flash attention skips the tiles of the mask that belong to
other sequences, and small packs beat large ones (docs/performance.md).

Where a row comes from a sequence's last token alone, all tokens but the last few are decoded
without rows, for llama.cpp computes a causal model's logits, one for each word of the vocabulary,
for every token of a decode that gives rows.
"""

import heapq
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Job", "Limits", "Pack", "Part", "common_prefix", "plan_jobs", "prefix_decodes"]

_WORTH_A_DECODE: Final = 32
"""Tokens without rows that make up for the decode that they take: it reads all weights once."""


@dataclass(frozen=True, slots=True)
class Part:
    """Tokens [start, stop) of sequence number `index`."""

    index: int
    start: int
    stop: int

    def __len__(self) -> int:
        """Count the tokens."""
        return self.stop - self.start


Pack = tuple[Part, ...]
"""Parts of sequences that are decoded together."""


@dataclass(frozen=True, slots=True)
class Job:
    """Decodes that one context runs in order, memory kept between them.

    Args:
        decodes: the parts of each decode.
        n_prefix: leading tokens, the same in all sequences of the call, that stand in memory
            already and belong to no part.
    """

    decodes: tuple[Pack, ...]
    n_prefix: int = 0

    @property
    def n_cells(self) -> int:
        """Tokens that stand in memory when the job is done."""
        return self.n_prefix + sum(map(_n_tokens, self.decodes))

    @property
    def widest(self) -> int:
        """Tokens of the largest decode."""
        return max(map(_n_tokens, self.decodes))

    @property
    def indexes(self) -> tuple[int, ...]:
        """Numbers of the sequences."""
        return tuple(dict.fromkeys(part.index for decode in self.decodes for part in decode))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What jobs must keep to.

    Args:
        pack_tokens: most tokens of a decode that holds several sequences.
        n_ubatch: most tokens of a decode; a longer sequence takes several.
        n_seq_max: most sequences of a job.
        n_contexts: contexts that work side by side.
        full_tokens: tokens from which on a decode is computed in full precision.
        fills_up: whether a smaller decode is filled up to that.
        tails: whether the ends of a job's sequences are decoded together, with rows, and all that
            stands before them without.
        job_tokens: about how many tokens the sequences have that end in one decode; memory holds
            them until then.
    """

    pack_tokens: int
    n_ubatch: int
    n_seq_max: int
    n_contexts: int = 1
    full_tokens: int = 1
    fills_up: bool = False
    tails: bool = False
    job_tokens: int = 1


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


def plan_jobs(n_tokens: Mapping[int, int], limits: Limits, n_prefix: int = 0) -> list[Job]:
    """Plan the decodes for sequences of these lengths, the longest first.

    Every pack begins with the longest sequence that is left and is filled up with the longest that
    still fits: fewer decodes than by taking them in order, and the last to finish is a short one.
    The last packs are divided where a context would be left without one.

    Args:
        n_tokens: length of each sequence by its number, at least n_prefix + 1.
        limits: to keep to.
        n_prefix: leading tokens that all sequences share and that are decoded elsewhere.

    Returns:
        Jobs that hold every token of every sequence behind its prefix exactly once.
    """
    parts = [Part(index, n_prefix, length) for index, length in n_tokens.items()]
    packs = _evened(list(_packs(parts, limits)), limits)
    if limits.tails:
        groups = _grouped(packs, limits)
        return [Job(tuple(_tails_last(group, limits)), n_prefix) for group in groups]
    return [Job(tuple(_cut(pack, limits.n_ubatch)), n_prefix) for pack in packs]


def prefix_decodes(n_prefix: int, n_ubatch: int) -> list[Pack]:
    """Plan the decodes of the tokens that sequence number 0 shares with all others."""
    return list(_cut((Part(0, 0, n_prefix),), n_ubatch))


def _packs(parts: Sequence[Part], limits: Limits) -> Iterator[Pack]:
    left = sorted(parts, key=lambda part: (len(part), -part.index))
    while left:
        pack = [left.pop()]
        room = min(limits.pack_tokens, limits.n_ubatch) - len(pack[0])
        while len(pack) < limits.n_seq_max and (fitting := bisect_right(left, room, key=len)):
            pack.append(left.pop(fitting - 1))
            room -= len(pack[-1])
        yield tuple(pack)


def _evened(packs: list[Pack], limits: Limits) -> list[Pack]:
    """Divide the last packs until there is one for each context, or no half would be full."""
    n_whole = len(packs) - len(packs) % limits.n_contexts
    last = packs[n_whole:]
    while 0 < len(last) < limits.n_contexts:
        last.sort(key=_n_tokens, reverse=True)
        halves = ((pack, _halves(pack)) for pack in last)
        found = next((h for h in halves if min(map(_n_tokens, h[1])) >= limits.full_tokens), None)
        if found is None:
            break
        last.remove(found[0])
        last += found[1]
    return [*packs[:n_whole], *last]


def _halves(pack: Pack) -> list[Pack]:
    """Deal a pack's sequences, the longest first, to two."""
    halves: tuple[list[Part], list[Part]] = ([], [])
    for part in pack:
        min(halves, key=_n_tokens).append(part)
    return [tuple(half) for half in halves]


def _grouped(packs: Sequence[Pack], limits: Limits) -> list[list[Pack]]:
    """Make groups of packs, alike in tokens, as many as keep all contexts at work."""
    n_tokens, n_sequences = sum(map(_n_tokens, packs)), sum(map(len, packs))
    needed = max(n_tokens / limits.job_tokens, n_sequences / limits.n_seq_max)
    n_groups = min(len(packs), limits.n_contexts * ceil(needed / limits.n_contexts))
    groups: list[list[Pack]] = [[] for _ in range(n_groups)]
    lightest = [(0, 0, number) for number in range(n_groups)]  # tokens, sequences: a heap
    for pack in packs:
        while lightest and lightest[0][1] + len(pack) > limits.n_seq_max:
            heapq.heappop(lightest)
        if not lightest:
            lightest = [(0, 0, len(groups))]
            groups.append([])
        tokens, sequences, number = lightest[0]
        groups[number].append(pack)
        heapq.heapreplace(lightest, (tokens + _n_tokens(pack), sequences + len(pack), number))
    return [group for group in groups if group]


def _tails_last(group: Sequence[Pack], limits: Limits) -> Iterator[Pack]:
    """Give a group's decodes, the ends of all its sequences in the last ones."""
    lengths = [len(part) for pack in group for part in pack]
    is_full = limits.fills_up or sum(lengths) >= limits.full_tokens
    n_tail = _tail_tokens(lengths, limits.full_tokens if is_full else 1)
    worth = limits.full_tokens if is_full and not limits.fills_up else _WORTH_A_DECODE
    bodies: list[Pack] = []
    tails: list[Part] = []
    for pack in group:
        body = tuple(_before(part, n_tail) for part in pack if len(part) > n_tail)
        if _n_tokens(body) >= worth:
            bodies.append(body)
            tails += (replace(part, start=max(part.start, part.stop - n_tail)) for part in pack)
        else:
            tails += pack
    for pack in (*bodies, *_packs(tails, limits)):
        yield from _cut(pack, limits.n_ubatch)


def _tail_tokens(lengths: Sequence[int], wanted: int) -> int:
    """Count the tokens at each end that come to so many, or all, together."""
    fewest, most = ceil(wanted / len(lengths)), max(lengths)
    tries = range(fewest, most)
    return next((n for n in tries if sum(min(n, length) for length in lengths) >= wanted), most)


def _before(part: Part, n_tail: int) -> Part:
    return replace(part, stop=part.stop - n_tail)


def _cut(pack: Pack, n_ubatch: int) -> Iterator[Pack]:
    """Cut a sequence that is longer than a decode; any other pack is one."""
    if _n_tokens(pack) <= n_ubatch:
        yield pack
        return
    (part,) = pack
    for start, stop in pairwise([*range(part.start, part.stop, n_ubatch), part.stop]):
        yield (Part(part.index, start, stop),)


def _n_tokens(pack: Sequence[Part]) -> int:
    return sum(map(len, pack))
