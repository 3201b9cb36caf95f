"""The library of a format: imported when a file of it is read, or named where it is missing."""

from collections.abc import Iterator
from contextlib import contextmanager

from corral.errors import NotTextError

__all__ = ["library"]


@contextmanager
def library(package: str, path: str) -> Iterator[None]:
    """Import in the block what the extra `readers` brings.

    Args:
        package: that the block imports, by its name on the package index.
        path: of the file that wants it.

    Raises:
        NotTextError: it is not installed, or not whole.
    """
    try:
        yield
    except ImportError as error:
        raise NotTextError(
            f"{path} needs the package {package}, which cannot be imported ({error}): "
            "pip install 'corral[readers]'"
        ) from error
