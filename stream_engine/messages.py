"""Typed messages between the consumer, engine and API processes.

Every message is a tagged msgspec struct, so that one decoder per direction yields the right type or a
clear error. Times are integers: ``*_us`` microseconds and ``*_ms`` milliseconds since the Unix epoch.
"""

from __future__ import annotations

from typing import Literal

import msgspec

PathRequest = Literal["auto", "fast", "full"]
PathTaken = Literal["fast", "fallthrough", "cold"]


class Bar(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One bar of market data. ``volume`` is NaN where the source has none."""

    time_us: int
    open: float
    high: float
    low: float
    close: float
    volume: float


class Record(msgspec.Struct, frozen=True, array_like=True):
    """The good bars of one Kafka record. ``timestamp_ms`` is the record's own Kafka time stamp."""

    key: str
    offset: int
    timestamp_ms: int
    bars: tuple[Bar, ...]


# --- consumer -> engine ------------------------------------------------------------------------------


class ConsumerHello(msgspec.Struct, frozen=True, tag=True):
    """First message of a consumer; answered by ``Welcome``."""

    topics: tuple[str, ...]


class RecordCounts(msgspec.Struct, frozen=True):
    """What became of a partition's live records, once acknowledged: ``consumed`` is the sum of the others. A
    record of several bars is ``applied`` if one of them is; bars are counted apart."""

    consumed: int = 0
    applied: int = 0
    dead_lettered: int = 0
    duplicates: int = 0
    late: int = 0


class ConsumerReport(msgspec.Struct, frozen=True, tag=True):
    """How the consumer is doing, about once a second: a sign of life, its lag by "topic/partition" (records in
    the log that the engine has not applied, so what is in flight is lag), and its counters for ``/metrics``."""

    lag: dict[str, int]
    counters: dict[str, float]
    records: dict[str, RecordCounts] = {}


class Assign(msgspec.Struct, frozen=True, tag=True):
    """A partition now belongs to this consumer. Records from ``start`` up to (not including)
    ``live_from`` are a replay: they refill windows without running the model and emit no events.
    ``generation`` grows with each assignment and fences what is still in flight from earlier ones.
    ``incomplete`` says that records which the windows need have aged out of the log."""

    topic: str
    partition: int
    generation: int
    start: int
    live_from: int
    incomplete: bool = False


class Revoke(msgspec.Struct, frozen=True, tag=True):
    """The partition was taken away: its sessions stop being served."""

    topic: str
    partition: int
    generation: int


class WindowBar(msgspec.Struct, frozen=True, array_like=True):
    """A bar of a window and the record that brought it."""

    bar: Bar
    offset: int
    timestamp_ms: int


class WindowUnits(msgspec.Struct, frozen=True, array_like=True):
    """A region's reference price and units, and how many bars they were fitted to."""

    bar_seconds: int | None
    reference: float
    unit: float
    volume_unit: float
    fitted_bars: int


class Window(msgspec.Struct, frozen=True):
    """A session's region as it stood after record ``offset``: with the records that follow, it reproduces the
    token log exactly. Kept in a compacted topic, so that a rebuild need not read the log from the region's
    first bar. Without bars it is a deletion."""

    session: str
    offset: int
    timestamp_ms: int
    swaps: int
    units: WindowUnits | None
    bars: tuple[WindowBar, ...]


class Restore(msgspec.Struct, frozen=True, tag=True):
    """Windows of a newly assigned partition; sent after ``Assign`` and before its first batch."""

    topic: str
    partition: int
    generation: int
    windows: tuple[Window, ...]


class Batch(msgspec.Struct, frozen=True, tag=True):
    """Consecutive records of one partition, ``(follows, last]`` in offsets.

    ``follows`` is the last offset of the previous batch (``start - 1`` for the first): an engine that has
    not taken that one refuses the batch, so a lost message is never a silent hole. Offsets inside may have
    gaps (transaction markers, compaction). ``records`` holds only the good ones; ``consumed`` counts all.
    """

    topic: str
    partition: int
    generation: int
    follows: int
    last: int
    consumed: int
    records: tuple[Record, ...]


class EvaluationsWritten(msgspec.Struct, frozen=True, tag=True):
    """The answers topic holds the ``Evaluations`` of the partition up to ``number``."""

    topic: str
    partition: int
    generation: int
    number: int


# --- registry of standing queries -> engine ----------------------------------------------------------


class RegistryHello(msgspec.Struct, frozen=True, tag=True):
    """First message of a registry and its sign of life; answered by ``Welcome``."""


class StandingApply(msgspec.Struct, frozen=True, tag=True):
    """A record of the standing-query topic; ``query`` None deletes. ``token`` is that of the ``StandingWrite``
    which made it, where one did. Answered by ``RegistryApplied``."""

    offset: int
    id: str
    query: StandingPut | None
    token: str | None = None


class RegistrySnapshot(msgspec.Struct, frozen=True, tag=True):
    """All standing queries up to ``offset`` of their topic, in its order, and what the answers topic says was
    answered last. Answered by ``RegistryApplied``; the partitions are assigned after that."""

    offset: int
    queries: tuple[StandingApply, ...]
    answers: tuple[AnswerChanged, ...]


# --- engine -> registry of standing queries ----------------------------------------------------------


class StandingWrite(msgspec.Struct, frozen=True, tag=True):
    """Write a standing query to its topic, a tombstone where ``query`` is None, with ``token`` in its headers."""

    token: str
    id: str
    query: StandingPut | None


class RegistryApplied(msgspec.Struct, frozen=True, tag=True):
    """Everything up to ``offset`` of the standing-query topic is applied, but for what was ``refused``;
    ``snapshot`` is whether this answers a ``RegistrySnapshot``."""

    boot_id: str
    offset: int
    snapshot: bool
    refused: tuple[Rejected, ...] = ()


# --- engine -> consumer ------------------------------------------------------------------------------


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """``boot_id`` names this life of the engine: on a new one a consumer treats all its partitions as
    newly assigned. ``credits`` is the number of records that may be in flight (unacknowledged)."""

    boot_id: str
    credits: int


class Ack(msgspec.Struct, frozen=True, tag=True):
    """Everything up to ``last`` is applied. ``floor`` is the oldest offset that any live window of the
    partition still needs: it goes into the offset commit's metadata and is where a rebuild starts.
    ``late`` and ``conflicts`` are records that the engine did not apply, with the reason, for the
    dead-letter topic; the consumer still holds their bytes until the acknowledgement. ``windows`` must be
    written before ``floor`` is committed: it counts on them. ``applied``, ``duplicates`` and ``late`` count the
    live records: each is one of them, rejected with another reason, or was not in the batch's ``records``."""

    boot_id: str
    topic: str
    partition: int
    generation: int
    last: int
    floor: int
    rejected: tuple[Rejected, ...] = ()
    windows: tuple[Window, ...] = ()
    applied: int = 0
    duplicates: int = 0
    late: int = 0


class Rejected(msgspec.Struct, frozen=True, array_like=True):
    """A record that the engine refused: ``reason`` is ``late`` or ``second_source``, of a standing query the code
    of the error that the API would answer with."""

    offset: int
    reason: str
    detail: str


class AnswerGone(msgspec.Struct, frozen=True, tag=True):
    """The query is deleted, or does not cover the session any more: so is its answer in the answers topic."""

    session: str
    query: str
    topic: str
    partition: int
    offset: int


class Evaluations(msgspec.Struct, frozen=True, tag=True):
    """Answers of standing queries for the answers topic, in order; sent before the ``Ack`` that covers them, whose
    offsets may be committed once they are written. ``number`` is that of the last one."""

    boot_id: str
    topic: str
    partition: int
    generation: int
    number: int
    answers: tuple[AnswerChanged | AnswerGone, ...]


class Refused(msgspec.Struct, frozen=True, tag=True):
    """A batch out of order or of a past generation; nothing of it was applied. ``expected_follows`` is
    the last offset the engine has taken (None where it does not own the partition): reassign."""

    boot_id: str
    topic: str
    partition: int
    generation: int
    expected_follows: int | None
    reason: str


# --- API -> engine -----------------------------------------------------------------------------------


class OffsetBound(msgspec.Struct, frozen=True, array_like=True):
    partition: int
    offset: int


class Query(msgspec.Struct, frozen=True, tag=True):
    """A question for one session. ``wait_ms`` is how long the engine may wait for the freshness bounds."""

    session: str
    question: str
    path: PathRequest = "auto"
    max_age_ms: int | None = None
    min_version: int | None = None
    min_offset: OffsetBound | None = None
    wait_ms: int = 0


class SessionsRequest(msgspec.Struct, frozen=True, tag=True):
    """All sessions, or one; answered by ``Sessions``."""

    session: str | None = None


class SessionDelete(msgspec.Struct, frozen=True, tag=True):
    session: str


class StandingPut(msgspec.Struct, frozen=True, tag=True):
    """Register a standing query; ``id`` None lets the engine choose. Answered by ``StandingQueries``
    with the one query, after it is applied."""

    pattern: str
    question: str
    on: Literal["change", "commit"] = "change"
    id: str | None = None


class StandingRequest(msgspec.Struct, frozen=True, tag=True):
    id: str | None = None


class StandingDelete(msgspec.Struct, frozen=True, tag=True):
    id: str


class SnapshotRequest(msgspec.Struct, frozen=True, tag=True):
    """The newest standing-query answers, as of one instant; answered by ``Snapshot``."""

    session: str | None = None
    query: str | None = None


class StatusRequest(msgspec.Struct, frozen=True, tag=True):
    """Health and counters; answered by ``Status``."""


# --- engine -> API -----------------------------------------------------------------------------------


class Answer(msgspec.Struct, frozen=True, tag=True):
    """An answer with its evidence (field names are the HTTP API's).

    ``latency_us`` is filled in by the process that the caller talks to. ``gate`` is whether the gate
    fired (None on the full path); ``tau`` and ``confidence`` are None where no gate applies."""

    session: str
    question: str
    answer: str
    class_: str = msgspec.field(name="class")
    path: PathTaken
    gate: bool | None
    gap: float
    tau: float | None
    confidence: float | None
    fast_set_mass: float
    session_version: int
    topic: str | None
    partition: int | None
    offset: int | None
    event_time: str | None
    age_ms: int
    latency_us: int
    window_bars: int
    bars: int
    state: str
    entry_tokens: int
    reused_tokens: int
    model: str


class SessionInfo(msgspec.Struct, frozen=True):
    """One session as ``GET /v1/sessions`` shows it. ``offsets`` maps "topic/partition" to the last offset
    applied; ``ready`` is whether the generic header has a valid ready distribution; ``token_hash`` (16 hex
    digits) is of the token log, so that two engines, or one before and after a restart, can be compared."""

    id: str
    state: str
    data_version: int
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


class StandingQuery(msgspec.Struct, frozen=True):
    """A registered question. ``session`` is a session id or a pattern such as ``EUR*`` or ``*``."""

    id: str
    session: str
    question: str
    on: Literal["change", "commit"]
    class_: str = msgspec.field(name="class")


class StandingQueries(msgspec.Struct, frozen=True, tag=True):
    queries: tuple[StandingQuery, ...]


class Done(msgspec.Struct, frozen=True, tag=True):
    """An action with nothing to return was carried out."""

    detail: str = ""


class ErrorReply(msgspec.Struct, frozen=True, tag=True):
    """A refused request: becomes the HTTP error of that status in the one documented shape."""

    status: int
    kind: str
    message: str
    param: str | None = None
    code: str | None = None
    retry_after_s: float | None = None


class PartitionStatus(msgspec.Struct, frozen=True):
    """``applied`` is the next offset the engine expects to apply (last applied + 1)."""

    topic: str
    partition: int
    generation: int
    state: str
    applied: int
    sessions: int


class Status(msgspec.Struct, frozen=True, tag=True):
    """``counters`` and ``gauges`` are exported as metrics under their names, prefixed ``stream_engine_``."""

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
    records: dict[str, RecordCounts] = {}


# --- events, engine -> everyone ----------------------------------------------------------------------


class Committed(msgspec.Struct, frozen=True, tag=True):
    """A session's version moved."""

    session: str
    session_version: int
    bars: int
    topic: str | None
    partition: int | None
    offset: int | None
    event_time: str | None


class AnswerChanged(msgspec.Struct, frozen=True, tag=True):
    """A standing query's answer changed (or, with ``on: commit``, was evaluated). ``initial`` marks a first
    evaluation; ``previous`` is then None."""

    session: str
    query: str
    question: str
    answer: str
    previous: str | None
    initial: bool
    class_: str = msgspec.field(name="class")
    gap: float
    confidence: float | None
    session_version: int
    topic: str | None
    partition: int | None
    offset: int | None
    event_time: str | None


class Snapshot(msgspec.Struct, frozen=True, tag=True):
    """``sequence`` is that of the last event included: newer events follow it."""

    sequence: int
    answers: tuple[AnswerChanged, ...]


ToEngine = (
    ConsumerHello
    | ConsumerReport
    | Assign
    | Revoke
    | Restore
    | Batch
    | EvaluationsWritten
    | RegistryHello
    | RegistrySnapshot
    | StandingApply
    | Query
    | SessionsRequest
    | SessionDelete
    | StandingPut
    | StandingRequest
    | StandingDelete
    | SnapshotRequest
    | StatusRequest
)
ToConsumer = Welcome | Ack | Evaluations | Refused
ToRegistry = Welcome | StandingWrite | RegistryApplied
ToApi = Answer | Sessions | StandingQueries | Done | ErrorReply | Snapshot | Status
Event = Committed | AnswerChanged
FromEngine = ToConsumer | ToRegistry | ToApi


class EventEnvelope(msgspec.Struct, frozen=True, array_like=True):
    """What the events socket carries: a sequence that grows by one per event within one boot."""

    boot_id: str
    sequence: int
    event: Event
