"""Which desk takes which message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stream_engine.messages import (
    Asleep,
    Assign,
    Batch,
    Check,
    ConsumerHello,
    ConsumerReport,
    EvaluationsWritten,
    Query,
    RegistryHello,
    RegistrySnapshot,
    Restore,
    Revoke,
    SessionDelete,
    SessionsRequest,
    SnapshotRequest,
    StandingApply,
    StandingDelete,
    StandingPut,
    StandingRequest,
    StatusRequest,
)
from stream_engine.messages.transport import Peer
from stream_engine.process.desks.api_desk import ApiDesk
from stream_engine.process.desks.consumer_desk import ConsumerDesk
from stream_engine.process.desks.partition_desk import PartitionDesk
from stream_engine.process.desks.standing_desk import StandingDesk

Handler = Callable[[Peer, Any], None]


def handlers(
    consumers: ConsumerDesk, partitions: PartitionDesk, standing: StandingDesk, api: ApiDesk
) -> dict[type, Handler]:
    """By the type of the message: all of ``ToEngine``."""
    return {
        ConsumerHello: consumers.greet,
        ConsumerReport: consumers.report,
        Assign: partitions.assign,
        Restore: partitions.restore,
        Asleep: partitions.asleep,
        Batch: partitions.take,
        Revoke: partitions.revoke,
        EvaluationsWritten: standing.written,
        RegistryHello: standing.greet,
        RegistrySnapshot: standing.replace,
        StandingApply: standing.apply,
        StandingPut: standing.put,
        StandingRequest: standing.list,
        StandingDelete: standing.delete,
        Query: api.query,
        Check: api.check,
        SessionsRequest: api.sessions,
        SessionDelete: api.delete_session,
        SnapshotRequest: api.snapshot,
        StatusRequest: api.status,
    }
