"""Chunkers by name: ours and strangers' come in by the same door."""

from importlib.metadata import EntryPoint, entry_points
from typing import Final, cast

from corral_chunkers.contract import ChunkerError, ChunkerFactory

__all__ = ["GROUP", "available", "load"]

GROUP: Final = "corral.chunkers"
"""The entry point group."""


def available() -> tuple[str, ...]:
    """Return the names of the chunkers that are installed, in order."""
    return tuple(sorted({entry.name for entry in entry_points(group=GROUP)}))


def load(name: str) -> ChunkerFactory:
    """Return the chunker's factory.

    Args:
        name: of an entry point of the group `corral.chunkers`.

    Raises:
        ChunkerError: there is none of that name, several packages claim it, or it cannot be
            imported.
    """
    entry = _entry(name)
    try:
        return cast("ChunkerFactory", entry.load())
    except Exception as error:  # a stranger's module may raise anything while it is imported
        raise ChunkerError(
            f"the chunker {name!r} ({entry.value}, of {_package(entry)}) cannot be imported: "
            f"{error!r}. Install that package again, or take another of: {', '.join(available())}."
        ) from error


def _entry(name: str) -> EntryPoint:
    found = {entry.value: entry for entry in entry_points(group=GROUP, name=name)}
    if not found:
        raise ChunkerError(
            f"there is no chunker {name!r}; installed are: {', '.join(available()) or 'none'}. "
            f"Others come with packages that have an entry point in the group {GROUP}."
        )
    if len(found) > 1:
        claims = ", ".join(f"{value} of {_package(entry)}" for value, entry in found.items())
        raise ChunkerError(
            f"several packages offer a chunker {name!r}: {claims}. Uninstall all but one."
        )
    return next(iter(found.values()))


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else "an unknown package"
