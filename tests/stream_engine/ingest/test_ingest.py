"""Records into sessions: redelivery, reassignment, revocation, acknowledgements that neither hurry nor hang."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from stream_engine.ingest import ingest
from stream_engine.messages import (
    Ack,
    Answer,
    AnswerChanged,
    Assign,
    Bar,
    Committed,
    FromEngine,
    Query,
    Record,
    Restore,
    Revoke,
    StandingPut,
)
from stream_engine.session.session import SessionState, Source
from tests.support.batches import batch_of

TOPIC = "market.bars"
TREND = "What is the trend?"


@pytest.fixture
def bench(make_bench: Callable[..., Any]) -> Any:
    made = make_bench()
    assert made.engine.assign(Assign(TOPIC, 0, 1, 0, 0))
    return made


def take(bench: Any, records: Sequence[Record], *, generation: int = 1, follows: int | None = None) -> None:
    first = records[0].offset - 1 if follows is None else follows
    message = batch_of(records, first, generation=generation)
    assert bench.engine.ingest.take(message) is None


def run(bench: Any) -> list[Ack]:
    bench.engine.run_until_idle()
    bench.engine.check_integrity()
    acks: list[Ack] = bench.engine.ingest.settle()
    return acks


def test_an_empty_batch_is_acknowledged_at_once(bench: Any) -> None:
    assert bench.engine.ingest.take(batch_of((), last=9, consumed=10)) is None
    (ack,) = bench.engine.ingest.settle()
    assert (ack.last, ack.floor, ack.applied, ack.duplicates) == (9, 10, 0, 0)


def test_a_record_without_bars_claims_its_key_and_opens_no_session(
    bench: Any, make_record: Callable[..., Record]
) -> None:
    assert bench.engine.assign(Assign("market.trades", 0, 2, 0, 0))
    trades = [Record("A", 0, 0, ())]
    assert (
        bench.engine.ingest.take(batch_of(trades, last=0, consumed=1, topic="market.trades", generation=2)) is None
    )
    assert [(ack.last, ack.applied) for ack in run(bench)] == [(0, 1)]
    assert "A" not in bench.engine.sessions
    take(bench, [make_record("A", 0), make_record("B", 1)])
    (ack,) = run(bench)
    assert [(rejection.offset, rejection.reason) for rejection in ack.rejected] == [(0, "second_source")]
    assert "is fed by market.trades/0" in ack.rejected[0].detail
    trades = [Record("B", 1, 0, ()), make_record("A", 2)]
    assert (
        bench.engine.ingest.take(batch_of(trades, 0, last=2, consumed=2, topic="market.trades", generation=2))
        is None
    )
    (ack,) = run(bench)
    assert [(rejection.offset, rejection.reason) for rejection in ack.rejected] == [(1, "second_source")]
    assert ack.applied == 1
    assert bench.engine.sessions["A"].source == Source("market.trades", 0)
    bench.engine.revoke(Revoke("market.trades", 0, 2))
    take(bench, [make_record("A", 2)])  # the claim went with its partition
    assert [ack.rejected for ack in run(bench)] == [()]


def test_refused_trades_are_told_again_however_the_next_consumer_polls_them(
    bench: Any, make_record: Callable[..., Record]
) -> None:
    """A claim stands at its poll's last trade of the key, an open bar that is shown as well."""
    topic = "market.trades"
    take(bench, [make_record("A", 0), make_record("B", 1)])
    run(bench)
    assert bench.engine.assign(Assign(topic, 0, 1, 0, 0))

    def told(generation: int, *records: Record) -> tuple[list[tuple[int, str]], int]:
        bench.engine.ingest.take(batch_of(records, last=6, consumed=7, topic=topic, generation=generation))
        (ack,) = run(bench)
        return [(rejection.offset, rejection.reason) for rejection in ack.rejected], ack.duplicates

    refused = [(4, "second_source"), (5, "second_source")]
    assert told(1, Record("C", 3, 0, ()), Record("A", 4, 0, ()), make_record("B", 5)) == (refused, 0)
    bench.engine.assign(Assign(topic, 0, 2, 0, 0))  # the consumer died with the letters unwritten
    again = [Record("C", 1, 0, ()), Record("A", 2, 0, ()), make_record("B", 3), Record("A", 4, 0, ())]
    assert told(2, *again) == ([(2, "second_source"), (3, "second_source"), (4, "second_source")], 1)
    bench.engine.assign(Assign(topic, 0, 3, 0, 7))  # they are written: a replay tells of nothing
    assert told(3, *again) == ([], 0)


def test_a_batch_is_acknowledged_when_all_its_sessions_are_done(
    make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = make_bench(step_tokens=40)
    bench.engine.assign(Assign(TOPIC, 0, 1, 0, 0))
    take(bench, [make_record(key, n, n) for n, key in enumerate("ABCABC")])
    steps = 0
    while not (acks := bench.engine.ingest.settle()):
        assert bench.engine.step()
        steps += 1
    assert steps > 1
    assert [(ack.last, ack.applied) for ack in acks] == [(5, 6)]


def test_late_records_are_rejected_and_settle(bench: Any, make_record: Callable[..., Record]) -> None:
    take(bench, [make_record("A", 0, index=10), make_record("A", 1, index=3), make_record("A", 2, index=11)])
    (ack,) = run(bench)
    assert [(rejection.offset, rejection.reason) for rejection in ack.rejected] == [(1, "late")]
    assert bench.engine.sessions["A"].version == 3


def test_one_record_of_many_late_bars_is_acknowledged_in_a_message_that_its_consumer_can_read(
    bench: Any, make_record: Callable[..., Record], make_bar: Callable[..., Bar]
) -> None:
    late = Record("A", 1, 1_001, tuple(make_bar(index) for index in range(3_000)))
    take(bench, [make_record("A", 0, index=4_000), late, make_record("A", 2, index=4_001)])
    (ack,) = run(bench)
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(ack), type=FromEngine)
    assert read == ack
    ((offset, reason, detail),) = [
        (rejection.offset, rejection.reason, rejection.detail) for rejection in ack.rejected
    ]
    assert (offset, reason) == (1, "late")
    assert detail.count("Z") == 10
    assert detail.endswith(" and 2990 others")


def test_windows_that_are_due_together_come_in_messages_of_a_bounded_size(
    make_bench: Callable[..., Any], make_record: Callable[..., Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(sessions=4)
    bench.engine.assign(Assign(TOPIC, 0, 1, 0, 0))
    keys = "ABCD"
    take(bench, [make_record(keys[n % 4], n, index=n // 4) for n in range(280)])
    (first,) = run(bench)
    assert sorted(window.session for window in first.windows) == list(keys)
    bench.engine.assign(Assign(TOPIC, 0, 2, 0, 280))  # whether they were written is not known: again
    monkeypatch.setattr(ingest, "ACK_BARS", 2 * len(first.windows[0].bars) - 1)
    told: list[list[str]] = []
    for last in range(280, 283):
        batch = batch_of((make_record("A", last, index=last),), last - 1 if told else -1, last=last, generation=2)
        assert bench.engine.ingest.take(batch) is None
        (ack,) = run(bench)
        told.append([window.session for window in ack.windows])
        held = [bench.engine.sessions[name] for name in keys if bench.engine.sessions[name].window_due]
        assert all(session.floor is None or ack.floor <= session.floor for session in held)
    assert told == [["A", "B"], ["C", "D"], []]


def test_a_session_that_lives_again_is_written_after_its_deletion(
    bench: Any, make_record: Callable[..., Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    take(bench, [make_record("AB"[n % 2], n, index=n // 2) for n in range(140)])
    run(bench)
    monkeypatch.setattr(ingest, "ACK_WINDOWS", 1)
    for name in "BA":
        bench.engine.drop_session(bench.engine.sessions[name])
    told: list[tuple[str, bool]] = []
    follows = 139
    for n in range(3):
        take(
            bench, [make_record("A", follows + 1 + i, index=100 + 70 * n + i) for i in range(70)], follows=follows
        )
        follows += 70
        (ack,) = run(bench)
        told += [(window.session, bool(window.bars)) for window in ack.windows]
    assert told == [("B", False), ("A", False), ("A", True)]


def test_a_session_that_waits_to_go_live_survives_a_reassignment(
    make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = make_bench()
    engine = bench.engine
    engine.assign(Assign(TOPIC, 0, 1, 0, 40))
    bench.claim(make_record("A", 0))
    take(bench, [make_record("A", offset) for offset in range(40)])
    assert [ack.last for ack in engine.ingest.settle()] == [39]
    assert engine.sessions["A"].state is SessionState.REBUILDING
    assert engine.assign(Assign(TOPIC, 0, 2, 30, 40))  # before the engine found the time
    take(bench, [make_record("A", offset) for offset in range(30, 40)], generation=2)
    assert [ack.last for ack in run(bench)] == [39]
    assert engine.sessions["A"].state is SessionState.LIVE
    assert isinstance(bench.ask("A", TREND), Answer)


def test_a_reassignment_in_the_middle_of_a_replay(
    make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = make_bench()
    engine = bench.engine
    records = [make_record("A", offset) for offset in range(60)]
    engine.assign(Assign(TOPIC, 0, 1, 0, 60))
    bench.claim(records[0])
    take(bench, records[:25])
    engine.ingest.settle()
    assert engine.assign(Assign(TOPIC, 0, 2, 10, 60))
    bench.claim(records[10], generation=2)
    take(bench, records[10:], generation=2)
    run(bench)
    session = engine.sessions["A"]
    assert session.state is SessionState.LIVE
    assert [stored.offset for stored in session.region.bars] == list(range(10, 60))
    assert bench.events == []


def test_what_another_engine_applied_is_replayed_without_events(
    bench: Any, make_record: Callable[..., Record]
) -> None:
    records = [make_record("A", offset) for offset in range(50)]
    take(bench, records[:35])
    run(bench)
    bench.events.clear()
    # The partition was elsewhere from 35 to 45, and its revocation got lost.
    assert bench.engine.assign(Assign(TOPIC, 0, 2, 0, 45))
    take(bench, records[:46], generation=2)
    run(bench)
    assert bench.engine.sessions["A"].version == 46
    assert [e.session_version for e in bench.events if isinstance(e, Committed)] == [46]  # the one live record


def test_a_record_redelivered_during_its_own_commit_settles_with_it(
    make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = make_bench(step_tokens=16)
    engine = bench.engine
    engine.assign(Assign(TOPIC, 0, 1, 0, 0))
    records = [make_record("A", offset) for offset in range(40)]
    take(bench, records)
    assert engine.step()
    assert engine.scheduler.commits["A"].started
    assert engine.assign(Assign(TOPIC, 0, 2, 0, 0))
    take(bench, records, generation=2)
    # A reader that sees the offset applied must find the slot of the commit, so neither moves before.
    assert engine.ingest.settle() == []
    assert engine.ingest.partitions.applied(0) == 0
    assert [ack.last for ack in run(bench)] == [39]
    assert engine.counters.bars_total == 40


def test_records_that_wait_for_a_step_come_again_after_a_reassignment(
    bench: Any, make_record: Callable[..., Record]
) -> None:
    take(bench, [make_record("A", 0), make_record("B", 1)])
    assert bench.engine.assign(Assign(TOPIC, 0, 2, 0, 0))
    assert not bench.engine.scheduler.busy
    take(bench, [make_record("A", 0), make_record("B", 1)], generation=2)
    assert [(ack.generation, ack.last, ack.applied) for ack in run(bench)] == [(2, 1, 2)]


def test_a_stale_assignment_says_so_and_changes_nothing(bench: Any, make_record: Callable[..., Record]) -> None:
    take(bench, [make_record("A", 0)])
    assert not bench.engine.assign(Assign(TOPIC, 0, 1, 0, 0))
    assert [ack.last for ack in run(bench)] == [0]


def test_revoking_while_commits_wait_leaves_nothing(
    make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = make_bench(step_tokens=16)
    engine = bench.engine
    engine.assign(Assign(TOPIC, 0, 1, 0, 0))
    engine.register(StandingPut("*", TREND))
    take(bench, [make_record(key, n, n) for n, key in enumerate("ABABABABABABABABABAB")])
    assert engine.step()
    engine.revoke(Revoke(TOPIC, 0, 1))
    assert engine.sessions == {}
    assert not engine.scheduler.busy
    assert engine.ingest.settle() == []
    assert not engine.step()
    assert engine.assign(Assign(TOPIC, 0, 2, 0, 0))
    take(bench, [make_record("A", 0)], generation=2)
    assert [ack.last for ack in run(bench)] == [0]


def test_a_late_revocation_of_an_older_owner_is_ignored(bench: Any, make_record: Callable[..., Record]) -> None:
    bench.engine.assign(Assign(TOPIC, 0, 5, 0, 0))
    take(bench, [make_record("A", 0)], generation=5)
    bench.engine.revoke(Revoke(TOPIC, 0, 4))
    assert [ack.last for ack in run(bench)] == [0]


def test_a_session_deleted_in_the_middle_of_its_commit(
    make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = make_bench(step_tokens=16)
    engine = bench.engine
    engine.assign(Assign(TOPIC, 0, 1, 0, 0))
    take(bench, [make_record("A", offset) for offset in range(30)])
    assert engine.step()
    take(bench, [make_record("A", 30)])
    engine.queries.ask(Query("A", TREND, path="full"), bench.replies.append)
    engine.drop_session(engine.sessions["A"])
    assert [ack.last for ack in engine.ingest.settle()] == [30]
    assert not engine.scheduler.busy
    take(bench, [make_record("A", 31)])
    assert [ack.last for ack in run(bench)] == [31]
    assert len(engine.sessions["A"].region) == 1


def test_live_records_behind_a_replay_are_reported(
    make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = make_bench()
    bench.engine.assign(Assign(TOPIC, 0, 1, 0, 40))
    take(bench, [make_record("A", offset) for offset in range(42)])
    run(bench)
    assert [e.session_version for e in bench.events if isinstance(e, Committed)] == [42]


def test_windows_are_handed_out_again_to_a_new_owner(bench: Any, make_record: Callable[..., Record]) -> None:
    take(bench, [make_record("A", offset) for offset in range(70)])
    (first,) = run(bench)
    assert [window.session for window in first.windows] == ["A"]
    # The consumer died before it wrote them: the next one starts where Kafka says.
    assert bench.engine.assign(Assign(TOPIC, 0, 2, 0, 0))
    take(bench, [make_record("A", offset) for offset in range(71)], generation=2)
    (again,) = run(bench)
    assert [window.session for window in again.windows] == ["A"]
    assert again.windows[0].offset == 70


def test_windows_of_an_older_generation_or_an_unowned_partition_restore_nothing(
    bench: Any, make_record: Callable[..., Record]
) -> None:
    take(bench, [make_record("A", offset) for offset in range(70)])
    windows = run(bench)[0].windows
    bench.engine.revoke(Revoke(TOPIC, 0, 1))
    bench.engine.ingest.restore(Restore(TOPIC, 0, 1, windows))
    assert bench.engine.sessions == {}
    bench.engine.assign(Assign(TOPIC, 0, 3, 70, 70))
    bench.engine.ingest.restore(Restore(TOPIC, 0, 2, windows))
    assert bench.engine.sessions == {}
    bench.engine.ingest.restore(Restore(TOPIC, 0, 3, windows))
    run(bench)
    assert bench.engine.sessions["A"].state is SessionState.LIVE
    assert bench.engine.sessions["A"].version == 70


def test_unit_breaking_and_corrected_records_keep_acknowledging(
    bench: Any, make_record: Callable[..., Record]
) -> None:
    bars = [(0, 0.0), (1, 1e308), (2, -1e308), (0, -37.63), (3, 5e-324), (1, 100.0), (3, 100.0)]
    for offset, (index, close) in enumerate(bars):
        take(bench, [make_record("CL=F", offset, index, close)])
        assert [ack.last for ack in run(bench)] == [offset]
    assert bench.engine.sessions["CL=F"].ready[""].gap == bench.expected("CL=F").gap


@pytest.mark.parametrize("key", ["^GSPC", "BTC/USD", "[x]?*", "EURUSD=X", "*", "日経", " "])
def test_any_key_is_a_session(key: str, bench: Any, make_record: Callable[..., Record]) -> None:
    bench.engine.register(StandingPut(key, TREND))
    take(bench, [make_record(key, offset) for offset in range(33)])
    run(bench)
    assert isinstance(bench.ask(key, TREND), Answer)
    assert {e.session for e in bench.events if isinstance(e, AnswerChanged)} == {key}


def test_nothing_is_kept_of_sessions_that_come_and_go(bench: Any, make_record: Callable[..., Record]) -> None:
    engine = bench.engine
    engine.register(StandingPut("*", TREND))
    for offset in range(50):
        take(bench, [make_record(f"s{offset}", offset)])
        run(bench)
        engine.drop_session(engine.sessions[f"s{offset}"])
    assert engine.ingest.partitions.all()[0].sessions == set()
    assert engine.budget.resident == ()
    assert engine.standing.answers(None, None) == ()
    assert not engine.scheduler.busy


def test_a_rejection_is_told_again_to_the_next_consumer(bench: Any, make_record: Callable[..., Record]) -> None:
    """The one before may have died with the dead letter in its hands."""
    late, foreign = make_record("A", 3, -9), make_record("B", 4)
    bench.engine.assign(Assign("market.trades", 0, 1, 0, 0))
    bench.engine.ingest.take(batch_of((make_record("B", 0),), last=0, topic="market.trades"))
    records = [*(make_record("A", offset) for offset in range(3)), late, foreign, make_record("A", 5)]
    take(bench, records)
    ack = next(ack for ack in run(bench) if ack.topic == TOPIC)
    told = [(3, "late"), (4, "second_source")]
    assert sorted((rejection.offset, rejection.reason) for rejection in ack.rejected) == told
    tokens = list(bench.engine.sessions["A"].tokens)

    bench.engine.assign(Assign(TOPIC, 0, 2, 0, 2))
    take(bench, records, generation=2)
    (ack,) = run(bench)
    assert sorted((rejection.offset, rejection.reason) for rejection in ack.rejected) == told
    assert (ack.applied, ack.duplicates, ack.late) == (0, 3, 0)  # and the foreign one, which is dead-lettered
    assert bench.engine.sessions["A"].tokens == tokens

    bench.engine.assign(Assign(TOPIC, 0, 3, 0, 4))  # the first one's letter was written
    take(bench, records, generation=3)
    (ack,) = run(bench)
    assert sorted((rejection.offset, rejection.reason) for rejection in ack.rejected) == told[1:]


def test_a_rejection_in_a_batch_that_was_never_acknowledged_is_told_again(
    bench: Any, make_record: Callable[..., Record]
) -> None:
    records = [*(make_record("A", offset) for offset in range(3)), make_record("A", 3, -9), make_record("A", 4)]
    take(bench, records)
    bench.engine.run_until_idle()  # and the consumer is gone before the acknowledgement
    bench.engine.assign(Assign(TOPIC, 0, 2, 0, 0))
    take(bench, records, generation=2)
    (ack,) = run(bench)
    assert sorted((rejection.offset, rejection.reason) for rejection in ack.rejected) == [(3, "late")]
    assert (ack.applied, ack.duplicates, ack.late) == (0, 5, 0)
