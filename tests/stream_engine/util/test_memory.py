"""Sizes of memory as people write them, and limits that a container sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_engine.util import memory
from stream_engine.util.memory import MemorySize, machine_memory, readable


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4GiB", 4 * 2**30),
        (" 500 MB ", 500_000_000),
        ("1.5kib", 1536),
        ("123", 123),
        ("12b", 12),
        ("25%", 250),
        ("100 %", 1000),
    ],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert MemorySize.parse(text).of(1000) == size


@pytest.mark.parametrize("text", ["", "0", "0%", "101%", "-1", "GiB", "4 pies", "1e9", "0.4", "nan", "4GiB or so"])
def test_what_is_no_size_is_refused_with_what_one_looks_like(text: str) -> None:
    with pytest.raises(ValueError, match="4GiB, 500MB or 25%"):
        MemorySize.parse(text)


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(memory, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "OWN_CGROUP", tmp_path / "own")
    (tmp_path / "cgroup").mkdir()
    return tmp_path


def limit(groups: Path, file: str, text: str) -> None:
    path = groups / "cgroup" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_control_groups_all_of_the_machine(groups: Path) -> None:
    assert machine_memory() > 2**26


def test_the_smallest_limit_of_the_groups_that_we_lie_in(groups: Path) -> None:
    (groups / "own").write_text("0::/pods/ours\n")
    limit(groups, "memory.max", "max")
    limit(groups, "pods/memory.max", "3000\n")
    limit(groups, "pods/ours/memory.max", "2000\n")
    limit(groups, "pods/theirs/memory.max", "1000\n")
    assert machine_memory() == 2000


def test_a_container_sees_its_own_group_at_the_root(groups: Path) -> None:
    limit(groups, "memory.max", "5000\n")
    assert machine_memory() == 5000


def test_control_groups_of_the_first_version(groups: Path) -> None:
    (groups / "own").write_text("7:cpu,memory:/docker/abc\n5:cpuset:/other\n")
    limit(groups, "memory/docker/abc/memory.limit_in_bytes", "4000")
    limit(groups, "memory/memory.limit_in_bytes", str(2**63 - 4096))
    assert machine_memory() == 4000


@pytest.mark.parametrize(("size", "text"), [(900, "900 bytes"), (2048, "2.0 KiB"), (4 * 2**30, "4.0 GiB")])
def test_sizes_are_written(size: int, text: str) -> None:
    assert readable(size) == text
