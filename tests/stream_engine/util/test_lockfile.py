"""Files that one process at a time holds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stream_engine.util import lockfile
from stream_engine.util.lockfile import Held, held


def test_a_held_file_is_refused_and_gone_after_a_clean_end(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with held(path):
        with pytest.raises(Held), held(path):
            pass
        assert path.exists()
        with pytest.raises(Held), held(path):  # who was refused has not removed it
            pass
    assert not path.exists()


def test_a_file_left_by_a_killed_process_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    path.touch()
    with held(path):
        pass
    assert not path.exists()


def test_a_file_that_its_holder_removed_meanwhile_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.lock"
    lock, removed = lockfile.fcntl.flock, []

    def flock(descriptor: int, operation: int) -> None:
        if not removed:  # between our open and our lock
            path.unlink()
            removed.append(descriptor)
        lock(descriptor, operation)

    monkeypatch.setattr(lockfile.fcntl, "flock", flock)
    with held(path):
        assert path.exists()
        assert len(os.listdir(tmp_path)) == 1
        with pytest.raises(Held), held(path):
            pass
