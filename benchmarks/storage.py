"""Bytes a chunk and recall of each way to keep vectors, on the vectors of a collection of yours.

    ingest DOCS --path DB --collection docs --chunk-size 64
    python benchmarks/storage.py --path DB --collection docs --out benchmarks/results

Some of the vectors are held out as queries; the others go into a new collection for each way,
whose ten nearest are compared with the true ones. Below 10,000 KB of vectors the engine builds no
graph and no quantised copy: 6,700 chunks of 384 dimensions are the least.
"""

import argparse
import json
import tempfile
import time
import uuid
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corral_sinks import Record, Schema, SinkOptions, Storage, VectorParams
from corral_sinks.qdrant import Nearest, QdrantSink, search_params

K = 10
WAYS: dict[str, Storage] = {
    "float32": Storage(),
    "float16": Storage(datatype="float16"),
    "turbo16": Storage(datatype="turbo16"),
    "turbo8": Storage(datatype="turbo8"),
    "turbo4": Storage(datatype="turbo4"),
    "float32 on disk": Storage(on_disk=True),
    **{
        kind: Storage(quantization=kind)
        for kind in (
            *("scalar", "turbo:8", "turbo:4", "turbo:2", "turbo:1"),
            *("binary:2", "binary:1.5", "binary:1", "product:x4", "product:x16", "product:x64"),
        )
    },
}
SEARCHES = {
    "alone": search_params(rescore=False),
    "rescored": search_params(rescore=True),
    "rescored, oversampling 3": search_params(rescore=True, oversampling=3.0),
}


@dataclass(frozen=True)
class Figure:
    """What one way came to.

    Args:
        way: of keeping.
        bytes_a_chunk: of its folder on disk, payloads left out.
        recall: share of the true ten nearest that were found, by way of searching.
        milliseconds: of a search, the median, by way of searching.
        seconds: that building the graph and the copies took.
    """

    way: str
    bytes_a_chunk: float
    recall: dict[str, float]
    milliseconds: dict[str, float]
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", required=True, help="folder of an embedded collection")
    parser.add_argument("--collection", required=True)
    parser.add_argument("--vector", default="dense")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--ways", nargs="*", choices=[*WAYS, []], help="default: all")
    parser.add_argument("--out", type=Path, help="folder for the figures, the table and the plot")
    chosen = parser.parse_args()
    rows = vectors(SinkOptions(collection=chosen.collection, path=chosen.path), chosen.vector)
    order = np.random.default_rng(0).permutation(len(rows))
    queries, stored = rows[order[: chosen.queries]], rows[order[chosen.queries :]]
    true = np.argsort(-queries @ stored.T, axis=1)[:, :K]
    print(f"{len(stored):,} chunks of {rows.shape[1]} dimensions, {len(queries)} queries\n")
    figures = []
    for way in chosen.ways or WAYS:
        figures.append(measured(way, stored, queries, true))
        print(line(figures[-1]), flush=True)
    print("\nuint8, by Euclid and without a graph, as numpy computes it:")
    for name, span in (("-1 to 1", (-1.0, 1.0)), ("their own span", (rows.min(), rows.max()))):
        recall = recall_of_whole_numbers(stored, queries, true, span=span)
        print(f"  of numbers from {name}: recall@{K} {recall:.3f}")
    if chosen.out:
        write(figures, f"{len(stored):,} chunks of {rows.shape[1]} dimensions", chosen.out)


def vectors(target: SinkOptions, name: str) -> NDArray[np.float32]:
    """Rows of unit length, (n_chunks, size), each once."""
    with closing(QdrantSink(target)) as sink:
        rows = [record.vectors[name] for record in sink.records() if name in record.vectors]
    return np.unique(np.stack(rows), axis=0)


def recall_of_whole_numbers(
    stored: NDArray[np.float32],
    queries: NDArray[np.float32],
    true: NDArray[np.int64],
    *,
    span: tuple[float, float],
) -> float:
    """Recall where a span of numbers is moved and stretched to 0 to 255, and rounded.

    That changes cosines. Euclidean distances it multiplies, so the nearest are found by those.
    """
    low, high = span
    queries, stored = (
        np.clip(np.round((rows - low) / (high - low) * 255), 0, 255) for rows in (queries, stored)
    )
    distances = (stored**2).sum(axis=1) - 2 * queries @ stored.T
    found = np.argsort(distances, axis=1)[:, :K]
    both = (np.intersect1d(*pair, assume_unique=True) for pair in zip(found, true, strict=True))
    return sum(map(len, both)) / true.size


def measured(
    way: str, stored: NDArray[np.float32], queries: NDArray[np.float32], true: NDArray[np.int64]
) -> Figure:
    with tempfile.TemporaryDirectory() as folder:
        with closing(QdrantSink(SinkOptions(collection="way", path=folder))) as sink:
            size = stored.shape[1]
            sink.create(Schema(vectors={"dense": VectorParams(size=size, storage=WAYS[way])}))
            ids = [str(uuid.UUID(int=number)) for number in range(len(stored))]
            sink.upsert(
                [
                    Record(id=ids[number], vectors={"dense": row}, payload={})
                    for number, row in enumerate(stored)
                ]
            )
            began = time.perf_counter()
            sink.optimize()
            seconds = time.perf_counter() - began
            found = {how: searched(sink, queries, true, how) for how in searches(way)}
        blocks = sum(file.stat().st_blocks for file in Path(folder).rglob("segments/**/*"))
    return Figure(
        way=way,
        bytes_a_chunk=512 * blocks / len(stored),
        recall={how: recall for how, (recall, _) in found.items()},
        milliseconds={how: milliseconds for how, (_, milliseconds) in found.items()},
        seconds=seconds,
    )


def searches(way: str) -> list[str]:
    """Ways of searching that differ: without a copy there is nothing to rescore."""
    return [*SEARCHES] if WAYS[way].quantization else ["alone"]


def searched(
    sink: QdrantSink, queries: NDArray[np.float32], true: NDArray[np.int64], how: str
) -> tuple[float, float]:
    """Recall, and the median of the milliseconds that a search took."""
    hits, spent = 0, []
    for query, nearest in zip(queries, true, strict=True):
        began = time.perf_counter()
        ranking = Nearest(vector=query, name="dense")
        found = sink.rank(ranking, limit=K, search_params=SEARCHES[how])
        spent.append(time.perf_counter() - began)
        hits += len({uuid.UUID(hit.id).int for hit in found} & set(nearest.tolist()))
    return hits / true.size, 1000 * float(np.median(spent))


def line(figure: Figure) -> str:
    recalls = (f"{figure.recall[how]:.3f}" if how in figure.recall else "" for how in SEARCHES)
    times = (
        f"{figure.milliseconds[how]:.2f}" if how in figure.milliseconds else "" for how in SEARCHES
    )
    return (
        f"| {figure.way} | {figure.bytes_a_chunk:,.0f} | {' | '.join(recalls)} | "
        f"{' | '.join(times)} | {figure.seconds:.1f} |"
    )


def write(figures: list[Figure], what: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    heads = [*(f"recall@{K} {how}" for how in SEARCHES), *(f"ms {how}" for how in SEARCHES)]
    table = [
        f"| way | bytes a chunk | {' | '.join(heads)} | seconds to build |",
        "|" + " --- |" * (len(heads) + 3),
        *map(line, figures),
    ]
    (folder / "storage.md").write_text("\n".join(table) + "\n")
    content = {"what": what, "figures": [asdict(figure) for figure in figures]}
    (folder / "storage.json").write_text(json.dumps(content, indent=1) + "\n")
    plot(figures, what, folder / "storage.png")


def plot(figures: list[Figure], what: str, file: Path) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    chart, axes = plt.subplots(figsize=(9, 5))
    for how, mark in zip(SEARCHES, "o^s", strict=True):
        known = [figure for figure in figures if how in figure.recall]
        axes.scatter(
            [figure.bytes_a_chunk for figure in known],
            [figure.recall[how] for figure in known],
            marker=mark,
            label=how,
        )
    for figure in figures:
        place = (figure.bytes_a_chunk, figure.recall["alone"])
        axes.annotate(figure.way, place, fontsize=7, xytext=(4, 2), textcoords="offset points")
    axes.set(xlabel="bytes a chunk, on disk", ylabel=f"recall@{K}", title=what)
    axes.legend()
    chart.tight_layout()
    chart.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
