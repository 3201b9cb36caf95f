"""Whether a store holds what it acknowledged."""

import logging

from corral.report import Report
from corral_sinks import Sink

__all__ = ["verify"]

log = logging.getLogger(__name__)


def verify(sink: Sink, report: Report, *, before: int) -> None:
    """Compare the collection with what was sent, and count in the report what is amiss.

    The number of points tells most of the time. Where it does not fit, another run may have
    written meanwhile, so each file of this run is looked at by itself.

    Args:
        sink: holds the collection.
        report: of all that was written to it.
        before: points that the collection had before.
    """
    report.points = sink.count()
    report.points_expected = before + report.embedded - report.deleted
    if report.points == report.points_expected:
        return
    for entry in report.entries:
        if entry.status in {"stored", "unchanged"}:
            surplus = len(sink.stored(entry.source)) - entry.chunks
            report.missing += max(0, -surplus)
            report.surplus += max(0, surplus)
    if not report.missing and not report.surplus:
        log.warning(
            "the collection has %d points and not %d, though every file's are there: another run "
            "has written to it meanwhile",
            report.points,
            report.points_expected,
        )
