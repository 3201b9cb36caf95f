"""What an ingest costs beside the model: memory as the corpus grows, waiting, running again.

    python benchmarks/ingest.py --documents /usr/share/doc/git/html --mb 4 --out benchmarks/results

Files of a folder are copied until they have so many megabytes; every tenth of them is the small
corpus. `ingest` runs over the small one, the large one, and the large one again, each time with the
memory of its whole tree of processes watched. Then texts are embedded with the model in a process
of its own and with it in the same one, in turns, and CPU seconds compared, starting not counted.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from pydoc_data.topics import topics

import inputs
import psutil

from corral import GGUFEmbeddings

_EVERY = 10
_SAMPLE_SECONDS = 0.1
_COMMAND = "import sys; from corral.cli import ingest_main; ingest_main(sys.argv[1:])"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=Path, help="folder; default: Python's own help")
    parser.add_argument("--mb", type=float, default=1.5, help="of the large corpus")
    parser.add_argument("--rounds", type=int, default=5, help="with and without a process")
    parser.add_argument("--out", type=Path, help="folder for the figures, the table and the plot")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measured(Path(folder), chosen.documents, chosen.mb, chosen.rounds)
    lines = table(figures)
    print("\n".join(lines))
    if chosen.out:
        write(figures, lines, chosen.out)


@dataclass(frozen=True, slots=True)
class Run:
    """What one run came to.

    Args:
        seconds: from start to end of the process.
        peak_bytes: most that its processes held together, shared pages counted for each.
        memory: (seconds since the start, bytes), a few times a second.
        totals: of its report.
        load: of the machine for the last minute, when it ended.
    """

    seconds: float
    peak_bytes: int
    memory: Sequence[tuple[float, int]]
    totals: dict[str, float]
    load: float


@dataclass(frozen=True, slots=True)
class Figures:
    """All that is measured.

    Args:
        megabytes: of the large corpus.
        small: the run over a tenth of the files.
        large: the run over all.
        again: the same once more.
        cpu_ratios: CPU seconds with the model in a process of its own by those without, by round.
    """

    megabytes: float
    small: Run
    large: Run
    again: Run
    cpu_ratios: Sequence[float]


def measured(folder: Path, documents: Path | None, megabytes: float, rounds: int) -> Figures:
    """Make the corpora, and run over them."""
    small, large = folder / "small", folder / "large"
    size = 0
    for number, (name, content) in enumerate(_files(documents, 1e6 * megabytes)):
        size += len(content)
        for corpus in (small, large)[number % _EVERY != 0 :]:
            (corpus / name).parent.mkdir(parents=True, exist_ok=True)
            (corpus / name).write_bytes(content)
    first = [_watched(corpus, folder / f"{corpus.name}-db") for corpus in (small, large)]
    again = _watched(large, folder / "large-db")
    ratios = _cpu_ratios(rounds)
    return Figures(size / 1e6, *first, again, ratios)


def _files(documents: Path | None, n_bytes: float) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents, until they have so many bytes."""
    for name, content in _all_files(documents):
        if n_bytes <= 0:
            return
        n_bytes -= len(content)
        yield name, content


def _all_files(documents: Path | None) -> Iterator[tuple[str, bytes]]:
    if documents is not None:
        for file in sorted(documents.rglob("*")):
            if file.is_file() and not file.is_symlink():
                yield file.relative_to(documents).as_posix(), file.read_bytes()
        return
    for copy in range(1_000_000):
        for name, text in topics.items():
            yield f"{copy}/{name}.txt", f"{copy}\n{text}".encode()


def _watched(corpus: Path, target: Path) -> Run:
    """Run `ingest`, and look at its memory all the time."""
    arguments = [str(corpus), "--path", str(target), "--collection", "c", "--json"]
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", _COMMAND, *arguments], stdout=subprocess.PIPE, text=True
    )
    memory = []
    while process.poll() is None:
        memory.append((time.perf_counter() - began, _held(process.pid)))
        time.sleep(_SAMPLE_SECONDS)
    seconds = time.perf_counter() - began
    if process.stdout is None or process.returncode:
        raise SystemExit(f"ingest ended with {process.returncode}")
    totals = json.load(process.stdout)["totals"]
    peak = max(held for _, held in memory)
    return Run(seconds, peak, memory, totals, os.getloadavg()[0])


def _held(pid: int) -> int:
    """Resident bytes of a process and all below it."""
    held = 0
    try:
        parent = psutil.Process(pid)
        below = [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for one in below:
        try:
            held += one.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return held


def _cpu_ratios(rounds: int) -> list[float]:
    """CPU seconds with the model in a process of its own by those without, round by round."""
    setting = {"n_contexts": os.cpu_count() or 1, "n_threads": 1, "pack_tokens": 256}
    with (
        GGUFEmbeddings("minilm", isolate=True, **setting) as apart,
        GGUFEmbeddings("minilm", **setting) as here,
    ):
        texts = inputs.chunks(here, 256, least=20, most=256)
        ratios = []
        for number in range(rounds + 1):
            order = (apart, here) if number % 2 else (here, apart)
            spent = {id(one): _cpu(one, texts) for one in order}
            ratios.append(spent[id(apart)] / spent[id(here)])
    return ratios[1:]  # the first warms up


def _cpu(embeddings: GGUFEmbeddings, texts: list[str]) -> float:
    """CPU seconds of this process and its children for some texts, in batches of an ingest's."""
    before = _cpu_so_far()
    for start in range(0, len(texts), 64):
        embeddings.embed(texts[start : start + 64])
    return _cpu_so_far() - before


def _cpu_so_far() -> float:
    own = psutil.Process()
    times = [one.cpu_times() for one in (own, *own.children())]
    return sum(one.user + one.system for one in times)


def table(figures: Figures) -> list[str]:
    """Lines of a table in Markdown."""
    small, large, again = figures.small, figures.large, figures.again
    growth = large.peak_bytes / small.peak_bytes
    busy = large.totals["model_busy"]
    share = large.seconds / again.seconds
    cost = statistics.median(figures.cpu_ratios) - 1
    least, most = min(figures.cpu_ratios) - 1, max(figures.cpu_ratios) - 1
    peaks = f"{small.peak_bytes / 1e6:,.0f} MB, then {large.peak_bytes / 1e6:,.0f} MB"
    tokens, seconds = large.totals["tokens"], large.totals["seconds"]
    rounds = f"{len(figures.cpu_ratios)} rounds, {least:+.1%} to {most:+.1%}"
    rows = [
        (f"memory at 10 times the files: {peaks}", f"{growth:.2f} times", "under 1.15"),
        (f"the model at work, in {seconds:,.0f} s ({tokens:,} tokens)", f"{busy:.1%}", "95 %"),
        (
            f"a second run over the same files: {again.seconds:.1f} s after {large.seconds:,.0f} s",
            f"1/{share:.0f}",
            "1/50",
        ),
        (f"CPU time of the model's own process: {rounds}", f"{cost:+.1%}", "+2 %"),
    ]
    head = ["| what | measured | wanted |", "| --- | --- | --- |"]
    return [*head, *(f"| {' | '.join(row)} |" for row in rows)]


def write(figures: Figures, lines: Sequence[str], folder: Path) -> None:
    """Write the figures, the table and the plot of memory over time."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ingest.json").write_text(json.dumps(asdict(figures)) + "\n")
    (folder / "ingest.md").write_text("\n".join(lines) + "\n")
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    chart, axes = plt.subplots(figsize=(7, 3), layout="constrained")
    for name, run in (("a tenth of the files", figures.small), ("all", figures.large)):
        end = run.memory[-1][0]
        axes.plot(
            [at / end for at, _ in run.memory], [held / 1e6 for _, held in run.memory], label=name
        )
    axes.set(xlabel="share of the run", ylabel="MB, all processes", ylim=(0, None))
    axes.legend()
    chart.savefig(folder / "ingest.png", dpi=80)


if __name__ == "__main__":
    main()
