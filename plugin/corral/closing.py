"""Objects that hold a model or a store, and let go of it at the end of a `with` block."""

from abc import abstractmethod
from typing import NoReturn, Self

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

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled, which would copy addresses of this process's memory."""
        raise TypeError(
            f"a {type(self).__name__} holds what lives in this process alone and cannot be "
            "pickled or copied. Make one in each process, from the same arguments"
        )
