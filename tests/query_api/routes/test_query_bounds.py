"""A query's freshness bounds, met or not, on the board and at the engine."""

from __future__ import annotations

import pytest

from stream_engine.messages import OffsetBound, Query
from tests.support.api_service import TREND


@pytest.mark.parametrize(
    ("bound", "there"),
    [
        ({"max_age_ms": 1000}, "ms old"),
        ({"min_version": 43}, "session_version is 42"),
        ({"min_offset": {"partition": 1, "offset": 50}}, "applied up to offset 49"),
        ({"min_offset": {"partition": 3, "offset": 0}}, "is not owned"),
    ],
)
def test_an_unmet_bound_is_409_that_says_what_is_there(service, bound, there):
    service.board.ready(version=42, age_ms=60_000)
    service.board.writer.set_applied(0, 1, 50)

    reply = service.ask(**bound)

    error = reply.json()["error"]
    assert reply.status_code == 409
    assert error["type"] == "freshness_not_met"
    assert there in error["message"]
    assert service.engine.of(Query) == []


@pytest.mark.parametrize("ahead_ms", [3_000_000, 10**15])
def test_a_stamp_ahead_of_the_clock_is_an_unknown_age_that_meets_no_bound(service, ahead_ms):
    service.board.ready(version=42, age_ms=-ahead_ms)

    reply = service.ask()
    assert (reply.json()["path"], reply.json()["age_ms"]) == ("fast", None)
    refused = service.ask(max_age_ms=2**63 - 1)
    assert refused.status_code == 409
    assert "unknown" in refused.json()["error"]["message"]
    service.board.ready(version=43, age_ms=1_000)
    assert service.ask(max_age_ms=60_000).json()["session_version"] == 43


@pytest.mark.parametrize(
    "bound", [{"max_age_ms": 120_000}, {"min_version": 42}, {"min_offset": {"partition": 1, "offset": 49}}]
)
def test_a_met_bound_keeps_the_fast_path(service, bound):
    """``min_offset`` is met by the partition, whose later records were other sessions'."""
    service.board.ready(version=42, age_ms=60_000)
    service.board.writer.set_applied(0, 1, 50)

    assert service.ask(**bound).json()["path"] == "fast"


def test_an_unmet_bound_with_wait_ms_waits_at_the_engine(engine_answers):
    engine_answers.board.ready(version=42)

    reply = engine_answers.ask(
        min_version=50, min_offset={"partition": 1, "offset": 60}, wait_ms=300, max_age_ms=5
    )

    assert reply.json()["path"] == "fallthrough"
    assert engine_answers.engine.of(Query) == [
        Query(
            "AAPL",
            TREND,
            max_age_ms=5,
            min_version=50,
            min_offset=OffsetBound(1, 60),
            wait_ms=300,
            patience_ms=5_300,
        )
    ]
