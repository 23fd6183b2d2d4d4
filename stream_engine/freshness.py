"""Freshness bounds of a query: what a caller may demand of the state that answers it."""

from __future__ import annotations

from stream_engine.messages import Query


def unmet_bound(query: Query, *, version: int, applied: int | None, age_ms: int) -> str | None:
    """Which bound the state does not meet, said in words; None when it meets all.

    ``applied`` is the next offset to apply of the partition that ``min_offset`` names (None: not owned), so
    a bound on an offset is met once that offset itself is applied. ``age_ms`` counts from the Kafka time
    stamp of the newest applied record.
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
    if query.max_age_ms is not None and age_ms > query.max_age_ms:
        return f"the newest record is {age_ms} ms old, max_age_ms asks for {query.max_age_ms}"
    return None
