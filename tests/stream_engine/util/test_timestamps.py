"""Instants as text, whatever number comes from outside."""

from __future__ import annotations

import pytest

from stream_engine.util.timestamps import NO_TIME, event_time, rfc3339, to_the_second


@pytest.mark.parametrize(
    ("time_us", "shown"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (253_402_300_799_999_999, "9999-12-31T23:59:59.999999Z"),
        (-62_135_596_800_000_000, "0001-01-01T00:00:00Z"),
    ],
)
def test_what_a_calendar_has(time_us: int, shown: str) -> None:
    assert event_time(time_us) == rfc3339(time_us) == shown


@pytest.mark.parametrize(
    "time_us", [253_402_300_800_000_000, -62_135_596_800_000_001, 2**63 - 1, NO_TIME, 10**30, -(10**30)]
)
def test_what_no_calendar_has_is_no_time(time_us: int) -> None:
    assert event_time(time_us) is None
    assert str(time_us) in rfc3339(time_us)


def test_no_time_is_none() -> None:
    assert event_time(None) is None


@pytest.mark.parametrize(
    ("time_us", "shown"),
    [(1_999_999, "1970-01-01T00:00:01Z"), (-1, "1969-12-31T23:59:59Z"), (NO_TIME, str(NO_TIME))],
)
def test_a_fraction_is_left_off(time_us: int, shown: str) -> None:
    assert shown in to_the_second(time_us)
