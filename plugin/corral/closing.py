"""Objects that hold a model or a store, and let go of it at the end of a `with` block."""

from abc import abstractmethod
from typing import Self

__all__ = ["Closing"]


class Closing:
    """Has `close`, and so is a context manager."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is held; closing twice is harmless."""

    def __enter__(self) -> Self:
        """Enter a block at whose end the object is closed."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()
