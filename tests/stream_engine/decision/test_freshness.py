"""Freshness bounds at their edges."""

from __future__ import annotations

import pytest

from stream_engine.decision.freshness import age_of, unmet_bound
from stream_engine.messages import OffsetBound, Query


def unmet(query: Query, *, version: int = 10, applied: int | None = 10, age_ms: int | None = 500) -> str | None:
    return unmet_bound(query, version=version, applied=applied, age_ms=age_ms)


def test_no_bound_is_always_met() -> None:
    assert unmet(Query("A", "?"), version=0, applied=None, age_ms=10**12) is None


@pytest.mark.parametrize(("bound", "met"), [(9, True), (10, True), (11, False), (0, True)])
def test_versions(bound: int, met: bool) -> None:
    assert (unmet(Query("A", "?", min_version=bound)) is None) is met


@pytest.mark.parametrize(("bound", "met"), [(8, True), (9, True), (10, False), (11, False)])
def test_an_offset_is_met_once_it_is_applied_itself(bound: int, met: bool) -> None:
    assert (unmet(Query("A", "?", min_offset=OffsetBound(2, bound)), applied=10) is None) is met


def test_an_unowned_partition_meets_no_offset() -> None:
    assert "partition 2 is not owned" in str(unmet(Query("A", "?", min_offset=OffsetBound(2, 0)), applied=None))


def test_nothing_applied_yet() -> None:
    reason = unmet(Query("A", "?", min_offset=OffsetBound(2, 0)), applied=0)
    assert reason is not None
    assert "partition 2" in reason
    assert "min_offset asks for 0" in reason


@pytest.mark.parametrize(("bound", "met"), [(499, False), (500, True), (0, False)])
def test_ages(bound: int, met: bool) -> None:
    assert (unmet(Query("A", "?", max_age_ms=bound)) is None) is met


@pytest.mark.parametrize(
    ("stamp_ms", "age_ms"),
    [
        (1_700_000_000_000, 0),
        (1_699_999_940_000, 60_000),
        (0, 1_700_000_000_000),
        (1_700_000_000_000 + 1_000, 0),
        (1_700_000_000_001 + 1_000, None),
        (1_700_003_000_000, None),
        (1_700_000_000_000_000, None),
        (2**63 - 1, None),
        (-1, None),
        (-(2**63), None),
    ],
)
def test_an_age_that_cannot_be_known_is_unknown(stamp_ms: int, age_ms: int | None) -> None:
    assert age_of(stamp_ms, 1_700_000_000_000) == age_ms


@pytest.mark.parametrize("bound", [0, 500, 2**63 - 1])
def test_an_unknown_age_meets_no_bound(bound: int) -> None:
    assert "unknown" in str(unmet(Query("A", "?", max_age_ms=bound), age_ms=None))
    assert unmet(Query("A", "?"), age_ms=None) is None


def test_every_bound_counts() -> None:
    query = Query("A", "?", max_age_ms=500, min_version=10, min_offset=OffsetBound(0, 9))
    assert unmet(query) is None
    assert "min_version" in str(unmet(query, version=9))
    assert "min_offset" in str(unmet(query, applied=9))
    assert "max_age_ms" in str(unmet(query, age_ms=501))
