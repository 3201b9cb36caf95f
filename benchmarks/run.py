"""Run the benchmarks: `make bench`, or `python benchmarks/run.py chunks prefix --rounds 5`.

Prints a table for each comparison; with --out also writes the figures as JSON, and a plot where
matplotlib is installed. What a peer lacks is said, and the peer left out.
"""

import argparse
import dataclasses
import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

if "--one-core" in sys.argv:  # BLAS and OpenMP read it when they are loaded
    os.environ |= dict.fromkeys(
        ("CORRAL_BENCH_ONE_CORE", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"
    )
    os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tables import TABLES, Ratio, Table
from timing import Plan, Spread

from corral.engine import _llama
from corral.fast import uses_mkl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", choices=[*TABLES, []], help="default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tries", type=int, default=3, help="of a run that others disturb")
    parser.add_argument("--one-core", action="store_true", help="one thread each, CPU seconds")
    parser.add_argument("--out", type=Path, help="folder for figures and plots")
    chosen = parser.parse_args()
    plan = Plan(rounds=chosen.rounds, tries=chosen.tries, one_core=chosen.one_core)
    build = "mkl" if uses_mkl() else "plain"
    print(f"llama-cpp-python {version('llama-cpp-python')} ({build}): {_llama.system_info()}")
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores\n")
    for name in chosen.tables or TABLES:
        table = TABLES[name](plan)
        show(table, mkl=build == "mkl")
        if chosen.out:
            chosen.out.mkdir(parents=True, exist_ok=True)
            target = chosen.out / f"{name}-{build}{'-one-core' if plan.one_core else ''}"
            target.with_suffix(".json").write_text(
                json.dumps(dataclasses.asdict(table), indent=1) + "\n"
            )
            plot(table, target.with_suffix(".png"), build)


def show(table: Table, *, mkl: bool) -> None:
    print(table.title)
    width = max(len(name) for name in (*table.values, *(r.what for r in table.ratios)))
    for name, value in table.values.items():
        print(f"  {name:<{width}}  {value.median:>9,.0f} {table.unit}{_range(value, ',.0f')}")
    for ratio in table.ratios:
        print(f"  {ratio.what:<{width}}  {ratio.value.median:>9.2f}{_range(ratio.value, '.2f')}"
              f"  wanted {'under' if ratio.at_most else 'at least'} {ratio.wanted[mkl]:.2f}: "
              f"{'reached' if _reached(ratio, mkl=mkl) else 'MISSED'}")  # fmt: skip
    for note in table.notes:
        print(f"  {note}")
    print(flush=True)


def _range(value: Spread, form: str) -> str:
    same = value.least == value.most
    return "" if same else f"  ({value.least:{form}} - {value.most:{form}})"


def _reached(ratio: Ratio, *, mkl: bool) -> bool:
    value, wanted = ratio.value.median, ratio.wanted[mkl]
    return value < wanted if ratio.at_most else value >= wanted


def plot(table: Table, target: Path, build: str) -> None:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        print("  matplotlib is not installed: no plot\n")
        return
    names, values = list(table.values), list(table.values.values())
    medians = [value.median for value in values]
    reach = [
        [value.median - value.least for value in values],
        [value.most - value.median for value in values],
    ]
    figure, axes = plt.subplots(figsize=(7, 0.9 + 0.35 * len(names)), layout="constrained")
    colours = ["#2b6cb0" if number == 0 else "#a0aec0" for number in range(len(names))]
    bars = axes.barh(names, medians, xerr=reach, color=colours, ecolor="#4a5568", capsize=2)
    axes.bar_label(bars, [f"{median:,.0f}" for median in medians], label_type="center")
    axes.invert_yaxis()
    axes.set_xlabel(table.unit)
    axes.set_title(f"{table.title} ({build} build)", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(target, dpi=80)
    plt.close(figure)


if __name__ == "__main__":
    main()
