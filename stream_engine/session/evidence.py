"""The evidence of a session: what its slots on the board say about the state that they rest on."""

from __future__ import annotations

from stream_engine.decision.ready import Evidence, StateFlag
from stream_engine.session.session import Session, SessionState
from stream_engine.util.timestamps import NO_TIME


def evidence_of(session: Session, topic_index: int) -> Evidence:
    """What the board carries beside a ready distribution."""
    flags = StateFlag.NONE
    if session.answer_state is SessionState.WARMING_UP:
        flags |= StateFlag.WARMING_UP
    if session.incomplete:
        flags |= StateFlag.INCOMPLETE
    return Evidence(
        session_version=session.version,
        topic_index=topic_index,
        partition=session.source.partition if session.source else -1,
        offset=session.offset,
        event_time_us=NO_TIME if session.event_time_us is None else session.event_time_us,
        record_time_ms=session.timestamp_ms,
        bars=session.window,
        flags=flags,
    )
