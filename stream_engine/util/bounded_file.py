"""Files that somebody else may have written: read up to a size, so that none takes the memory."""

from __future__ import annotations

import errno
from pathlib import Path


def read_bounded(path: Path, limit: int) -> bytes:
    """The whole content. Raises OSError, also where there is more than ``limit`` bytes of it."""
    with path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"more than {limit} bytes", str(path))
    return content
