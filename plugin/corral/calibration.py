"""How many contexts, threads and tokens a pack run a model fastest here: timed once, then known.

What is fastest depends on the model, the build of llama.cpp and the machine, and no rule knows all
three. So an ingest, which has work to make up for it, spends up to two seconds on timing single
packs before it begins, and keeps what it found in the cache folder, where every later opening of
the model finds it. A query never waits for that: without a calibration there is a rule.

CORRAL_NO_CALIBRATION in the environment, set to anything, leaves the rule in force.
"""

import hashlib
import json
import logging
import math
import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import numpy as np
from numpy.typing import NDArray

from corral.engine.options import DEFAULT_PACK_TOKENS
from corral.models.files import atomic_target, cache_dir

if TYPE_CHECKING:  # `corral model show` comes here too, and need not load llama.cpp
    from corral.engine.pool import Engine
    from corral.engine.worker import WorkerEngine

__all__ = [
    "Calibration",
    "Setting",
    "available_cores",
    "calibrate",
    "describe",
    "race",
    "recall",
    "share_cores",
]

_PACKS: Final = (256, 512, 128)
_BUDGET_SECONDS: Final = 2.0
_WORTHWHILE: Final = 1.03
"""A setting that gains less over the rule's is noise."""
_REPEATS: Final = 2
_PROBE_TOKENS: Final = 16
_SEQUENCE_TOKENS: Final = 128
_IDS: Final = 64

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How a model runs.

    Args:
        n_contexts: contexts side by side.
        n_threads: of each context.
        pack_tokens: tokens of a decode that holds several sequences.
    """

    n_contexts: int
    n_threads: int
    pack_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What was found for a model, a build of llama.cpp and a machine.

    Args:
        setting: the fastest.
        trials: tokens a second of every setting that was timed.
    """

    setting: Setting
    trials: Mapping[Setting, float]

    def to_json(self) -> str:
        """Write it down."""
        trials = [{**asdict(setting), "rate": rate} for setting, rate in self.trials.items()]
        return json.dumps({**asdict(self.setting), "trials": trials}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote.

        Raises:
            ValueError: it is something else.
        """
        try:
            found = json.loads(text)
            trials = {_setting(trial): float(trial["rate"]) for trial in found["trials"]}
            setting = _setting(found)
            return cls(setting=setting, trials={**trials, setting: trials[setting]})
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a calibration: {error!r}") from error


def _setting(fields: Mapping[str, object]) -> Setting:
    values: dict[str, int] = {}
    for name in Setting.__slots__:
        value = fields[name]
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"not a calibration: {name} is {value!r}")
        values[name] = value
    return Setting(**values)


# The machine


def available_cores() -> int:
    """Count the cores that this process may use: its affinity, and its control group's quota."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, min(cores, _quota(Path("/sys/fs/cgroup/cpu.max")) or cores))


def _quota(file: Path) -> int | None:
    """Cores that a control group grants, rounded up; None where it sets no limit."""
    try:
        quota, period = file.read_text().split()
        return math.ceil(int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return None


def share_cores(n_contexts: int | None, n_threads: int | None, *, on_gpu: bool) -> dict[str, int]:
    """Share this process's cores out among contexts and their threads: the rule.

    Small models on a CPU run fastest with one thread a context; a GPU wants one context.
    """
    cores = available_cores()
    if n_contexts is None:
        n_contexts = 1 if on_gpu else max(1, cores // (n_threads or 1))
    if n_threads is None:
        n_threads = max(1, cores // max(1, n_contexts))
    return {"n_contexts": n_contexts, "n_threads": n_threads}


# What is known


def recall(model_sha256: str) -> Calibration | None:
    """Give what was found for a model by this build on this machine, if anything was."""
    if os.environ.get("CORRAL_NO_CALIBRATION"):
        return None
    path = _path(model_sha256)
    try:
        return Calibration.from_json(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.warning("%s is passed over: %s", path, error)
        return None


def _path(model_sha256: str) -> Path:
    return cache_dir() / "calibration" / f"{model_sha256[:32]}-{_here()}.json"


def _here() -> str:
    """Name this build of llama.cpp and this machine; 16 hex digits."""
    # RECORD lists the hash of every file: builds of one version differ in it.
    build = distribution("llama-cpp-python").read_text("RECORD") or ""
    return hashlib.sha256(f"{build}\n{_processor()}\n{available_cores()}".encode()).hexdigest()[:16]


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else f"{platform.machine()} {platform.processor()}"


def describe(model_sha256: str) -> str:
    """Say in a line how a model runs here, and how that is known."""
    calibration = recall(model_sha256)
    if calibration is None:
        rule = share_cores(None, None, on_gpu=False)
        return f"{_words(Setting(**rule, pack_tokens=DEFAULT_PACK_TOKENS))} (not yet calibrated)"
    setting = calibration.setting
    rate = calibration.trials[setting]
    return f"{_words(setting)} (calibrated: {rate:,.0f} tokens/s)"


def _words(setting: Setting) -> str:
    return (
        f"{setting.n_contexts} x {setting.n_threads} threads, packs of {setting.pack_tokens} tokens"
    )


# Finding it out


def calibrate(
    engine: "Engine | WorkerEngine",
    model_sha256: str,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> Setting:
    """Time what could be fastest, leave the engine at it, and write it down.

    Args:
        engine: runs the model; nobody else may be using it.
        model_sha256: of the model's file.
        clock: seconds.
    """
    known = recall(model_sha256)
    if known is None:
        known = _find(engine, clock)
        log.info("calibrated: %s", _words(known.setting))
        try:
            with atomic_target(_path(model_sha256)) as path:
                path.write_text(known.to_json())
        except OSError as error:
            log.warning("the calibration is not kept: %s", error)
    engine.retune(**asdict(known.setting))
    return known.setting


def _find(engine: "Engine | WorkerEngine", clock: Callable[[], float]) -> Calibration:
    rule = Setting(**share_cores(None, None, on_gpu=False), pack_tokens=engine.options.pack_tokens)
    probe = [_sequence(min(_PROBE_TOKENS, engine.max_tokens), 0)]
    engine.run(probe)  # makes the context
    started = clock()
    engine.run(probe)
    rate = len(probe[0]) / max(clock() - started, 1e-9)
    if rule.n_contexts * rule.pack_tokens > rate * _BUDGET_SECONDS:
        log.info("the model is too slow here for a calibration of %s s", _BUDGET_SECONDS)
        return Calibration(setting=rule, trials={rule: rate})
    return race(rule, available_cores(), lambda setting: _time(engine, setting, clock), clock=clock)


def race(
    rule: Setting,
    cores: int,
    measure: Callable[[Setting], float],
    *,
    clock: Callable[[], float],
    budget: float = _BUDGET_SECONDS,
) -> Calibration:
    """Measure the rule's setting, other ways to share the cores, then other packs for the best.

    Args:
        rule: the setting to beat.
        cores: to share out.
        measure: gives tokens a second of a setting.
        clock: seconds.
        budget: seconds; nothing is begun that would likely end after them.
    """
    started = clock()
    trials = {rule: measure(rule)}
    cost = clock() - started

    def try_all(settings: Iterable[Setting]) -> None:
        nonlocal cost
        for setting in settings:
            begun = clock()
            if setting not in trials and begun + cost <= started + budget:
                trials[setting] = measure(setting)
                cost = max(cost, clock() - begun)

    try_all(
        replace(rule, n_contexts=cores // n_threads, n_threads=n_threads)
        for n_threads in _divisions(cores)
    )
    best = _leader(trials, rule)
    try_all(replace(best, pack_tokens=pack) for pack in _PACKS)
    return Calibration(setting=_leader(trials, rule), trials=trials)


def _leader(trials: Mapping[Setting, float], rule: Setting) -> Setting:
    best = max(trials, key=lambda setting: trials[setting])
    return best if trials[best] >= _WORTHWHILE * trials[rule] else rule


def _divisions(cores: int) -> list[int]:
    """Threads a context that leave no core idle, or few: all, then powers of two from 2."""
    powers = [2**n for n in range(1, cores.bit_length())]
    return [cores, *(n for n in powers if n < cores)]


def _time(engine: "Engine | WorkerEngine", setting: Setting, clock: Callable[[], float]) -> float:
    """Tokens a second over one pack a context, the better of two runs: the first makes contexts."""
    engine.retune(**asdict(setting))
    length = min(_SEQUENCE_TOKENS, setting.pack_tokens, engine.max_tokens)
    n_sequences = setting.n_contexts * (setting.pack_tokens // length)
    sequences = [_sequence(length, number) for number in range(n_sequences)]
    seconds = []
    for _ in range(_REPEATS):
        started = clock()
        engine.run(sequences)
        seconds.append(clock() - started)
    return length * len(sequences) / max(min(seconds), 1e-9)


def _sequence(length: int, first: int) -> NDArray[np.int32]:
    """Ids that every vocabulary has; where `first` differs there is no prefix to share."""
    return np.arange(first, first + length, dtype=np.int32) % _IDS
