"""Time several ways to do the same work, in turns, so that what else the machine does hits all."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Spread", "Turns", "Way", "in_turns"]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to do the work.

    Args:
        name: shown.
        run: does all of it once.
        amount: of the work, in the table's unit: tokens, FLOP.
    """

    name: str
    run: Callable[[], object]
    amount: float


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some values, the least and the most."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Sum values up."""
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Turns:
    """What the rounds gave: amounts a second, by way and round."""

    rates: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def rate(self, name: str) -> Spread:
        """Give a way's rate."""
        return Spread.of(self.rates[name])

    def ratio(self, name: str, other: str, *, of_rates: float = 1.0) -> Spread:
        """Give how many times the other's rate a way reaches, round by round."""
        pairs = zip(self.rates[name], self.rates[other], strict=True)
        return Spread.of([of_rates * ours / theirs for ours, theirs in pairs])

    def best(self, names: Sequence[str]) -> str:
        """Name the fastest of some ways."""
        return max(names, key=lambda name: self.rate(name).median)


def in_turns(ways: Sequence[Way], rounds: int) -> Turns:
    """Run every way once a round, each round beginning with another one."""
    rates: dict[str, list[float]] = {way.name: [] for way in ways}
    for number in range(rounds):
        first = number % len(ways)
        for way in (*ways[first:], *ways[:first]):
            started = time.perf_counter()
            way.run()
            rates[way.name].append(way.amount / (time.perf_counter() - started))
    return Turns(rates)
