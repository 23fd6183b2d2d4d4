"""What an acknowledgement costs: counted in sessions that are looked at, however many the partition has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_engine.messages import Assign, Record

TOPIC = "market.bars"


@pytest.mark.parametrize("count", [5, 400])
def test_an_acknowledgement_looks_at_the_session_that_has_changed(
    make_bench: Callable[..., Any], make_record: Callable[..., Record], count: int
) -> None:
    bench = make_bench(sessions=2, preposition="off", quiet_records=1_000_000)
    assert bench.engine.assign(Assign(TOPIC, 0, 1, 0, 0))
    bench.feed([make_record(f"S{number:04}", number) for number in range(count)], -1)
    (owned,) = bench.engine.ingest.partitions.all()
    for round_ in range(2):  # the first record behind its window is the one that a rebuild needs
        first = count * (1 + round_)
        records = [make_record(f"S{number:04}", first + number) for number in range(count)]
        (ack,) = bench.feed(records, first - 1)
        assert ack.floor == count
    before = owned.floors.looked
    (ack,) = bench.feed([make_record("S0001", 3 * count)], 3 * count - 1)
    assert (ack.floor, ack.windows) == (count, ())
    assert owned.floors.looked - before <= 3


def test_a_session_that_is_gone_holds_nothing_back(
    make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = make_bench(sessions=2, preposition="off", quiet_records=1_000_000)
    assert bench.engine.assign(Assign(TOPIC, 0, 1, 0, 0))
    bench.feed([make_record("A", 0), make_record("B", 1)], -1)
    (ack,) = bench.feed([make_record("A", 2), make_record("B", 3)], 1)
    assert ack.floor == 2
    bench.engine.drop_session(bench.engine.sessions["A"])
    (ack,) = bench.feed([make_record("B", 4)], 3)
    assert ack.floor == 3
    (ack,) = bench.feed([make_record("A", 5)], 4)
    assert [window.session for window in ack.windows][-1] == "A"
