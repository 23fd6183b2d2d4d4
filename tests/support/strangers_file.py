"""Files that another user of the machine has made, whoever runs the tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

STRANGER = 65_534


def give_to_a_stranger(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``path`` belongs to another user from now on: root gives it away, anybody else becomes another one."""
    if os.getuid() == 0:
        os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "getuid", lambda: STRANGER)
        monkeypatch.setattr(os, "getegid", lambda: STRANGER)
        monkeypatch.setattr(os, "getgroups", lambda: [])
