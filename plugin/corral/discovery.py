"""Which files an ingest reads, and under which names.

The source of a file is its path relative to the root it was found under, as a relative URI:
percent-encoded UTF-8 (or the name's bytes, where they are none) with "/" between the parts. The
root of a file that is given by its own name is its folder. Where several roots are given, sources
are relative to the deepest folder that holds all of them, so that no two files share one:

    ingest docs             docs/a b.md    -> a%20b.md
    ingest docs notes/x.txt docs/a b.md    -> docs/a%20b.md, notes/x.txt
"""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote_from_bytes

from pathspec import GitIgnoreSpec

from corral.errors import UsageError
from corral.ignoring import IgnoreFiles, spec_of
from corral.reading import STDIN, kind_of

__all__ = ["SUFFIXES", "SkippedFile", "SourceFile", "discover"]

SUFFIXES: Final = (".txt", ".md", ".rst")
"""Kinds of files that are read, in lower case."""

_MOST_REASONS: Final = 5
_MOST_SUFFIXES: Final = 12
_ENVIRONMENT: Final = "pyvenv.cfg"
_COLLECTION: Final = frozenset({"corral.json", "edge_config.json"})
"""Files of an embedded collection's folder, which may lie among the documents: it holds copies."""
"""Stands in the folder of every virtual environment of Python's."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read.

    Args:
        path: as it is opened and shown.
        source: URI relative to the root, which names the file in the collection.
    """

    path: Path
    source: str


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """What lies under a root and is not read.

    Args:
        path: as it is shown.
        source: URI relative to the root.
        reason: why.
        failed: whether something is amiss (a folder that may not be listed), so that files may
            be missing; else it is left alone on purpose.
    """

    path: Path
    source: str
    reason: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class _Root:
    """A file or folder as given, where it really is, its `st_mode`, and why it cannot be read."""

    given: Path
    real: Path
    mode: int
    missing: str | None = None

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def folder(self) -> Path:
        return self.real if self.is_folder else self.real.parent


@dataclass(frozen=True, slots=True)
class _Search:
    """What every step of a search needs to know.

    Args:
        base: folder that sources are relative to.
        folders: real folders that are searched.
        given: real files that were given by their own names, and are not to be found again.
        include: what the paths of files must match; None for all.
        exclude: what paths must not match.
        suffixes: ends of names, one of them.
        hidden: whether hidden files and folders, and virtual environments, are searched.
        ignored: the ignore files of each root; empty where they are not asked.
        follow: whether links that lead out of the folders are followed.
        followed: real places of the folders that were entered by such a link.
    """

    base: Path
    folders: frozenset[Path]
    given: frozenset[Path]
    include: GitIgnoreSpec | None
    exclude: GitIgnoreSpec
    suffixes: tuple[str, ...]
    hidden: bool
    ignored: Mapping[Path, IgnoreFiles]
    follow: bool
    followed: set[Path] = field(default_factory=set)

    def wants(self, parts: Sequence[str]) -> bool:
        if not parts[-1].lower().endswith(self.suffixes):
            return False
        return self.include is None or self.include.match_file("/".join(parts))

    def leaves_out(self, root: _Root, parts: Sequence[str], *, is_folder: bool) -> bool:
        """Whether a file or folder is none of what is to be searched."""
        if not parts:
            return False
        if parts[-1].startswith(".") and not self.hidden:
            return True
        if self.exclude.match_file("/".join(parts) + ("/" if is_folder else "")):
            return True
        ignored = self.ignored.get(root.real)
        return bool(ignored and ignored.ignores(root.real.joinpath(*parts), is_folder=is_folder))

    def holds(self, real: Path) -> bool:
        return not self.folders.isdisjoint((real, *real.parents))

    def enters(self, link: Path) -> bool:
        """Whether a link leads to a folder to search under the link's name; true once a folder."""
        if not self.follow or not os.path.isdir(link):  # noqa: PTH112 - never raises
            return False
        target = link.resolve()
        above = any(target in folder.parents for folder in self.folders)
        if above or self.holds(target) or target in self.followed:
            return False
        self.followed.add(target)
        return True


def discover(  # noqa: PLR0913 - there are as many ways to say what is wanted
    roots: Sequence[Path],
    include: Sequence[str] = (),
    *,
    exclude: Sequence[str] = (),
    hidden: bool = False,
    no_ignore: bool = False,
    listed: Sequence[Path] | None = None,
    stdin_name: str = str(STDIN),
    suffixes: Sequence[str] = SUFFIXES,
    follow_symlinks: bool = False,
) -> list[SourceFile | SkippedFile]:
    """Find the files under roots.

    Links to files are followed where they lead to something under a root, links to folders are not,
    since what is in the folder is found under its own name. What is no file (a FIFO, a device) or
    leads out of the roots is listed as skipped; with `follow_symlinks` what links lead to is found
    under the link's name wherever it is, each folder once, so that circles end.

    Args:
        roots: files, which are taken whatever their name, folders, which are searched, and STDIN.
        include: patterns that the files of folders must match, one of them; none for all. Each is
            a line as in a .gitignore in the root: `*.md` for a name, `/guide/**/*.md` for a path.
        exclude: patterns of files and folders that are left out, written the same way.
        hidden: whether names that start with a dot, and folders of virtual environments, are
            searched, too.
        no_ignore: whether .gitignore and .corralignore are not asked.
        listed: further roots; sources are then relative to the current folder, too, where all of
            it is under that, and one that is missing is listed as failed.
        stdin_name: source of what standard input brings.
        suffixes: ends of the names of the files that are taken from folders, in lower case.
        follow_symlinks: whether links that lead out of the roots are followed.

    Returns:
        In the order of the roots, then by name; nothing twice.

    Raises:
        UsageError: a root is missing, or there is no file to read under them.
    """
    named = [Path(root) for root in (*roots, *(listed or ()))]
    piped = [SourceFile(STDIN, stdin_name)] if STDIN in named else []
    given = [_root(Path(root)) for root in roots if Path(root) != STDIN]
    given += [_listed_root(root) for root in listed or () if root != STDIN]
    unique = _without_nested(given)
    if not unique and not piped:
        raise UsageError("no file or folder is given to read. Name at least one.")
    folders = frozenset(root.real for root in unique if root.is_folder)
    here = [Path.cwd()] if listed is not None or not unique else []
    search = _Search(
        base=Path(os.path.commonpath([*here, *(root.folder for root in unique)])),
        folders=folders,
        given=frozenset(root.real for root in unique if not root.is_folder),
        include=spec_of(include, "--include") if include else None,
        exclude=spec_of(exclude, "--exclude"),
        suffixes=tuple(suffixes),
        hidden=hidden,
        ignored={} if no_ignore else {folder: IgnoreFiles(folder) for folder in folders},
        follow=follow_symlinks,
    )
    found = [*piped, *(file for root in unique for file in _search_root(root, search))]
    if not any(isinstance(file, SourceFile) for file in found):
        raise UsageError(_nothing_found(unique, search, include, found))
    return found


def _root(given: Path) -> _Root:
    try:
        mode = given.stat().st_mode
        real = given.resolve() if stat.S_ISDIR(mode) else given.parent.resolve() / given.name
    except OSError as error:
        raise UsageError(
            f"{given} cannot be read: {error.strerror or error}. Name files or folders that exist."
        ) from error
    return _Root(given, real, mode)


def _listed_root(given: Path) -> _Root:
    """Look at a path of a list, which may well have been removed meanwhile."""
    try:
        return _root(given)
    except UsageError as error:
        return _Root(given, given.absolute(), 0, missing=str(error))


def _without_nested(roots: Sequence[_Root]) -> list[_Root]:
    """Drop what is given twice, and folders inside folders that are given as well."""
    first = {root.real: root for root in reversed(roots)}
    folders = {root.real for root in roots if root.is_folder}
    return [
        root
        for root in roots
        if first[root.real] is root
        and not (root.is_folder and folders.intersection(root.real.parents))
    ]


def _search_root(root: _Root, search: _Search) -> Iterator[SourceFile | SkippedFile]:
    if root.missing is not None:
        yield SkippedFile(root.given, _uri(root.real, search.base), root.missing, failed=True)
        return
    if not root.is_folder:
        yield _leaf(root.given, _uri(root.real, search.base), kind_of(root.mode))
        return
    pending: list[tuple[str, ...]] = [()]  # no recursion: folders may nest deeply
    while pending:
        parts = pending.pop()
        path, real = root.given.joinpath(*parts), root.real.joinpath(*parts)
        source = _uri(real, search.base)
        try:
            mode = real.lstat().st_mode
            if search.leaves_out(root, parts, is_folder=stat.S_ISDIR(mode)):
                continue
            is_folder = stat.S_ISDIR(mode) or (stat.S_ISLNK(mode) and search.enters(real))
            names = [child.name for child in real.iterdir()] if is_folder else []
        except OSError as error:
            reason = f"it cannot be looked into: {error.strerror or error}"
            yield SkippedFile(path, source, reason, failed=True)
            continue
        if parts and ((_ENVIRONMENT in names and not search.hidden) or _COLLECTION.issubset(names)):
            continue
        pending += [(*parts, name) for name in sorted(names, key=os.fsencode, reverse=True)]
        if is_folder or real in search.given:
            continue
        leads_to_folder = stat.S_ISLNK(mode) and os.path.isdir(real)  # noqa: PTH112 - never raises
        if leads_to_folder or search.wants(parts):
            yield _leaf(path, source, _why_not(real, mode, search))


def _leaf(path: Path, source: str, why_not: str | None) -> SourceFile | SkippedFile:
    return SkippedFile(path, source, why_not) if why_not else SourceFile(path, source)


def _why_not(real: Path, mode: int, search: _Search) -> str | None:
    """Say why something is not read; None where it is a file to read."""
    if not stat.S_ISLNK(mode):
        return kind_of(mode)
    try:
        target = real.resolve(strict=True)
        target_mode = target.stat().st_mode
    except (OSError, RuntimeError):  # a circle is a RuntimeError up to Python 3.12
        return "a link that leads nowhere"
    if target in search.followed:
        return f"a link to {target}, which is searched under another link's name"
    if not search.holds(target) and (not search.follow or stat.S_ISDIR(target_mode)):
        return f"a link to {target}, which is outside of what is to be read"
    if stat.S_ISDIR(target_mode):
        return f"a link to {target}, which is searched under its own name"
    return kind_of(target_mode)


def _uri(real: Path, base: Path) -> str:
    return quote_from_bytes(os.fsencode(real.relative_to(base).as_posix()))


def _nothing_found(
    roots: Sequence[_Root],
    search: _Search,
    include: Sequence[str],
    found: Sequence[SourceFile | SkippedFile],
) -> str:
    where = ", ".join(str(root.given) for root in roots)
    what = " ".join(f"*{suffix}" for suffix in search.suffixes[:_MOST_SUFFIXES])
    if len(search.suffixes) > _MOST_SUFFIXES:
        what += f" and {len(search.suffixes) - _MOST_SUFFIXES} more"
    if include:
        what += f" that match {' or '.join(include)}"
    skipped = [f" {file.path}: {file.reason}." for file in found if isinstance(file, SkippedFile)]
    more = [f" And {len(skipped) - _MOST_REASONS} more."] if len(skipped) > _MOST_REASONS else []
    return (
        f"there is nothing to read in {where}; looked for files of the kinds {what}. "
        "Name another folder or pattern, or a file by its own name, which is read whatever its "
        f"suffix.{''.join(skipped[:_MOST_REASONS] + more)}"
    )
