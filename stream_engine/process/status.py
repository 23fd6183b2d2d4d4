"""What the engine tells about itself: sessions, health, counters."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict

from stream_engine.decision.entry import GENERIC_KEY
from stream_engine.engine.engine import Engine
from stream_engine.messages import ConsumerReport, PartitionStatus, SessionInfo, Sessions, SessionsRequest, Status
from stream_engine.session.session import Session, SessionState
from stream_engine.session.token_hash import token_hash
from stream_engine.standing.covering import WILD, covers
from stream_engine.state.partitions import PartitionState
from stream_engine.state.scheduler import Lane
from stream_engine.util.skipped import MESSAGE_REASONS
from stream_engine.util.timestamps import event_time

LAST_BARS = 5
LOOKS_A_PAGE = 2_000
"""Ids that are held against patterns for one page: some 5 ms."""


def session_infos(engine: Engine, asked: SessionsRequest) -> Sessions:
    """A page of the sessions, by id. It looks at a bounded number of ids, whatever the patterns leave out."""
    beginning = asked.pattern.partition(WILD)[0] if WILD in asked.pattern else asked.pattern
    found: list[SessionInfo] = []
    looked, last = 0, asked.after
    for name in engine.sessions.behind(asked.after, beginning):
        if len(found) == asked.limit or looked == LOOKS_A_PAGE:
            return Sessions(tuple(found), last)
        last, looked = name, looked + 1
        if covers(asked.pattern, name) and any(covers(pattern, name) for pattern in asked.visible):
            found.append(_info(engine, engine.sessions[name]))
    return Sessions(tuple(found))


def session_info(engine: Engine, session: Session) -> Sessions:
    return Sessions((_info(engine, session),))


def sleeper_info(engine: Engine, session_id: str) -> Sessions | None:
    """What is known of a session that sleeps; None where none of that id does."""
    owned = engine.ingest.partitions.sleeping(session_id)
    if owned is None:
        return None
    version, source = owned.dormant[session_id].version, owned.source
    info = SessionInfo(
        id=session_id,
        state=SessionState.DORMANT.value,
        data_version=version,
        tokens=0,
        kv_tokens=0,
        bars=0,
        last_event_time=None,
        offsets={f"{source.topic}/{source.partition}": version - 1},
        ready=False,
        ready_token=None,
        ready_gap=None,
        standing_queries=len(engine.standing.matching(session_id)),
        swaps=0,
    )
    return Sessions((info,))


def status(
    engine: Engine,
    started: float,
    consumers: int,
    reports: Mapping[bytes, ConsumerReport],
    malformed: int,
    skipped: Mapping[str, int],
) -> Status:
    """Health and counters; ``skipped`` are the messages that were not taken, by reason, ``malformed`` ones too.

    Ready means: no work item is old, a consumer is heard of, every owned partition is live, and the last
    self-test passed; not "a forward ran recently", which fails overnight. Degraded means: what is known can be
    asked for, and nothing newer comes."""
    oldest = engine.scheduler.oldest_s()
    partitions = engine.ingest.partitions.all()
    lag = {partition: behind for report in reports.values() for partition, behind in report.lag.items()}
    unread = [
        name for owned in partitions if (name := f"{owned.source.topic}/{owned.source.partition}") not in lag
    ]
    replaying = sum(owned.state is PartitionState.REPLAYING for owned in partitions)
    reasons = [
        reason
        for applies, reason in (
            (oldest > engine.settings.stuck_after_s, f"the oldest work item has waited for {oldest:.1f} s"),
            (consumers == 0, "no consumer is heard of: start one with `stream-engine serve consumer`"),
            (consumers > 0 and not partitions, "no partition is assigned yet"),
            (bool(reports and unread), f"no consumer reads {', '.join(unread[:3])} at the moment"),
            (replaying > 0, f"{replaying} of {len(partitions)} partitions are being refilled from the log"),
            (engine.self_test_error is not None, f"the self-test failed: {engine.self_test_error}"),
        )
        if applies
    ]
    silent = [since for report in reports.values() if (since := report.kafka_silent_since_ms) is not None]
    degraded = tuple(
        f"broker_unreachable: a consumer has no answer from Kafka since {event_time(since * 1000)}"
        for since in sorted(silent)
    )
    stopped = {name: reason for report in reports.values() for name, reason in report.stopped.items()}
    degraded += tuple(f"partition_unreadable: {name} {reason}" for name, reason in sorted(stopped.items()))
    counters: dict[str, float] = asdict(engine.counters)
    counters["messages_malformed_total"] = malformed
    counters["messages_skipped_total"] = sum(skipped.values())
    counters |= {f"messages_skipped_{reason}_total": skipped.get(reason, 0) for reason in MESSAGE_REASONS}
    counters |= engine.publication.counters()
    return Status(
        boot_id=engine.boot_id,
        model=engine.builder.profile.name,
        ready=not reasons,
        reasons=tuple(reasons),
        uptime_s=time.monotonic() - started,
        oldest_work_s=oldest,
        consumers=consumers,
        partitions=tuple(
            PartitionStatus(
                topic=owned.source.topic,
                partition=owned.source.partition,
                generation=owned.generation,
                state=owned.state.value,
                applied=owned.applied,
                sessions=len(owned.sessions),
            )
            for owned in partitions
        ),
        lag=lag,
        counters=counters,
        gauges=_gauges(engine) | {"consumers_without_kafka": len(silent), "partitions_unreadable": len(stopped)},
        calibration=engine.verification.calibration(),
        records={identity.hex(): report.records for identity, report in reports.items()},
        degraded=degraded,
        lag_stale=bool(silent),
        consumer_counters={identity.hex(): report.counters for identity, report in reports.items()},
    )


def _gauges(engine: Engine) -> dict[str, float]:
    budget = engine.budget
    return {
        "sessions": len(engine.sessions),
        "sessions_dormant": engine.ingest.dormancy.count,
        "sessions_waking": engine.ingest.dormancy.waking,
        "sessions_resident": budget.resident_count,
        "sessions_fit": budget.shape.sessions,
        "cells_used": budget.cells_used,
        "cells_total": budget.shape.cells,
        "kv_bytes_used": budget.cells_used * budget.shape.cell_bytes,
        "kv_bytes_total": budget.shape.cells * budget.shape.cell_bytes,
        "extents_lent": budget.lent_count,
        "extents_total": budget.shape.extents,
        "standing_queries": engine.standing.count,
        "standing_sessions_waiting": engine.registration.waiting,
        "questions_promoted": engine.promoted.count,
        "queue_queries": engine.scheduler.query_count,
        "queue_queries_waiting": engine.queries.waiting,
        "queue_commits": len(engine.scheduler.commits),
        "queue_checks": engine.scheduler.check_count,
        **{f"queue_{lane.value}": engine.scheduler.waiting(lane) for lane in Lane},
    }


def _info(engine: Engine, session: Session) -> SessionInfo:
    ready = session.ready.get(GENERIC_KEY)
    source = session.source
    answer = engine.builder.answers.get(ready.top1) if ready else None
    return SessionInfo(
        id=session.id,
        state=session.state.value,
        data_version=None if session.state is SessionState.REBUILDING else session.version,
        tokens=len(session.tokens),
        kv_tokens=session.resident,
        bars=len(session.region),
        last_event_time=event_time(session.event_time_us),
        offsets={f"{source.topic}/{source.partition}": session.offset} if source else {},
        ready=ready is not None,
        ready_token=answer[1] if answer else None,
        ready_gap=ready.gap if ready else None,
        standing_queries=len(engine.standing.matching(session.id)),
        swaps=session.swaps,
        last_bars=tuple(stored.bar for stored in session.region.bars[-LAST_BARS:]),
        token_hash=f"{token_hash(session.tokens):016x}",
    )
