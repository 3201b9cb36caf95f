"""Which files a collection holds that are gone; and when not to trust that they are."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from corral.discovery import SkippedFile, SourceFile
from corral.errors import UsageError

__all__ = ["vanished"]


def vanished(
    held: Iterable[str], files: Sequence[SourceFile | SkippedFile], roots: Sequence[Path]
) -> list[str]:
    """List the sources that are held and no longer found.

    A folder that is not mounted, or may not be read, looks as if its files were gone. So nothing
    is listed where that could be.

    Args:
        held: sources that the collection has.
        files: all that was found under the roots, whatever was asked for.
        roots: the files and folders that were given.

    Raises:
        UsageError: a folder could not be looked into, or holds nothing; or the collection holds
            nothing of what was found, so that it was made from other folders.
    """
    for file in files:
        if isinstance(file, SkippedFile) and file.failed:
            raise UsageError(
                f"it cannot be told which files are gone: {file.path}: {file.reason}. Make it "
                "readable, or ingest without --prune"
            )
    inhabited = {folder for place in _folders(files) for folder in (place, *place.parents)}
    for root in roots:
        if root.is_dir() and inhabited.isdisjoint((root, root.resolve())):
            raise UsageError(
                f"all files of {root} would be taken for gone: there is none in it, as in a folder "
                "that is not mounted. Leave it out, or ingest without --prune"
            )
    found = {file.source for file in files}
    known = sorted(set(held))
    gone = [source for source in known if source not in found]
    if known and len(gone) == len(known):
        raise UsageError(
            f"all of the collection would be taken for gone: none of its {len(known):,} sources, "
            f"such as {known[0]!r}, is under the paths given. Sources are relative to them: give "
            "the same paths as before, or ingest without --prune"
        )
    return gone


def _folders(files: Iterable[SourceFile | SkippedFile]) -> set[Path]:
    """Folders that hold something that was found, as they were named and where they are."""
    named = {file.path.parent for file in files}
    return named | {folder.resolve() for folder in named}
