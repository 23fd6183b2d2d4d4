"""Settings of the signs of life that tell a hung process from a busy one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from stream_engine.config.rules import SHOWN, require
from stream_engine.util.places import default_run_dir


@dataclass(frozen=True, slots=True)
class LifeSettings:
    """Each process gives a sign of life from the loop that does its work; what is silent for too long is killed
    and started again by `serve`, and fails `stream-engine health live`."""

    folder: Path = field(default_factory=default_run_dir, metadata={SHOWN: "a folder of the user"})
    """Where the signs of life lie, a file a process. Private to a machine or a container."""
    hung_after_s: float = 30.0
    """Seconds without a sign of life after which a process is hung; more than the longest step of the model."""
    start_s: float = 600.0
    """Seconds that a process may take until its first one: loading a model is work, too."""

    def __post_init__(self) -> None:
        require(2 <= self.hung_after_s <= 3600, "life.hung_after_s", "2 to 3600", self.hung_after_s)
        require(self.start_s >= self.hung_after_s, "life.start_s", "at least life.hung_after_s", self.start_s)
        require(self.start_s <= 86_400, "life.start_s", "at most a day", self.start_s)
