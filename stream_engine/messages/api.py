"""Requests of the API and the engine's replies."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from stream_engine.messages.bounds import (
    Count,
    Finite,
    Gap,
    Id,
    Name,
    NotNegative,
    OffsetBefore,
    PartitionNumber,
    Question,
    Share,
    Text,
    Topic,
)
from stream_engine.messages.events import AnswerChanged
from stream_engine.messages.records import Bar, RecordCounts
from stream_engine.messages.risk import CalibrationReport

PathRequest = Literal["auto", "fast", "full"]
PathTaken = Literal["fast", "fallthrough", "cold"]


class OffsetBound(msgspec.Struct, frozen=True, array_like=True):
    partition: Count
    offset: Count


class Query(msgspec.Struct, frozen=True, tag=True):
    """A question for one session. ``wait_ms`` is how long the engine may wait for the freshness bounds,
    ``patience_ms`` how long the asker waits for the reply, that included, None for ever: later nobody reads it."""

    session: Id
    question: Question
    path: PathRequest = "auto"
    max_age_ms: Count | None = None
    min_version: Count | None = None
    min_offset: OffsetBound | None = None
    wait_ms: Count = 0
    patience_ms: Count | None = None


class SessionsRequest(msgspec.Struct, frozen=True, tag=True):
    """All sessions, or one; answered by ``Sessions``."""

    session: Id | None = None


class SessionDelete(msgspec.Struct, frozen=True, tag=True):
    session: Id


class SnapshotRequest(msgspec.Struct, frozen=True, tag=True):
    """The newest standing-query answers, as of one instant; answered by ``Snapshot``."""

    session: Id | None = None
    query: Id | None = None


class StatusRequest(msgspec.Struct, frozen=True, tag=True):
    """Health and counters; answered by ``Status``."""


class Answer(msgspec.Struct, frozen=True, tag=True):
    """An answer with its evidence (field names are the HTTP API's).

    ``latency_us`` is filled in by the process that the caller talks to. ``gate`` is whether the gate
    fired (None on the full path); ``tau`` is None where no gate applies. ``confidence`` is the
    calibrated probability (0 to 1) of agreeing with the full path, None without a calibration; 1 where that is so
    by construction. ``age_ms`` is None where it cannot be known. ``routed_by`` is how the question came to its
    class: ``exact``, ``listed``, ``classifier`` or ``none``."""

    session: Id
    question: Question
    answer: Text
    class_: Name = msgspec.field(name="class")
    path: PathTaken
    gate: bool | None
    gap: Gap
    tau: Finite | None
    confidence: Share | None
    fast_set_mass: NotNegative
    session_version: Count
    topic: Topic | None
    partition: PartitionNumber | None
    offset: OffsetBefore | None
    event_time: Name | None
    age_ms: int | None
    latency_us: Count
    window_bars: Count
    bars: Count
    state: Name
    entry_tokens: Count
    reused_tokens: Count
    model: Name
    routed_by: Name = "none"


class SessionInfo(msgspec.Struct, frozen=True):
    """One session as ``GET /v1/sessions`` shows it. ``data_version`` is None while it is REBUILDING: it had a
    version that may be newer than what is refilled so far, and none goes back. ``offsets`` maps "topic/partition"
    to the last offset applied; ``ready`` is whether the generic header has a valid ready distribution;
    ``token_hash`` (16 hex digits) is of the token log, so that two engines, or one before and after a restart, can
    be compared."""

    id: str
    state: str
    data_version: int | None
    tokens: int
    kv_tokens: int
    bars: int
    last_event_time: str | None
    offsets: dict[str, int]
    ready: bool
    ready_token: str | None
    ready_gap: float | None
    standing_queries: int
    swaps: int
    last_bars: tuple[Bar, ...] = ()
    token_hash: str = ""


class Sessions(msgspec.Struct, frozen=True, tag=True):
    sessions: tuple[SessionInfo, ...]


class Done(msgspec.Struct, frozen=True, tag=True):
    """An action with nothing to return was carried out."""

    detail: str = ""


class ErrorReply(msgspec.Struct, frozen=True, tag=True):
    """A refused request: becomes the HTTP error of that status in the one documented shape."""

    status: Annotated[int, Meta(ge=400, le=599)]
    kind: Name
    message: Text
    param: Name | None = None
    code: Name | None = None
    retry_after_s: NotNegative | None = None


class PartitionStatus(msgspec.Struct, frozen=True):
    """``applied`` is the next offset the engine expects to apply (last applied + 1)."""

    topic: str
    partition: int
    generation: int
    state: str
    applied: int
    sessions: int


class Status(msgspec.Struct, frozen=True, tag=True):
    """``counters`` and ``gauges`` are exported as metrics under their names, prefixed ``stream_engine_``;
    ``calibration`` is what ``GET /v1/calibration`` shows. ``degraded``: what is amiss while questions can still be
    answered; ``lag_stale``: some of ``lag`` is of before Kafka fell silent. ``records`` (by "topic/partition") and
    ``consumer_counters`` are by consumer, under names that last as long as its connection: consumers come and go,
    and a sum over those that are there would go down."""

    boot_id: str
    model: str
    ready: bool
    reasons: tuple[str, ...]
    uptime_s: float
    oldest_work_s: float
    consumers: int
    partitions: tuple[PartitionStatus, ...]
    lag: dict[str, int]
    counters: dict[str, float]
    gauges: dict[str, float]
    calibration: CalibrationReport
    records: dict[str, dict[str, RecordCounts]] = {}
    degraded: tuple[str, ...] = ()
    lag_stale: bool = False
    consumer_counters: dict[str, dict[str, float]] = {}


class Snapshot(msgspec.Struct, frozen=True, tag=True):
    """``sequence`` is that of the last event included: newer events follow it."""

    sequence: Count
    answers: tuple[AnswerChanged, ...]
