"""The errors that corral raises, and nothing else's.

    CorralError
    ├── UsageError              options that cannot go together, or a value out of range
    ├── ModelError              the model cannot be used
    │   ├── ModelNotFoundError  nothing is there under that name or path
    │   ├── GGUFError           the file is not a (whole, sane) GGUF
    │   └── PoolingError        the pooling type is unknown or does not fit the model
    ├── InputTooLongError       a text is longer than the model takes and the policy is "error"
    ├── EngineError             llama.cpp reported a failure, or gave a vector that is not one
    ├── CollectionError         the collection was made by other means than this run's
    ├── IncompleteRunError      a run began and ended before all was stored
    └── ReadError               a file could not be read as text
        ├── EmptyTextError      there is no text in it
        └── NotTextError        it is of another kind: binary, a folder, a FIFO, too large

Every message says what, got what, the limit and where it comes from, and the way out.
The packages corral_chunkers and corral_sinks have roots of their own (ChunkerError, SinkError),
since they do not know corral.
"""

__all__ = [
    "CollectionError",
    "CorralError",
    "EmptyTextError",
    "EngineError",
    "GGUFError",
    "IncompleteRunError",
    "InputTooLongError",
    "ModelError",
    "ModelNotFoundError",
    "NotTextError",
    "PoolingError",
    "ReadError",
    "UsageError",
]


class CorralError(Exception):
    """Root of all errors that corral raises on purpose."""


class UsageError(CorralError):
    """Options that cannot go together, or a value out of range."""


class ModelError(CorralError):
    """The model cannot be used."""


class ModelNotFoundError(ModelError):
    """Nothing is there under that name or path."""


class GGUFError(ModelError):
    """The file is not a GGUF, is not whole, or holds no usable model."""


class PoolingError(ModelError):
    """The pooling type is unknown, or does not fit the model."""


class InputTooLongError(CorralError):
    """A text is longer than the model takes, and the over-length policy is "error"."""


class EngineError(CorralError):
    """llama.cpp reported a failure, or gave a vector that is not one."""


class CollectionError(CorralError):
    """The collection was made with other settings than this run's."""


class IncompleteRunError(CorralError):
    """A run began and ended before all was stored; its cause says why."""


class ReadError(CorralError):
    """A file could not be read as text."""


class EmptyTextError(ReadError):
    """A file is empty, or holds nothing but white space."""


class NotTextError(ReadError):
    """What is there is no text that corral reads: a binary file, a FIFO, more than the limit."""
