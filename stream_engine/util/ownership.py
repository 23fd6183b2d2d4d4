"""Whose a file is: what another user of the machine put in its place is not used.

Sockets, the ready board and lock files lie at places that can be guessed, some in folders where every user may
write. A file is taken where it is this user's or root's, or where it is shared with a group of this user and
closed to everybody else, as files in a volume that two containers share are.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

ADVICE = "remove it, or name another place (board.path, transport.engine, transport.events)"


class NotOurs(PermissionError):
    """A file belongs to another user, or is not of the kind that it should be; the message says what to do."""


def is_ours(status: os.stat_result) -> bool:
    """Whether what it is the status of may be used."""
    if status.st_uid in (os.getuid(), 0):
        return True
    groups = {os.getegid(), *os.getgroups()}
    return status.st_gid in groups and not status.st_mode & stat.S_IRWXO


def require_ours(path: Path, status: os.stat_result) -> None:
    """Raises NotOurs."""
    if not is_ours(status):
        raise NotOurs(errno.EPERM, f"it belongs to another user (uid {status.st_uid}): {ADVICE}", str(path))


def private_folder(path: Path) -> None:
    """A folder for this user only, made where it is absent. Raises NotOurs, also for what is no folder, a link to
    one among them, and OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotOurs(errno.ENOTDIR, f"it is no folder: {ADVICE}", str(path))
    require_ours(path, status)


def require_our_socket(path: Path) -> None:
    """Before anything is sent to whoever listens there. One that is absent is no fault: its folder is this user's.
    Raises NotOurs."""
    private_folder(path.parent)
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise NotOurs(errno.ENOTSOCK, f"it is no socket: {ADVICE}", str(path))
    require_ours(path, status)
