"""One partition's batches, credits, fencing and dead letters."""

from __future__ import annotations

import json

import pytest

from consumers.kafka.offsets import CommitPoint, RebuildPlan
from consumers.kafka.source import SourcePartition
from consumers.stream import PartitionStream, StreamState
from consumers.wire.open_bars import TradeBars
from consumers.wire.reasons import RawRecord
from consumers.wire.records import ParsedRecord, parse_items, parse_records
from consumers.wire.trades import TRADES
from stream_engine.messages import Ack, Assign, Rejected, Revoke, Window

GOOD = json.dumps({"t": 1_600_000_000, "o": 1, "h": 1, "l": 1, "c": 1}).encode()


def parsed(**values: bytes) -> list[ParsedRecord]:
    """``o5=GOOD`` is a record at offset 5."""
    return parse_records([RawRecord("bars", 0, int(o[1:]), 1_700_000_000_000, b"A", v) for o, v in values.items()])


def ack(stream: PartitionStream, last: int, *rejected: Rejected) -> Ack:
    return Ack(
        boot_id="boot",
        topic="bars",
        partition=0,
        generation=stream.generation,
        last=last,
        floor=last + 1,
        rejected=rejected,
    )


@pytest.fixture
def stream() -> PartitionStream:
    stream = PartitionStream(SourcePartition("bars", 0))
    assert stream.begin(RebuildPlan(3, 5), 9) == Assign("bars", 0, 9, 3, 5)
    return stream


def test_batches_chain_and_count_all_records(stream: PartitionStream) -> None:
    first, letters = stream.accept(parsed(o3=GOOD, o5=b"bad"))
    assert (first.follows, first.last, first.consumed, len(first.records)) == (2, 5, 2, 1)
    assert [letter.raw.offset for letter in letters] == [5]
    second, _ = stream.accept(parsed(o9=b"bad", o10=b"bad"))
    assert (second.follows, second.last, second.consumed, second.records) == (5, 10, 2, ())
    assert stream.records_in_flight == 4
    stream.acknowledge(ack(stream, 5))
    assert (stream.records_in_flight, stream.batches_in_flight) == (2, 1)


def test_a_replayed_bad_record_is_not_dead_lettered_again(stream: PartitionStream) -> None:
    _, letters = stream.accept(parsed(o3=b"bad", o4=b"bad", o5=b"bad"))
    assert [letter.raw.offset for letter in letters] == [5]


def test_rejected_records_hold_their_offset_until_confirmed(stream: PartitionStream) -> None:
    stream.accept(parsed(o4=GOOD, o5=GOOD, o6=GOOD))
    letters = stream.acknowledge(ack(stream, 6, Rejected(4, "late", "old"), Rejected(5, "late", "old")))
    assert [(letter.raw.offset, letter.reason, letter.value) for letter in letters] == [(5, "late", GOOD)]
    assert stream.commit_point == CommitPoint(5, 3)  # the floor of an acknowledgement comes with all of it
    assert stream.settled is not None
    stream.settled.release(5)
    assert stream.commit_point == CommitPoint(7, 7)


@pytest.mark.parametrize("offset", ["o2", "o3"])
def test_offsets_that_go_back_are_refused(stream: PartitionStream, offset: str) -> None:
    stream.accept(parsed(o3=GOOD))
    with pytest.raises(ValueError, match="after 3"):
        stream.accept(parsed(**{offset: GOOD}))


def test_a_replay_ends_at_live_from(stream: PartitionStream) -> None:
    assert stream.replaying
    stream.accept(parsed(o3=GOOD))
    assert stream.replaying
    batch = stream.finish_replay()
    assert (batch.follows, batch.last, batch.consumed) == (3, 4, 0)
    assert not stream.replaying


def test_a_reset_drops_what_is_in_flight_and_keeps_what_is_settled(stream: PartitionStream) -> None:
    stream.accept(parsed(o3=GOOD, o5=GOOD))
    stream.acknowledge(ack(stream, 5))
    stream.accept(parsed(o6=GOOD))
    stream.reset(now=100.0)
    assert stream.state is StreamState.WAITING
    assert stream.records_in_flight == 0
    assert stream.commit_point == CommitPoint(6, 6)
    assert stream.retry_at <= 100.0  # the first try is at once
    stream.begin(RebuildPlan(6, 6), 10)
    assert stream.last == 5
    assert stream.committed == 5  # what was settled and never committed is still to be committed


def test_a_chosen_start_is_committed_before_any_record() -> None:
    stream = PartitionStream(SourcePartition("bars", 0))
    assert stream.due_point is None
    stream.begin(RebuildPlan(5, 5, chosen=True), 9)
    assert stream.due_point == CommitPoint(5, 5)
    stream.committed = 5
    assert stream.due_point is None


def test_a_start_in_a_topic_made_anew_is_committed_below_what_was_committed() -> None:
    stream = PartitionStream(SourcePartition("bars", 0))
    stream.begin(RebuildPlan(500, 500), 9)
    assert stream.due_point is None
    stream.reset(now=0.0)
    stream.begin(RebuildPlan(120, 120, chosen=True), 10)
    assert stream.due_point == CommitPoint(120, 120)


def test_a_start_that_was_committed_is_not_committed_again(stream: PartitionStream) -> None:
    assert stream.due_point is None
    stream.accept(parsed(o5=GOOD))
    stream.acknowledge(ack(stream, 5))
    assert stream.due_point == CommitPoint(6, 6)


def test_resets_without_progress_wait_longer(stream: PartitionStream) -> None:
    waits = []
    for generation in range(10, 20):
        stream.reset(now=0.0)
        waits.append(stream.retry_at)
        stream.begin(RebuildPlan(3, 5), generation)
    assert waits == sorted(waits)
    assert waits[-1] == 5.0
    stream.accept(parsed(o3=GOOD))
    stream.acknowledge(ack(stream, 3))
    stream.reset(now=1000.0)
    assert stream.retry_at <= 1000.0


def test_a_revoked_stream_ends(stream: PartitionStream) -> None:
    assert stream.revoke() == Revoke("bars", 0, 9)
    with pytest.raises(RuntimeError, match="cannot become"):
        stream.begin(RebuildPlan(0, 0), 11)
    assert PartitionStream(SourcePartition("bars", 1)).revoke() is None  # the engine never heard of it


def test_live_records_are_counted_by_what_became_of_them(stream: PartitionStream) -> None:
    stream.accept(parsed(o3=GOOD, o4=b"bad", o5=GOOD, o6=b"bad", o7=GOOD, o8=GOOD, o9=GOOD, o10=GOOD))
    assert not stream.fates  # not before they are settled
    rejected = Rejected(8, "second_source", "fed by another"), Rejected(9, "late", "old")
    stream.acknowledge(
        Ack(
            boot_id="boot",
            topic="bars",
            partition=0,
            generation=9,
            last=10,
            floor=11,
            rejected=rejected,
            applied=2,
            duplicates=1,
            late=1,
        )
    )
    expected = {"consumed": 6, "applied": 2, "dead_lettered": 2, "duplicates": 1, "late": 1}
    assert {name: count for name, count in stream.fates.items() if count} == expected


START_S = 1_700_000_040  # a whole minute


def trades(bars: TradeBars, *prices: float | None, first: int = 5) -> list[ParsedRecord]:
    """Offsets from ``first`` on, one second apart; None is a record that cannot be read."""
    raws = [
        RawRecord("trades", 0, n, -1, b"A", b"bad" if price is None else b'{"t":%d,"p":%f}' % (START_S + n, price))
        for n, price in enumerate(prices, first)
    ]
    return bars.fold(parse_items(raws, TRADES))


def test_trades_share_the_fate_of_the_bar_that_they_went_into() -> None:
    bars = TradeBars(60, True, "start")
    stream = PartitionStream(SourcePartition("trades", 0))
    stream.begin(RebuildPlan(5, 5), 9, bars)
    batch, letters = stream.accept(trades(bars, 1.0, None, 2.0, 3.0))
    assert ([record.offset for record in batch.records], [letter.raw.offset for letter in letters]) == ([8], [6])
    rejected = (Rejected(8, "second_source", "fed by another"),)
    letters = stream.acknowledge(
        Ack(boot_id="boot", topic="trades", partition=0, generation=9, last=8, floor=9, rejected=rejected)
    )
    assert sorted(letter.raw.offset for letter in letters) == [5, 7, 8]
    assert stream.fates["consumed"] == stream.fates["dead_lettered"] == 4
    assert not stream.fates["applied"]
    assert stream.commit_point == CommitPoint(5, 5)


def test_trades_of_a_bar_that_would_be_refused_are_each_refused_before_it_closes() -> None:
    bars = TradeBars(60, False, "start")
    stream = PartitionStream(SourcePartition("trades", 0))
    stream.begin(RebuildPlan(5, 5), 9, bars)
    letters = []
    for last, prices in ((7, (1.0, 2.0, 3.0)), (8, (4.0,))):
        batch, _ = stream.accept(trades(bars, *prices, first=last + 1 - len(prices)))
        assert [(record.offset, record.bars) for record in batch.records] == [(last, ())]
        rejected = (Rejected(last, "second_source", "fed by bars"),)
        letters += stream.acknowledge(
            Ack(
                boot_id="boot",
                topic="trades",
                partition=0,
                generation=9,
                last=last,
                floor=last + 1,
                rejected=rejected,
            )
        )
    assert sorted(letter.raw.offset for letter in letters) == [5, 6, 7, 8]
    assert stream.fates["consumed"] == stream.fates["dead_lettered"] == 4
    assert not stream.fates["applied"]


def test_the_floor_includes_the_first_trade_of_an_open_bar() -> None:
    bars = TradeBars(60, False, "start")
    stream = PartitionStream(SourcePartition("trades", 0))
    stream.begin(RebuildPlan(5, 5), 9, bars)
    stream.accept(trades(bars, 1.0, 2.0, 3.0))
    stream.acknowledge(Ack(boot_id="boot", topic="trades", partition=0, generation=9, last=7, floor=8, applied=1))
    assert stream.commit_point == CommitPoint(8, 5)
    assert {name: count for name, count in stream.fates.items() if count} == {"consumed": 3, "applied": 3}


def test_windows_hold_the_commit_and_its_floor_until_they_are_confirmed(stream: PartitionStream) -> None:
    stream.accept(parsed(o3=GOOD, o5=GOOD, o6=GOOD))
    window = Window(session="A", offset=6, timestamp_ms=0, swaps=0, units=None, bars=())
    stream.acknowledge(
        Ack(
            boot_id="boot",
            topic="bars",
            partition=0,
            generation=9,
            last=6,
            floor=7,
            rejected=(),
            windows=(window, window),
        )
    )
    assert stream.settled is not None
    for _ in range(2):
        assert stream.commit_point == CommitPoint(6, 3)
        stream.settled.release(6)
    assert stream.commit_point == CommitPoint(7, 7)
