"""Requests of the API and the engine's replies."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from stream_engine.messages.bounds import (
    MAX_BARS,
    MAX_COUNTERS,
    MAX_ITEMS,
    MAX_PAGE,
    MAX_PARTITIONS,
    MAX_PATTERNS,
    Count,
    Finite,
    Gap,
    Id,
    Metrics,
    Name,
    Notice,
    NotNegative,
    OffsetBefore,
    PartitionName,
    PartitionNumber,
    PeerName,
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
    """One session, or up to ``limit`` of those in order behind the id ``after`` that ``pattern`` covers, and one
    of ``visible``; answered by ``Sessions``."""

    session: Id | None = None
    after: Name = ""
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = MAX_PAGE
    pattern: Id = "*"
    visible: Annotated[tuple[Id, ...], Meta(max_length=MAX_PATTERNS)] = ("*",)


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
    age_ms: Count | None
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

    id: Id
    state: Name
    data_version: Count | None
    tokens: Count
    kv_tokens: Count
    bars: Count
    last_event_time: Name | None
    offsets: Annotated[dict[PartitionName, OffsetBefore], Meta(max_length=1)]
    ready: bool
    ready_token: Name | None
    ready_gap: Gap | None
    standing_queries: Count
    swaps: Count
    last_bars: Annotated[tuple[Bar, ...], Meta(max_length=MAX_BARS)] = ()
    token_hash: Name = ""


class Sessions(msgspec.Struct, frozen=True, tag=True):
    """``next`` is the id behind which the list goes on, None at its end. A page may be short and not the last."""

    sessions: Annotated[tuple[SessionInfo, ...], Meta(max_length=MAX_PAGE)]
    next: Name | None = None


class Done(msgspec.Struct, frozen=True, tag=True):
    """An action with nothing to return was carried out."""

    detail: Text = ""


class ErrorReply(msgspec.Struct, frozen=True, tag=True):
    """A refused request: becomes the HTTP error of that status in the one documented shape."""

    status: Annotated[int, Meta(ge=400, le=599)]
    kind: Name
    message: Text
    param: Name | None = None
    code: Name | None = None
    retry_after_s: NotNegative | None = None


PartitionCounts = Annotated[dict[PartitionName, RecordCounts], Meta(max_length=MAX_PARTITIONS)]


class PartitionStatus(msgspec.Struct, frozen=True):
    """``applied`` is the next offset the engine expects to apply (last applied + 1)."""

    topic: Topic
    partition: PartitionNumber
    generation: Count
    state: Name
    applied: Count
    sessions: Count


class Status(msgspec.Struct, frozen=True, tag=True):
    """``counters`` and ``gauges`` are exported as metrics under their names, prefixed ``stream_engine_``;
    ``calibration`` is what ``GET /v1/calibration`` shows. ``degraded``: what is amiss while questions can still be
    answered; ``lag_stale``: some of ``lag`` is of before Kafka fell silent. ``records`` (by "topic/partition") and
    ``consumer_counters`` are by consumer, under names that last as long as its connection: consumers come and go,
    and a sum over those that are there would go down."""

    boot_id: Name
    model: Name
    ready: bool
    reasons: Annotated[tuple[Notice, ...], Meta(max_length=MAX_COUNTERS)]
    uptime_s: NotNegative
    oldest_work_s: NotNegative
    consumers: Count
    partitions: Annotated[tuple[PartitionStatus, ...], Meta(max_length=MAX_PARTITIONS)]
    lag: Annotated[dict[PartitionName, Count], Meta(max_length=MAX_ITEMS)]
    counters: Metrics
    gauges: Metrics
    calibration: CalibrationReport
    records: Annotated[dict[PeerName, PartitionCounts], Meta(max_length=MAX_COUNTERS)] = {}
    degraded: Annotated[tuple[Notice, ...], Meta(max_length=MAX_ITEMS)] = ()
    lag_stale: bool = False
    consumer_counters: Annotated[dict[PeerName, Metrics], Meta(max_length=MAX_COUNTERS)] = {}


class Snapshot(msgspec.Struct, frozen=True, tag=True):
    """``sequence`` is that of the last event included: newer events follow it."""

    sequence: Count
    answers: Annotated[tuple[AnswerChanged, ...], Meta(max_length=MAX_ITEMS)]
