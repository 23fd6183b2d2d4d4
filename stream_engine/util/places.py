"""Where this user's files lie unless a setting says otherwise."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def default_run_dir() -> Path:
    """For sockets and signs of life, which end with the machine's uptime: in the folder that the system keeps for
    this user alone, where it does."""
    kept = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    if kept.is_absolute() and kept.is_dir() and kept.stat().st_uid == os.getuid():
        return kept / "stream-engine"
    return Path(tempfile.gettempdir()) / f"stream-engine-{os.getuid()}"


def default_state_dir() -> Path:
    """For what must outlive a restart of the machine, which empties the folder for temporary files."""
    chosen = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        # A relative one is to be ignored, says the XDG base directory specification.
        folder = chosen if chosen.is_absolute() else Path("~/.local/state").expanduser()
        return folder / "stream-engine"
    except RuntimeError:  # an account without a home
        return default_run_dir()


def default_board() -> Path:
    """The ready board: in shared memory, where there is some."""
    shm = Path("/dev/shm")  # noqa: S108 - shared memory is the point
    folder = shm if shm.is_dir() and os.access(shm, os.W_OK) else default_run_dir()
    return folder / f"stream-engine-{os.getuid()}.board"
