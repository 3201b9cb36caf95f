"""Time several ways to do the same work, in turns, so that what else the machine does hits all."""

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Spread", "Turns", "Way", "in_turns"]

_QUIET = 0.05


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
    """What the rounds gave.

    Args:
        rates: amounts a second, by way and round.
        disturbance: share of the cores that other processes took, at most, in a run that counts.
    """

    rates: Mapping[str, Sequence[float]]
    disturbance: float

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


def in_turns(ways: Sequence[Way], rounds: int, *, tries: int = 3) -> Turns:
    """Run every way once a round, each round beginning with another one.

    A run in which other processes took more than a little is repeated, up to `tries` times in
    all, and the least disturbed one counts.
    """
    rates: dict[str, list[float]] = {way.name: [] for way in ways}
    worst = 0.0
    for number in range(rounds):
        first = number % len(ways)
        for way in (*ways[first:], *ways[:first]):
            runs: list[tuple[float, float]] = []
            while len(runs) < tries and (not runs or min(runs)[0] > _QUIET):
                runs.append(_run(way))
            disturbance, seconds = min(runs)
            rates[way.name].append(way.amount / seconds)
            worst = max(worst, disturbance)
    return Turns(rates, worst)


def _run(way: Way) -> tuple[float, float]:
    """Give the share of the cores that others took, 0 where it is not known, and the seconds."""
    others, started = _others_seconds(), time.perf_counter()
    way.run()
    seconds = time.perf_counter() - started
    return max(0.0, _others_seconds() - others) / (seconds * (os.cpu_count() or 1)), seconds


def _others_seconds() -> float:
    """CPU seconds of all other processes since the machine was started (Linux)."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system, _idle, _iowait, irq, softirq, steal, *_ = map(int, fields)
    busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    return busy - time.process_time()
