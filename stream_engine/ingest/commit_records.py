"""A commit's records into the token log of their session. Its live state moves only when the step has run."""

from __future__ import annotations

from stream_engine.messages import Rejected
from stream_engine.messages.counters import EngineCounters
from stream_engine.session.session import Session
from stream_engine.state.scheduler import CommitWork
from stream_engine.util.timestamps import rfc3339

NAMED_LATE_BARS = 10
"""Bars of one record that its rejection names: it may hold thousands, and a message's texts have a bound."""


def begin_commit(commit: CommitWork, session: Session, counters: EngineCounters) -> None:
    """The records that wait go into the log, all of them at once; bars that are too late are rejected."""
    resident, swaps, version = session.resident, session.swaps, session.version
    for record, batch in commit.begin():
        change = session.apply(record)
        if change.late:
            times = ", ".join(rfc3339(stored.bar.time_us) for stored in change.late[:NAMED_LATE_BARS])
            more = f" and {unnamed} others" if (unnamed := len(change.late) - NAMED_LATE_BARS) > 0 else ""
            detail = f"older than the region's first bar: bar time {times}{more}"
            batch.rejected.append(Rejected(record.offset, "late", detail))
            batch.late += len(change.late) == len(record.bars)
            counters.late_bars_total += len(change.late)
        counters.gaps_total += change.gaps
        counters.bars_total += len(record.bars) - len(change.late)
    counters.swaps_total += session.swaps - swaps
    commit.late_only = bool(commit.taken) and version == session.version and session.serving
    if not commit.late_only:
        session.invalidate()
    session.corrected(resident)
