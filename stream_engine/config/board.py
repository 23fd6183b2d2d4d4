"""Settings of the ready board."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from stream_engine.config.rules import SHOWN, require
from stream_engine.util.places import default_board


@dataclass(frozen=True, slots=True)
class BoardSettings:
    """The ready board: shared memory between the engine and the API workers."""

    path: Path = field(default_factory=default_board, metadata={SHOWN: "stream-engine-UID.board in /dev/shm"})
    """The file of the ready board: on a tmpfs that engine and API share."""
    slots: int = 0
    """Decision points; a full board is a counted miss. 0: four for each session that `engine.kv_memory` has room
    for, and at least 4096."""
    max_sessions: int = 0
    """Sessions on the board. 0: twice as many as `engine.kv_memory` has room for, and at least 4096."""
    lease_s: float = 2.0
    """Readers refuse every slot once the engine's heartbeat is older than this."""

    def __post_init__(self) -> None:
        require(self.slots >= 0, "board.slots", "zero or positive", self.slots)
        require(self.max_sessions >= 0, "board.max_sessions", "zero or positive", self.max_sessions)
        require(0 < self.lease_s <= 3600, "board.lease_s", "positive, at most an hour", self.lease_s)
