"""Instants as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

NO_TIME = -(2**63)
"""Stands for "no time" where a field holds an integer: no calendar has it."""


def rfc3339(time_us: int) -> str:
    """Microseconds since the Unix epoch as RFC 3339 in UTC, without a fraction where that is zero. What lies
    outside the years 1 to 9999 has no such form: it is shown as the number that it is."""
    return event_time(time_us) or f"{time_us} us since 1970"


def to_the_second(time_us: int) -> str:
    """The same, of the whole second that it lies in."""
    return event_time(time_us // 1_000_000 * 1_000_000) or rfc3339(time_us)


def event_time(time_us: int | None) -> str | None:
    """As ``rfc3339``; None for no time, and for one that RFC 3339 cannot write."""
    if time_us is None:
        return None
    try:
        return (_EPOCH + timedelta(microseconds=time_us)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return None
