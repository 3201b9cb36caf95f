"""Call a reader so that nothing but our own errors comes out of it."""

from collections.abc import Iterator

from corral.errors import EmptyTextError, ReadError
from corral.readers.contract import RawFile, ReaderOptions
from corral.readers.registry import NamedReader
from corral.reading import refuse_long_lines
from corral_chunkers import Document

__all__ = ["documents"]


def documents(found: NamedReader, file: RawFile, options: ReaderOptions) -> Iterator[Document]:
    """Yield a file's documents.

    Raises:
        EmptyTextError: no document has any text.
        NotTextError: as the reader says, or a line is too long.
        ReadError: whatever else it raises, but MemoryError.
    """
    has_text = False
    try:
        for document in found.reader.read(file, options):
            refuse_long_lines(file.path, document.text)
            has_text = has_text or not (not document.text or document.text.isspace())
            yield document
    except (ReadError, MemoryError):
        raise
    except RecursionError as error:
        raise ReadError(f"{file.path} is nested too deeply to be read as {found.name}.") from error
    except Exception as error:  # a library's own errors are not to be listed
        reason = " ".join(str(error).split()) or "no reason is given"
        raise ReadError(
            f"{file.path} cannot be read as {found.name}: {type(error).__name__}: {reason}"
        ) from error
    if not has_text:
        what = "holds nothing but white space" if file.raw else "is empty"
        raise EmptyTextError(f"{file.path} {what}.")
