"""Many points through the sink alone: rate, search, memory and disk, as it grows.

    python benchmarks/bulk.py --points 10000 100000 1000000 --out benchmarks/results

The vectors lie in clusters, as texts' do; on random ones a graph finds little. Each number of
points is loaded in a process of its own into an embedded collection that is thrown away. A million
points of 384 dimensions want 8 GB of disk and about as much memory.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import closing
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray

from corral_sinks import Record, Schema, SinkOptions, VectorParams
from corral_sinks.qdrant import QdrantSink

SIZE = 384
BATCH = 256
CENTRES = 1000
SEARCHES = 500
TELL_SECONDS = 10.0
WINDOW = 100_000
"""Points whose rates are compared, first and last; a fifth of the points where those are fewer."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--out", type=Path, help="folder for the figures, the table and the plot")
    parser.add_argument("--in-child", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.in_child:
        print(json.dumps(measured(chosen.in_child)))
        return
    print("\n".join(head()))
    figures = []
    for number in chosen.points:
        command = [sys.executable, __file__, "--in-child", str(number)]
        child = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        figures.append(json.loads(child.stdout))
        print(line(figures[-1]), flush=True)
        if chosen.out:  # at once: what comes next may take an hour
            write(figures, chosen.out)


class Teller:
    """Says on standard error now and then how far it is."""

    def __init__(self) -> None:
        """Begin to wait."""
        self._said = time.monotonic()

    def __call__(self, news: object) -> None:
        """Take note of it."""
        if time.monotonic() - self._said > TELL_SECONDS:
            self._said = time.monotonic()
            print(news, file=sys.stderr, flush=True)


def clustered(
    draw: np.random.Generator, centres: NDArray[np.float32], n: int
) -> NDArray[np.float32]:
    """Unit rows around centres, (n, SIZE) float32."""
    noise = draw.standard_normal((n, SIZE), dtype=np.float32)
    rows = centres[draw.integers(len(centres), size=n)] + 0.5 * noise
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / norms).astype(np.float32)


def measured(n_points: int) -> dict[str, float]:
    draw = np.random.default_rng(0)
    centres = draw.standard_normal((CENTRES, SIZE), dtype=np.float32)
    window = min(WINDOW, n_points // 5)
    with tempfile.TemporaryDirectory() as folder:
        target = SinkOptions(collection="bulk", path=folder)
        with closing(QdrantSink(target)) as sink:
            sink.create(
                Schema(
                    vectors={"dense": VectorParams(size=SIZE)},
                    indexes={"metadata.source": "keyword"},
                )
            )
            sink.defer_indexing()
            spent = loaded(sink, draw, centres, n_points)
            began = time.perf_counter()
            sink.optimize(Teller())
            built = time.perf_counter() - began
            queries = clustered(draw, centres, SEARCHES)
            times = [searched(sink, query) for query in queries]
            memory = psutil.Process().memory_info().rss
        blocks = sum(file.stat().st_blocks for file in Path(folder).rglob("*"))
    ends = np.cumsum(spent)
    batches = max(1, window // BATCH)
    first, last = ends[batches - 1], ends[-1] - ends[-batches - 1]
    return {
        "points": n_points,
        "rate_first": window / float(first),
        "rate_last": window / float(last),
        "seconds_to_load": float(ends[-1]),
        "seconds_to_build": built,
        "search_p50_ms": 1000 * float(np.percentile(times, 50)),
        "search_p99_ms": 1000 * float(np.percentile(times, 99)),
        "memory_bytes": memory,
        "disk_bytes": 512 * blocks,
    }


def loaded(
    sink: QdrantSink, draw: np.random.Generator, centres: NDArray[np.float32], n_points: int
) -> list[float]:
    """Seconds that each batch took; making its vectors is not counted."""
    spent = []
    tell = Teller()
    for start in range(0, n_points, BATCH):
        rows = clustered(draw, centres, min(BATCH, n_points - start))
        records = [record(start + number, row) for number, row in enumerate(rows)]
        began = time.perf_counter()
        sink.upsert(records)
        if start // BATCH % 40 == 0:
            sink.flush()
        spent.append(time.perf_counter() - began)
        tell(f"{n_points:,} points: {start + len(records):,} loaded")
    return spent


def record(number: int, row: NDArray[np.float32]) -> Record:
    metadata = {"source": f"{number // 20}.md", "start": number, "end": number + 800}
    payload = {"page_content": f"text of chunk {number} " * 10, "metadata": metadata}
    return Record(id=str(uuid.UUID(int=number)), vectors={"dense": row}, payload=payload)


def searched(sink: QdrantSink, query: NDArray[np.float32]) -> float:
    began = time.perf_counter()
    sink.search(query, vector_name="dense", limit=10)
    return time.perf_counter() - began


def head() -> list[str]:
    names = (
        *("points", "points/s first", "points/s last", "last / first", "s to load", "s to build"),
        *("search p50 ms", "p99 ms", "memory MB", "disk MB"),
    )
    return [f"| {' | '.join(names)} |", "|" + " --- |" * len(names)]


def line(figure: dict[str, float]) -> str:
    cells = (
        f"{figure['points']:,}",
        f"{figure['rate_first']:,.0f}",
        f"{figure['rate_last']:,.0f}",
        f"{figure['rate_last'] / figure['rate_first']:.2f}",
        f"{figure['seconds_to_load']:.1f}",
        f"{figure['seconds_to_build']:.1f}",
        f"{figure['search_p50_ms']:.2f}",
        f"{figure['search_p99_ms']:.2f}",
        f"{figure['memory_bytes'] / 1e6:,.0f}",
        f"{figure['disk_bytes'] / 1e6:,.0f}",
    )
    return f"| {' | '.join(cells)} |"


def write(figures: list[dict[str, float]], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bulk.json").write_text(json.dumps(figures, indent=1) + "\n")
    (folder / "bulk.md").write_text("\n".join([*head(), *map(line, figures)]) + "\n")
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    points = [figure["points"] for figure in figures]
    chart, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    for name, label in (("rate_first", "first"), ("rate_last", "last")):
        left.plot(points, [figure[name] for figure in figures], "o-", label=label)
    for name, label in (("search_p50_ms", "p50"), ("search_p99_ms", "p99")):
        right.plot(points, [figure[name] for figure in figures], "o-", label=label)
    left.set(xscale="log", xlabel="points", ylabel="points/s", ylim=(0, None))
    right.set(xscale="log", xlabel="points", ylabel="ms a search", ylim=(0, None))
    for axes in (left, right):
        axes.legend()
    chart.tight_layout()
    chart.savefig(folder / "bulk.png", dpi=120)


if __name__ == "__main__":
    main()
