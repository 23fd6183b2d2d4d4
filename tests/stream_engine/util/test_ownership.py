"""What another user has put where our files lie is not used."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stream_engine.util.lockfile import held
from stream_engine.util.ownership import NotOurs, is_ours, private_folder, require_our_socket
from stream_engine.util.places import default_run_dir
from tests.support.strangers_file import give_to_a_stranger

ME, MY_GROUP, OTHER = 1000, 100, 2000


@pytest.mark.parametrize(
    ("owner", "group", "mode", "taken"),
    [
        (ME, OTHER, 0o777, True),
        (0, 0, 0o755, True),
        (OTHER, MY_GROUP, 0o660, True),  # of a container beside ours, in a volume of both
        (OTHER, MY_GROUP, 0o664, False),
        (OTHER, MY_GROUP, 0o661, False),
        (OTHER, OTHER, 0o600, False),
        (OTHER, 0, 0o660, False),
    ],
)
def test_whose_a_file_is(owner: int, group: int, mode: int, taken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: ME)
    monkeypatch.setattr(os, "getegid", lambda: 7)
    monkeypatch.setattr(os, "getgroups", lambda: [MY_GROUP])
    status: Any = SimpleNamespace(st_uid=owner, st_gid=group, st_mode=stat.S_IFREG | mode)
    assert is_ours(status) is taken


def test_a_folder_is_made_for_this_user_only(tmp_path: Path) -> None:
    private_folder(tmp_path / "a" / "run")
    assert stat.S_IMODE((tmp_path / "a" / "run").stat().st_mode) == 0o700


def test_a_folder_that_a_stranger_made_first_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    give_to_a_stranger(tmp_path / "run", monkeypatch)
    with pytest.raises(NotOurs, match=r"belongs to another user.*name another place \(board.path"):
        require_our_socket(tmp_path / "run" / "engine.sock")


def test_a_link_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotOurs, match="no folder"):
        private_folder(tmp_path / "run")


def test_a_strangers_socket_hears_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        require_our_socket(path)
        folder_status = os.lstat(tmp_path)
        give_to_a_stranger(path, monkeypatch)
        if os.getuid() != 0:  # who has become another user has lost the folder as well
            monkeypatch.setattr(os, "getgroups", lambda: [folder_status.st_gid])
            tmp_path.chmod(0o770)
        with pytest.raises(NotOurs, match="another user"):
            require_our_socket(path)


def test_what_is_no_socket_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s").touch()
    with pytest.raises(NotOurs, match="no socket"):
        require_our_socket(tmp_path / "s")
    require_our_socket(tmp_path / "none")


def test_a_strangers_lock_is_not_taken_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    path.touch()
    give_to_a_stranger(path, monkeypatch)
    with pytest.raises(NotOurs), held(path):
        pass
    assert path.exists()


def test_a_lock_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"), held(tmp_path / "lock"):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_sockets_lie_in_the_systems_folder_of_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_run_dir() == tmp_path / "stream-engine"
    for unfit in ("", "relative", str(tmp_path / "none")):
        monkeypatch.setenv("XDG_RUNTIME_DIR", unfit)
        assert default_run_dir().name == f"stream-engine-{os.getuid()}"
