"""The ready distribution: what is kept of the logits at a decision point, and the evidence beside it.

Shared by the engine (which makes it), the board (which carries it between processes) and the gate.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag

from stream_engine.model.forward.distribution import Distribution


class StateFlag(IntFlag):
    """What a reader must know about the session's state beyond its version."""

    NONE = 0
    WARMING_UP = 1
    """Fewer bars than the model was made for: no fast path."""
    INCOMPLETE = 2
    """The window could not be refilled completely (an aged-out offset)."""


@dataclass(frozen=True, slots=True)
class ReadyDistribution(Distribution):
    """The next-token distribution at decision point ``position`` (Eq. 1), reduced to what serving needs."""

    position: int

    @classmethod
    def at(cls, position: int, distribution: Distribution) -> ReadyDistribution:
        return cls(
            distribution.top1,
            distribution.top2,
            distribution.gap,
            distribution.top1_logit,
            distribution.log_partition,
            distribution.fast_set_mass,
            position,
        )


@dataclass(frozen=True, slots=True)
class Evidence:
    """The session state that a ready distribution was computed from.

    ``topic_index`` counts in the board's list of topics; it, ``partition`` and ``offset`` are -1 for a
    pushed session. ``event_time_us`` is the newest bar's time (``NO_TIME``: no bar) and ``record_time_ms`` the
    newest applied record's Kafka time stamp (-1: none), both since the Unix epoch; ``bars`` is the number of bars
    asked about.
    """

    session_version: int
    topic_index: int
    partition: int
    offset: int
    event_time_us: int
    record_time_ms: int
    bars: int
    flags: StateFlag = StateFlag.NONE
