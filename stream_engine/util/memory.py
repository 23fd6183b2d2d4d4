"""Sizes of memory: how they are written in settings, and how much of it this process may have."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*|%)", re.IGNORECASE)
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


@dataclass(frozen=True, slots=True)
class MemorySize:
    """So many bytes, or a share (0 to 1) of all that there is."""

    amount: float
    relative: bool = False

    @classmethod
    def parse(cls, text: str) -> MemorySize:
        """ "4GiB", "500 MB", "25%", a number of bytes. Raises ValueError."""
        found = SIZE.fullmatch(text.strip())
        number, unit = (float(found[1]), found[2].lower()) if found else (0.0, "")
        if unit == "%" and 0 < number <= 100:
            return cls(number / 100, relative=True)
        if unit not in UNITS or number * UNITS[unit] < 1:
            raise ValueError(f"{text!r} is no size of memory: write it as 4GiB, 500MB or 25%")
        return cls(number * UNITS[unit])

    def of(self, total: int) -> int:
        """In bytes, where there are ``total``."""
        return int(self.amount * total) if self.relative else int(self.amount)


def machine_memory() -> int:
    """Bytes that this process may use: the machine's, or less where its control group has a limit."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([physical, *_group_limits()])


def _group_limits() -> list[int]:
    limits: list[int] = []
    for file in _limit_files():
        try:
            text = file.read_text(encoding="ascii").strip()
        except OSError:
            continue  # no such group, or not for us to see
        if text.isdigit():  # else "max": none
            limits.append(int(text))
    return limits


def _limit_files() -> list[Path]:
    """Of both versions of control groups: our own group and those that it lies in."""
    files = [CGROUPS / "memory.max", CGROUPS / "memory" / "memory.limit_in_bytes"]
    try:
        lines = OWN_CGROUP.read_text(encoding="utf-8").splitlines()
    except OSError:
        return files
    for line in lines:
        _, kinds, place = line.split(":", 2)
        root, name = (CGROUPS, "memory.max") if not kinds else (CGROUPS / "memory", "memory.limit_in_bytes")
        if not kinds or "memory" in kinds.split(","):
            group = root / place.lstrip("/")
            files += [folder / name for folder in (group, *group.parents) if folder.is_relative_to(root)]
    return files


def readable(size: float) -> str:
    """ "3.9 GiB" """
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
