"""Second names for embedded collections, which lead from one to another in one step."""

import json
from pathlib import Path

from corral_sinks import SinkError
from corral_sinks._files import replace

__all__ = ["ALIASES", "Aliases", "folder_of"]

ALIASES = ".corral-aliases.json"


class Aliases:
    """The file that holds them: collections' names by alias.

    Args:
        root: the folder that holds the collections.
    """

    def __init__(self, root: Path) -> None:
        """Read nothing yet."""
        self._root = root
        self._file = root / ALIASES

    def read(self) -> dict[str, str]:
        """Give all of them.

        Raises:
            SinkError: the file is damaged.
        """
        try:
            held = json.loads(self._file.read_bytes())
            return {str(alias): str(name) for alias, name in held.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError) as error:
            raise SinkError(
                f"{self._file} says which folder each alias of a collection stands for, and cannot "
                f"be read: {error}. Delete it to use the collections under the folders' names."
            ) from error

    def write(self, aliases: dict[str, str]) -> None:
        """Replace them, in one step."""
        replace(self._file, json.dumps(aliases, indent=1).encode())

    def forget(self, name: str) -> None:
        """Take away what leads to a collection."""
        held = self.read()
        kept = {alias: to for alias, to in held.items() if to != name}
        if kept != held:
            self.write(kept)

    def resolve(self, name: str) -> str:
        """Give the name of the folder that a name leads to.

        A collection of that name comes first: it is being renamed, and has its alias already.
        """
        if (self._root / name).is_dir():
            return name
        return self.read().get(name, name)


def folder_of(root: Path, collection: str) -> str:
    """Name the folder of an embedded collection, which may be given by an alias."""
    return Aliases(root).resolve(collection)
