"""Read files of many formats: the contract, and one format a module.

A reader is found by name through the entry point group `corral.readers`; each entry is a callable
without arguments that gives a `Reader`. `corral.readers.files.Readers` reads with all of them.
"""

from corral.readers.contract import RawFile, Reader, ReaderFactory, ReaderOptions

__all__ = ["RawFile", "Reader", "ReaderFactory", "ReaderOptions"]
