"""A report as Prometheus reads it: for node_exporter's textfile collector, or a push gateway.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
"""

from collections.abc import Iterator, Mapping
from typing import Final

from corral.report import Report

__all__ = ["prometheus"]

_CHUNKS: Final = ("embedded", "reused", "moved", "deleted", "truncated", "quarantined")
_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def prometheus(report: Report, *, collection: str, finished_at: float) -> str:
    """Write down what a run came to, as gauges with the collection as their label.

    Args:
        report: of the run.
        collection: that it wrote to.
        finished_at: when, in seconds since 1970.
    """
    totals = report.totals()
    rows: list[tuple[str, str, Mapping[str, float]]] = [
        ("success", "Whether all was stored.", {"": int(report.all_stored)}),
        (
            "files",
            "Files, by how they ended.",
            _by("status", totals, ("stored", "unchanged", "skipped", "failed")),
        ),
        ("chunks", "Chunks that the files have.", {"": totals["chunks"]}),
        ("chunks_by_fate", "Chunks, by what was done.", _by("fate", totals, _CHUNKS)),
        ("points", "Points that the collection has.", _counted(totals["points"])),
        ("tokens", "Tokens embedded.", {"": totals["tokens"]}),
        ("duration_seconds", "From the first file to the last write.", {"": totals["seconds"]}),
        (
            "model_busy_ratio",
            "Share of the time that the model worked.",
            {"": totals["model_busy"]},
        ),
        ("finished_timestamp_seconds", "When the run ended.", {"": finished_at}),
    ]
    return "".join(_lines(rows, f'collection="{collection.translate(_ESCAPED)}"'))


def _counted(number: int | None) -> dict[str, float]:
    return {} if number is None else {"": number}


def _by(label: str, totals: Mapping[str, float], names: tuple[str, ...]) -> dict[str, float]:
    return {f',{label}="{name}"': totals[name] for name in names}


def _lines(rows: list[tuple[str, str, Mapping[str, float]]], label: str) -> Iterator[str]:
    for name, words, values in rows:
        if not values:
            continue
        metric = f"corral_ingest_{name}"
        yield f"# HELP {metric} {words}\n# TYPE {metric} gauge\n"
        for more, value in values.items():
            yield f"{metric}{{{label}{more}}} {value}\n"
