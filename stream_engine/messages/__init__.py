"""Typed messages between the consumer, engine and API processes.

Every message is a tagged msgspec struct, so that one decoder per direction yields the right type or a
clear error. Times are integers: ``*_us`` microseconds and ``*_ms`` milliseconds since the Unix epoch.
"""

from __future__ import annotations

from stream_engine.messages.api import (
    Answer,
    Done,
    ErrorReply,
    OffsetBound,
    PartitionStatus,
    PathRequest,
    PathTaken,
    Query,
    SessionDelete,
    SessionInfo,
    Sessions,
    SessionsRequest,
    Snapshot,
    SnapshotRequest,
    Status,
    StatusRequest,
)
from stream_engine.messages.consumer import (
    Ack,
    AnswerGone,
    Asleep,
    Assign,
    Batch,
    ConsumerHello,
    ConsumerReport,
    Evaluations,
    EvaluationsWritten,
    PutToSleep,
    Refused,
    Restore,
    Revoke,
    Sleeper,
    Wake,
    Welcome,
)
from stream_engine.messages.events import (
    AnswerChanged,
    Committed,
    Event,
    EventEnvelope,
    NotEvaluated,
    RiskChanged,
)
from stream_engine.messages.records import (
    Bar,
    Record,
    RecordCounts,
    Rejected,
    Window,
    WindowBar,
    WindowUnits,
)
from stream_engine.messages.risk import (
    CalibrationFacts,
    CalibrationReport,
    Check,
    ClassRisk,
)
from stream_engine.messages.standing import (
    RegistryApplied,
    RegistryHello,
    RegistrySnapshot,
    StandingApply,
    StandingDelete,
    StandingPut,
    StandingQueries,
    StandingQuery,
    StandingRequest,
    StandingShown,
    StandingWrite,
)

ToEngine = (
    ConsumerHello
    | ConsumerReport
    | Assign
    | Revoke
    | Restore
    | Asleep
    | Batch
    | EvaluationsWritten
    | RegistryHello
    | RegistrySnapshot
    | StandingApply
    | Query
    | Check
    | SessionsRequest
    | SessionDelete
    | StandingPut
    | StandingRequest
    | StandingDelete
    | SnapshotRequest
    | StatusRequest
)
ToConsumer = Welcome | Ack | Evaluations | Refused | PutToSleep | Wake
ToRegistry = Welcome | StandingWrite | RegistryApplied
ToApi = Answer | Sessions | StandingQueries | Done | ErrorReply | Snapshot | Status
FromEngine = ToConsumer | ToRegistry | ToApi

__all__ = [
    "Ack",
    "Answer",
    "AnswerChanged",
    "AnswerGone",
    "Asleep",
    "Assign",
    "Bar",
    "Batch",
    "CalibrationFacts",
    "CalibrationReport",
    "Check",
    "ClassRisk",
    "Committed",
    "ConsumerHello",
    "ConsumerReport",
    "Done",
    "ErrorReply",
    "Evaluations",
    "EvaluationsWritten",
    "Event",
    "EventEnvelope",
    "FromEngine",
    "NotEvaluated",
    "OffsetBound",
    "PartitionStatus",
    "PathRequest",
    "PathTaken",
    "PutToSleep",
    "Query",
    "Record",
    "RecordCounts",
    "Refused",
    "RegistryApplied",
    "RegistryHello",
    "RegistrySnapshot",
    "Rejected",
    "Restore",
    "Revoke",
    "RiskChanged",
    "SessionDelete",
    "SessionInfo",
    "Sessions",
    "SessionsRequest",
    "Sleeper",
    "Snapshot",
    "SnapshotRequest",
    "StandingApply",
    "StandingDelete",
    "StandingPut",
    "StandingQueries",
    "StandingQuery",
    "StandingRequest",
    "StandingShown",
    "StandingWrite",
    "Status",
    "StatusRequest",
    "ToApi",
    "ToConsumer",
    "ToEngine",
    "ToRegistry",
    "Wake",
    "Welcome",
    "Window",
    "WindowBar",
    "WindowUnits",
]
