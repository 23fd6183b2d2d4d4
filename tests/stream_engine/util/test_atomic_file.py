"""A file or a folder appears whole, or what stood there stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stream_engine.util.atomic_file import draft_of, write_atomically


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for content in (b"old", b"new"):
        write_atomically(path, content)
        assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["state.json"]


def test_who_has_the_old_content_open_goes_on_with_it(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_atomically(path, b"old")
    with path.open("rb") as reader:
        write_atomically(path, b"longer than that")
        assert reader.read() == b"old"


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_the_mode_is_that_of_the_new_file(tmp_path: Path, mode: int) -> None:
    write_atomically(tmp_path / "state.json", b"", mode)
    assert (tmp_path / "state.json").stat().st_mode & 0o777 == mode & ~_umask()


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


@pytest.mark.parametrize("folder", [False, True])
def test_what_fails_half_way_leaves_the_old_and_no_draft(tmp_path: Path, folder: bool) -> None:
    path = tmp_path / "whole"
    if folder:
        path.mkdir()
        (path / "old").touch()
    else:
        path.write_bytes(b"old")

    def stop_half_way() -> None:
        with draft_of(path) as draft:
            if folder:
                draft.mkdir()
                (draft / "half").touch()
            else:
                draft.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop_half_way()
    assert os.listdir(tmp_path) == ["whole"]
    assert os.listdir(path) == ["old"] if folder else path.read_bytes() == b"old"


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "whole"
    for name in ("old", "new"):
        with draft_of(path) as draft:
            draft.mkdir()
            (draft / name).touch()
    assert os.listdir(path) == ["new"]
    assert os.listdir(tmp_path) == ["whole"]


def test_a_folder_that_takes_no_file_keeps_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="absent"):
        write_atomically(tmp_path / "absent" / "state.json", b"new")
    assert os.listdir(tmp_path) == []
