"""A file is read whole, or not at all where it is too large."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_engine.util.bounded_file import read_bounded


def test_up_to_the_limit_all_of_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(b"12345")
    assert read_bounded(path, 5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_bounded(path, 4)


def test_a_file_without_an_end_is_refused() -> None:
    with pytest.raises(OSError, match="more than 1000 bytes"):
        read_bounded(Path("/dev/zero"), 1000)
