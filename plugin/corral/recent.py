"""What was worked out of the last few documents, for the next chunk of one of them."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from corral_chunkers import Document

__all__ = ["Recent"]

T = TypeVar("T")

_KEPT: Final = 8
"""Documents: two batches are at work at once, and one may span some small documents."""


class Recent(Generic[T]):
    """Works a value out of a document once, as long as it is one of the last few asked for.

    Usable from many threads; two that ask for the same one at once may both work it out.

    Args:
        work_out: gives the value of a document.
    """

    def __init__(self, work_out: Callable[[Document], T]) -> None:
        """Begin with none."""
        self._work_out = work_out
        self._kept: OrderedDict[int, tuple[Document, T]] = OrderedDict()  # whose id is not reused
        self._lock = threading.Lock()

    def of(self, document: Document) -> T:
        """Return the document's value."""
        with self._lock:
            kept = self._kept.get(id(document))
        if kept is not None:
            return kept[1]
        value = self._work_out(document)
        with self._lock:
            self._kept[id(document)] = (document, value)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return value
