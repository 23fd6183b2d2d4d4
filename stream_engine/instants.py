"""Instants as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(time_us: int) -> str:
    """Microseconds since the Unix epoch as RFC 3339 in UTC, without a fraction where that is zero."""
    return (_EPOCH + timedelta(microseconds=time_us)).isoformat().replace("+00:00", "Z")
