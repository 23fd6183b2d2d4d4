"""Freshness: how old the state is that answers, and which bounds on it a caller may set."""

from __future__ import annotations

from stream_engine.messages import Query

NO_STAMP = -1
"""A record without a time stamp, as Kafka writes it."""
CLOCK_SKEW_MS = 1_000
"""How far ahead of this machine's clock a time stamp may be and still count as now: two clocks are never equal."""


def age_of(stamp_ms: int, now_ms: int) -> int | None:
    """Milliseconds since a record's Kafka time stamp. None where that cannot be known: there is no stamp, or it is
    ahead of the clock (a producer's clock that is wrong, or a stamp in another unit)."""
    if stamp_ms < 0 or stamp_ms > now_ms + CLOCK_SKEW_MS:
        return None
    return max(0, now_ms - stamp_ms)


def unmet_bound(query: Query, *, version: int, applied: int | None, age_ms: int | None) -> str | None:
    """Which bound the state does not meet, said in words; None when it meets all.

    ``applied`` is the next offset to apply of the partition that ``min_offset`` names (None: not owned), so
    a bound on an offset is met once that offset itself is applied. ``age_ms`` counts from the Kafka time
    stamp of the newest applied record; an unknown age (None) meets no bound.
    """
    if query.min_version is not None and version < query.min_version:
        return f"session_version is {version}, min_version asks for {query.min_version}"
    if query.min_offset is not None:
        bound = query.min_offset
        if applied is None:
            return f"partition {bound.partition} is not owned by this engine"
        if applied <= bound.offset:
            asked = f"min_offset asks for {bound.offset}"
            return f"partition {bound.partition} is applied up to offset {applied - 1}, {asked}"
    if query.max_age_ms is not None:
        asked = f"max_age_ms asks for {query.max_age_ms}"
        if age_ms is None:
            return (
                f"the age of the newest record is unknown, {asked}: it has no Kafka time stamp, or one ahead of "
                "the clock (check the producer's clock, and that it stamps in milliseconds)"
            )
        if age_ms > query.max_age_ms:
            return f"the newest record is {age_ms} ms old, {asked}"
    return None
