"""Files that appear whole or not at all: made under another name beside their own, then renamed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """A free name beside ``path``, under which the block makes a file or a folder; it takes the place of ``path``
    after the block, and is gone where the block fails. Raises OSError."""
    draft = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        yield draft
        if draft.is_dir() and path.exists():
            shutil.rmtree(path)  # no system call replaces a folder that is not empty
        draft.replace(path)
    except BaseException:
        _remove(draft)
        raise


def write_atomically(path: Path, content: bytes, mode: int = 0o666) -> None:
    """A reader sees the old content or the new one, never a part, also where several processes write. ``mode`` is
    subject to the umask. Raises OSError; the old content then stands."""
    with draft_of(path) as draft:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)


def _remove(draft: Path) -> None:
    if draft.is_dir():
        shutil.rmtree(draft, ignore_errors=True)
    else:
        draft.unlink(missing_ok=True)
