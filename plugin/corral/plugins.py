"""Chunkers, readers and sinks by name: ours and strangers' come in by the same door."""

from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, cast

from corral.errors import UsageError
from corral.readers import ReaderFactory
from corral_chunkers import ChunkerFactory
from corral_sinks import SinkFactory

__all__ = [
    "CHUNKERS",
    "READERS",
    "SINKS",
    "available",
    "load_chunker",
    "load_reader",
    "load_sink",
]

CHUNKERS: Final = "corral.chunkers"
"""Entry point group of ways to cut; each entry is a ChunkerFactory."""

READERS: Final = "corral.readers"
"""Entry point group of readers of formats; each entry is a ReaderFactory."""

SINKS: Final = "corral.sinks"
"""Entry point group of kinds of stores; each entry is a SinkFactory."""


def available(group: str) -> tuple[str, ...]:
    """Return the names that are installed in an entry point group, in order."""
    return tuple(sorted({entry.name for entry in entry_points(group=group)}))


def load_chunker(name: str) -> ChunkerFactory:
    """Return the factory of a chunker.

    Raises:
        UsageError: there is none of that name, several packages claim it, or it cannot be
            imported.
    """
    return cast("ChunkerFactory", _load(CHUNKERS, "chunker", name))


def load_reader(name: str) -> ReaderFactory:
    """Return the factory of a reader; raises as `load_chunker`."""
    return cast("ReaderFactory", _load(READERS, "reader", name))


def load_sink(name: str) -> SinkFactory:
    """Return the factory of a sink; raises as `load_chunker`."""
    return cast("SinkFactory", _load(SINKS, "sink", name))


def _load(group: str, what: str, name: str) -> Any:  # noqa: ANN401 - those above say what it is
    entry = _entry(group, what, name)
    try:
        return entry.load()
    except Exception as error:  # a stranger's module may raise anything while it is imported
        raise UsageError(
            f"the {what} {name!r} ({entry.value}, of {_package(entry)}) cannot be imported: "
            f"{error!r}. Install that package again, or take another of: "
            f"{', '.join(available(group))}."
        ) from error


def _entry(group: str, what: str, name: str) -> EntryPoint:
    found = {entry.value: entry for entry in entry_points(group=group, name=name)}
    if not found:
        raise UsageError(
            f"there is no {what} {name!r}; installed are: {', '.join(available(group)) or 'none'}. "
            f"Others come with packages that have an entry point in the group {group}."
        )
    if len(found) > 1:
        claims = ", ".join(f"{value} of {_package(entry)}" for value, entry in found.items())
        raise UsageError(
            f"several packages offer a {what} {name!r}: {claims}. Uninstall all but one."
        )
    return next(iter(found.values()))


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else "an unknown package"
