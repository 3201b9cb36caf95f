"""What .gitignore and .corralignore leave out, and patterns in their syntax."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pathspec import GitIgnoreSpec

from corral.errors import UsageError

__all__ = ["IgnoreFiles", "spec_of"]

_NAMES: Final = (".gitignore", ".corralignore")


def spec_of(patterns: Sequence[str], option: str) -> GitIgnoreSpec:
    """Read patterns, each a line as in a .gitignore.

    Raises:
        UsageError: one of them is none; names the option.
    """
    try:
        return GitIgnoreSpec.from_lines(patterns)
    except ValueError as error:
        raise UsageError(f"{option}: {error}; write patterns as in a .gitignore") from error


class IgnoreFiles:
    """The ignore files of the folders under a root, and above it up to the top of its repository.

    In one folder .corralignore comes behind .gitignore and may take back what that says; the
    nearest folder decides. What is in a folder that is left out is not looked at. A root is what
    the user named: where the files above it leave it out, they do not count.
    """

    def __init__(self, root: Path) -> None:
        """Look for the top of the repository that the root is in; the root itself where in none."""
        tops = (folder for folder in (root, *root.parents) if (folder / ".git").exists())
        self._top = next(tops, root)
        self._specs: dict[Path, GitIgnoreSpec | None] = {}
        if root != self._top and self.ignores(root, is_folder=True):
            self._top = root

    def ignores(self, path: Path, *, is_folder: bool) -> bool:
        """Whether a path under the root is left out; its folders are not."""
        for folder in path.parents:
            spec = self._spec(folder)
            if spec is not None:
                name = path.relative_to(folder).as_posix() + ("/" if is_folder else "")
                found = spec.check_file(name).include
                if found is not None:
                    return found
            if folder == self._top:
                break
        return False

    def _spec(self, folder: Path) -> GitIgnoreSpec | None:
        if folder not in self._specs:
            lines = [line for name in _NAMES for line in _lines(folder / name)]
            self._specs[folder] = spec_of(lines, f"the ignore files of {folder}") if lines else None
        return self._specs[folder]


def _lines(file: Path) -> list[str]:
    """Read an ignore file; one that cannot be read leaves nothing out."""
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
