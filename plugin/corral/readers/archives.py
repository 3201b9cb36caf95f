"""ZIP files that unpack to more than they may."""

import zipfile
from io import BytesIO
from typing import Final

from corral.errors import NotTextError
from corral.readers.contract import RawFile

__all__ = ["opened"]

_MOST_UNPACKED: Final = 512 * 2**20
_MOST_MEMBERS: Final = 20_000


def opened(file: RawFile) -> zipfile.ZipFile:
    """Open an office document or an e-book, which is a ZIP file.

    What the entries say is what is counted. One that says less than it unpacks to runs into the
    limit of memory of the process that reads.

    Raises:
        NotTextError: it is no ZIP file, or one that unpacks to too much.
    """
    try:
        archive = zipfile.ZipFile(BytesIO(file.raw))
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise NotTextError(f"{file.path} is not what its name says: {error}.") from error
    members = archive.infolist()
    n_bytes = sum(member.file_size for member in members)
    if n_bytes > _MOST_UNPACKED or len(members) > _MOST_MEMBERS:
        raise NotTextError(
            f"{file.path} unpacks to {n_bytes:,} bytes in {len(members):,} files; the limit is "
            f"{_MOST_UNPACKED:,} bytes in {_MOST_MEMBERS:,}, since a small file can be made to "
            "fill any memory. Take out what is not text, such as films."
        )
    return archive
