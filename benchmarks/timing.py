"""Time several ways to do the same work, in turns, so that what else the machine does hits all."""

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Plan", "Spread", "Turns", "Way", "in_turns"]

_QUIET = 0.05
_ONE_THREAD = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to time.

    Args:
        rounds: in each of which every way has its turn.
        tries: of a run in which other processes took more than a little; the least disturbed one
            counts.
        one_core: one thread each, and CPU seconds for seconds: what others do then hardly counts,
            and neither does what threads lose by waiting for each other.
    """

    rounds: int
    tries: int
    one_core: bool


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


def in_turns(ways: Sequence[Way], plan: Plan) -> Turns:
    """Run every way once a round, each round beginning with another one."""
    rates: dict[str, list[float]] = {way.name: [] for way in ways}
    worst = 0.0
    for number in range(plan.rounds):
        first = number % len(ways)
        for way in (*ways[first:], *ways[:first]):
            runs: list[tuple[float, float]] = []
            while len(runs) < plan.tries and (not runs or min(runs)[0] > _QUIET):
                runs.append(_run_on_one_core(way) if plan.one_core else _run(way))
            disturbance, seconds = min(runs)
            rates[way.name].append(way.amount / seconds)
            worst = max(worst, disturbance)
    return Turns(rates, worst)


def _run_on_one_core(way: Way) -> tuple[float, float]:
    """Give no disturbance and the CPU seconds; a way with more threads than one is no match."""
    wall, cpu = time.perf_counter(), time.process_time()
    way.run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if cpu > _ONE_THREAD * wall:
        raise RuntimeError(f"{way.name} ran {cpu / wall:.2f} threads where all are to run one")
    return 0.0, cpu


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
