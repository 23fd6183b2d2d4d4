"""What a board gives to whoever asks: a ready distribution read while valid, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

from stream_engine.decision.gate import Gate
from stream_engine.decision.ready import Evidence, ReadyDistribution


class Miss(Enum):
    """Why a read found no slot that may be served."""

    NO_BOARD = "no_board"
    LAYOUT = "layout"
    """The file is not a board of this layout version."""
    LEASE = "lease"
    """The engine's heartbeat is older than the lease, or the board was closed."""
    ABSENT = "absent"
    FULL = "full"
    """Absent, and the board has no room: a larger board would have kept it."""
    INVALID = "invalid"
    """The session has moved on since the slot was written."""
    TORN = "torn"
    """The slot was being written at each of the three tries."""


@dataclass(frozen=True, slots=True)
class Policy:
    """By what an engine serves: its gate, and what its answers say of the model. ``profile_digest`` is of the
    profile that questions are routed by."""

    gate: Gate
    model: str
    profile_digest: str
    window_bars: int


@dataclass(frozen=True, slots=True)
class Reading:
    """A decision point read while valid. ``generation`` tells two states of one session apart."""

    ready: ReadyDistribution
    evidence: Evidence
    generation: int


R = TypeVar("R", bound=Reading)


class Board(Protocol[R]):
    """A place where ready distributions are read: shared memory, or the engine's own sessions."""

    def read(self, session_id: str, entry_key: str) -> R | Miss:
        """The valid distribution of (session, entry), the session's live state at some instant of this call."""
        ...

    def consume(self, reading: R) -> None:
        """A query routed to this distribution read it: a hit, whether or not the gate fires."""
        ...

    def topic(self, index: int) -> str | None:
        """The topic that an evidence's ``topic_index`` stands for; None for a pushed session."""
        ...

    def applied(self, topic_index: int, partition: int) -> int | None:
        """The next offset of a partition that will be applied; None where it is not owned here."""
        ...

    @property
    def policy(self) -> Policy | None:
        """None where no engine holds the board."""
        ...
