"""A rebuild from windows and the records behind the floor ends in the very token logs of an uninterrupted run."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from stream_engine.messages import Ack, Assign, Record, Restore, Window
from tests.support.batches import batch_of

TOPIC = "market.bars"


class Log:
    """A partition and its compacted topic, fed to one engine after another."""

    def __init__(self, records: list[Record]) -> None:
        self.records = records
        self.windows: dict[str, Window] = {}
        self.floor, self.committed = 0, 0

    def start(self, bench: Any, generation: int) -> None:
        """Assign, restore, replay up to what was committed."""
        engine = bench.engine
        engine.assign(Assign(TOPIC, 0, generation, self.floor, self.committed))
        engine.ingest.restore(Restore(TOPIC, 0, generation, tuple(self.windows.values())))
        self.feed(bench, generation, self.floor, self.committed)

    def feed(self, bench: Any, generation: int, start: int, end: int) -> None:
        if start < end:
            batch = batch_of(
                self.records[start:end], start - 1, last=end - 1, consumed=end - start, generation=generation
            )
            assert bench.engine.ingest.take(batch) is None
        bench.engine.run_until_idle()
        for ack in bench.engine.ingest.settle():
            self.note(ack)

    def note(self, ack: Ack) -> None:
        for window in ack.windows:
            self.windows[window.session] = window
        self.floor, self.committed = ack.floor, max(self.committed, ack.last + 1)
        assert self.floor <= self.committed


@pytest.mark.parametrize("seed", range(8))
def test_token_logs_equal_an_uninterrupted_runs(
    seed: int, make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    chance = random.Random(seed)
    index = dict.fromkeys("ABCD", 0)
    records = []
    for offset in range(600):
        key = "D" if offset < 20 else chance.choice("AAAABBC")  # D is quiet from then on
        at = index[key]
        if at > 5 and chance.random() < 0.05:
            at -= chance.randint(1, 5)  # a correction
        else:
            index[key] += 1
        close = 100 + chance.gauss(0, 1) + (60 if chance.random() < 0.01 else 0)
        records.append(make_record(key, offset, at, close))

    straight = make_bench(sessions=4, quiet_records=100)
    whole = Log(records)
    whole.start(straight, 1)
    for offset in range(600):
        whole.feed(straight, 1, offset, offset + 1)

    killed = Log(records)
    generation, rebuilt = 0, 0
    bench: Any = None
    at = 0
    while at < 600:
        if bench is None or chance.random() < 0.08:  # SIGKILL: all of the engine's memory is gone
            generation += 1
            bench = make_bench(sessions=4, quiet_records=100)
            at = killed.committed
            rebuilt += killed.committed - killed.floor
            killed.start(bench, generation)
        step = min(600 - at, chance.randint(1, 9))
        killed.feed(bench, generation, at, at + step)
        at += step

    assert generation > 2
    for name, session in straight.engine.sessions.items():
        again = bench.engine.sessions[name]
        assert again.tokens == session.tokens
        assert (again.version, again.state, again.timestamp_ms) == (
            session.version,
            session.state,
            session.timestamp_ms,
        )
    # Neither the quiet session nor long regions make a rebuild read more than a few windows of records.
    assert rebuilt / generation < 250


def test_a_deleted_session_leaves_the_compacted_topic(
    make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    log = Log([make_record("A", offset) for offset in range(80)])
    bench = make_bench()
    log.start(bench, 1)
    log.feed(bench, 1, 0, 70)
    assert log.windows["A"].bars
    bench.engine.drop_session(bench.engine.sessions["A"])
    bench.engine.ingest.settle()
    log.feed(bench, 1, 70, 71)  # it lives again, with this record only
    assert [stored.offset for stored in bench.engine.sessions["A"].region.bars] == [70]
    assert len(log.windows["A"].bars) == 1
    bench.engine.drop_session(bench.engine.sessions["A"])
    assert bench.engine.ingest.partitions.all()[0].deleted == ["A"]


def test_windows_stay_when_the_partition_comes_back_after_another_engine_had_it(
    make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    log = Log([make_record("A", offset) for offset in range(120)])
    bench = make_bench()
    log.start(bench, 1)
    log.feed(bench, 1, 0, 100)
    window = log.windows["A"]
    other = make_bench()
    log.start(other, 2)
    log.feed(other, 2, 100, 110)
    log.start(bench, 3)  # without a revocation: that consumer was killed
    log.feed(bench, 3, 110, 111)
    assert log.windows["A"] == window  # its sessions were dropped, which deletes nothing
    log.feed(other, 2, 110, 111)
    assert bench.engine.sessions["A"].tokens == other.engine.sessions["A"].tokens


def test_every_live_record_is_counted_once(
    make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = make_bench()
    ingest = bench.engine.ingest

    def acknowledged(generation: int, follows: int, records: list[Record]) -> Ack:
        batch = batch_of(records, follows, generation=generation)
        assert ingest.take(batch) is None
        bench.engine.run_until_idle()
        (ack,) = ingest.settle()
        return ack

    ingest.assign(Assign(TOPIC, 0, 1, 0, 10))
    records = [make_record("A", offset) for offset in range(20)]
    ack = acknowledged(1, -1, records)
    assert (ack.applied, ack.duplicates, ack.late) == (10, 0, 0)  # the replayed ones were counted before
    half_late = make_record("A", 21, 20)
    half_late = Record("A", 21, half_late.timestamp_ms, (make_record("A", 0, -5).bars[0], *half_late.bars))
    ack = acknowledged(1, 19, [make_record("A", 20, -9), half_late])
    assert (ack.applied, ack.duplicates, ack.late) == (1, 0, 1)
    assert [rejected.offset for rejected in ack.rejected] == [20, 21]
    ingest.assign(Assign(TOPIC, 0, 2, 15, 18))
    ack = acknowledged(2, 14, [*records[15:], make_record("A", 22, 21)])
    assert (ack.applied, ack.duplicates, ack.late) == (1, 2, 0)


def test_a_window_from_before_a_gap_brings_no_version_back(
    make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    log = Log([make_record("A", offset) for offset in range(4)])
    bench = make_bench()
    log.start(bench, 1)
    log.feed(bench, 1, 0, 1)
    window = log.windows["A"]  # of offset 0; the records behind it age out
    again = make_bench()
    again.engine.assign(Assign(TOPIC, 0, 2, 4, 4, incomplete=True))
    again.engine.ingest.restore(Restore(TOPIC, 0, 2, (window,)))
    again.engine.run_until_idle()
    assert again.engine.sessions["A"].version == 4
    assert again.engine.sessions["A"].incomplete
