"""The engine's loop on a fake model: commits, riders, queries, swaps, budget, replays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stream_engine.messages import (
    Answer,
    Assign,
    Committed,
    ErrorReply,
    Query,
    Record,
    Refused,
    Revoke,
)
from stream_engine.session.session import SessionState
from tests.support.batches import batch_of

TOPIC = "market.bars"
TREND = "What is the trend?"


def test_a_commit_and_its_generic_header_are_one_step(
    fed: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = fed(bars=40)
    steps = len(bench.runner.steps)
    acks = bench.feed([make_record("AAPL", 40)], 39)
    assert len(bench.runner.steps) == steps + 1
    (segment,) = bench.runner.steps[-1]
    assert len(segment.append) == bench.builder.tokens_per_bar
    assert [len(branch.tokens) for branch in segment.branches] == [len(bench.builder.generic_entry)]
    assert [ack.last for ack in acks] == [40]
    session = bench.engine.sessions["AAPL"]
    assert session.version == 41
    assert session.ready[""].gap == bench.expected("AAPL").gap


def test_every_session_of_a_batch_shares_the_step(
    fed: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = fed(("A", "B", "C"), bars=40)
    steps = len(bench.runner.steps)
    bench.feed([make_record(key, 120 + n, 40) for n, key in enumerate("ABC")], 119)
    assert len(bench.runner.steps) == steps + 1
    assert len(bench.runner.steps[-1]) == 3


def test_waiting_records_of_one_key_become_one_commit(
    fed: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = fed(bars=40)
    before = bench.engine.counters.commits_total
    bench.feed([make_record("AAPL", offset) for offset in range(40, 45)], 39)
    assert bench.engine.counters.commits_total == before + 1
    assert [e.session_version for e in bench.events if isinstance(e, Committed)][-1] == 45


def test_swaps_keep_every_fill_exact(make_bench: Callable[..., Any], make_record: Callable[..., Record]) -> None:
    bench = make_bench()
    bench.engine.assign(Assign(TOPIC, 0, 1, 0, 0))
    fills = set()
    for offset in range(200):
        bench.feed([make_record("AAPL", offset)], offset - 1)
        session = bench.engine.sessions["AAPL"]
        fills.add(len(session.region))
        assert session.ready[""].gap == bench.expected("AAPL").gap
        base = bench.engine.budget.base_of("AAPL")
        assert bench.runner.cells[base : base + session.resident] == session.tokens
        expected = SessionState.WARMING_UP if offset < 31 else SessionState.LIVE
        assert session.state is (SessionState.FULL if session.region.full else expected)
    assert fills == set(range(1, 65))
    assert bench.engine.sessions["AAPL"].swaps == 5
    assert bench.engine.counters.swaps_prepared_total == 5


def test_a_swap_without_idle_time_happens_in_the_commit(
    make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = make_bench()
    bench.engine.assign(Assign(TOPIC, 0, 1, 0, 0))
    bench.feed([make_record("AAPL", offset) for offset in range(64)], -1, run=False)
    assert bench.engine.step()  # one step, so the second slab has had no turn
    bench.feed([make_record("AAPL", 64)], 63, run=False)
    assert bench.engine.step()
    session = bench.engine.sessions["AAPL"]
    assert len(session.region) == 33
    assert bench.engine.counters.swaps_prepared_total == 0
    assert session.ready[""].gap == bench.expected("AAPL").gap


def test_token_log_does_not_depend_on_how_records_were_grouped(
    make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    records = [make_record("AAPL", offset) for offset in range(150)]
    logs = []
    for size in (1, 7, 150):
        bench = make_bench()
        bench.engine.assign(Assign(TOPIC, 0, 1, 0, 0))
        for start in range(0, 150, size):
            bench.feed(records[start : start + size], start - 1)
        logs.append(bench.engine.sessions["AAPL"].tokens)
    assert logs[0] == logs[1] == logs[2]


def test_corrections_roll_back_and_older_bars_are_late(
    fed: Callable[..., Any], make_record: Callable[..., Record], make_bench: Callable[..., Any]
) -> None:
    bench = fed(bars=40)
    bench.feed([make_record("AAPL", 40, index=39, close=101.25)], 39)  # same time: replaced
    bench.feed([make_record("AAPL", 41, index=20, close=99.0)], 40)  # inside: rolled back, re-appended
    session = bench.engine.sessions["AAPL"]
    assert len(session.region) == 40
    assert session.region.bars[39].bar.close == 101.25
    assert session.region.bars[20].bar.close == 99.0
    assert session.ready[""].gap == bench.expected("AAPL").gap
    version = session.version
    acks = bench.feed([make_record("AAPL", 42, index=-5)], 41)
    assert [(r.offset, r.reason) for r in acks[0].rejected] == [(42, "late")]
    assert session.version == version


def test_idle_mode_runs_the_header_in_a_step_of_its_own(
    fed: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = fed(bars=40, preposition="idle")
    bench.feed([make_record("AAPL", 40)], 39, run=False)
    assert bench.engine.step()
    session = bench.engine.sessions["AAPL"]
    assert not bench.runner.steps[-1][0].branches
    assert session.ready == {}
    assert bench.engine.step()
    assert not bench.runner.steps[-1][0].append
    assert session.ready[""].gap == bench.expected("AAPL").gap


def test_off_mode_prepositions_nothing(fed: Callable[..., Any]) -> None:
    bench = fed(bars=40, preposition="off")
    assert bench.engine.counters.prepositions_total == 0
    answer = bench.ask("AAPL", TREND)
    assert isinstance(answer, Answer)
    assert answer.path == "cold"
    assert answer.gap == bench.expected("AAPL", TREND).gap


def test_a_waiting_query_goes_before_commits_and_riders(
    fed: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = fed(("A", "B"), bars=40, commit_every=4)
    bench.feed([make_record("B", 80, 40)], 79, run=False)
    bench.engine.queries.ask(Query("A", TREND, path="full"), bench.replies.append)
    assert bench.engine.step()
    assert len(bench.replies) == 1
    assert bench.engine.sessions["B"].version == 80  # B's last offset was 79: not committed yet
    assert bench.engine.step()
    assert bench.engine.sessions["B"].version == 81


def test_a_commit_joins_every_kth_query_step(fed: Callable[..., Any], make_record: Callable[..., Record]) -> None:
    bench = fed(("A", "B"), bars=40, commit_every=3)
    bench.feed([make_record("B", 80, 40)], 79, run=False)
    for step in range(3):
        bench.engine.queries.ask(Query("A", TREND, path="full"), bench.replies.append)
        assert bench.engine.step()
        assert bench.engine.sessions["B"].version == (81 if step == 2 else 80)


def test_five_sessions_on_cells_for_three(fed: Callable[..., Any], make_record: Callable[..., Record]) -> None:
    keys = ("A", "B", "C", "D", "E")
    bench = fed(keys, bars=40, sessions=3)
    engine = bench.engine
    assert set(engine.budget.resident) == {"A", "B", "C"}
    assert engine.sessions["E"].state is SessionState.EVICTED
    assert engine.sessions["E"].version == 200  # tokens only: the log goes on
    answer = bench.ask("E", TREND, path="full")  # rebuilt on demand, in the place of the least recently used
    assert isinstance(answer, Answer)
    assert answer.path == "cold"
    assert answer.gap == bench.expected("E", TREND).gap
    assert set(engine.budget.resident) == {"B", "C", "E"}
    assert engine.sessions["A"].state is SessionState.EVICTED
    assert engine.sessions["A"].ready[""].gap == bench.expected("A").gap  # nothing of it has changed
    assert engine.counters.evictions_total == 1
    bench.feed([make_record(key, 200 + n, 40) for n, key in enumerate(keys)], 199)
    for key in keys:
        assert engine.sessions[key].ready[""].gap == bench.expected(key).gap


def test_no_room_for_the_entry_is_a_counted_skip_and_a_cold_query(
    fed: Callable[..., Any], builder: Any, make_record: Callable[..., Record]
) -> None:
    full_region = len(fed(bars=64).engine.sessions["AAPL"].tokens)
    # Room for the header at 63 bars, for nothing at 64, and nobody lends any.
    bench = fed(bars=63, sessions=1, slab=full_region + 1, extents=0)
    session = bench.engine.sessions["AAPL"]
    assert session.ready
    assert bench.engine.counters.prepositions_skipped_total == 0
    bench.feed([make_record("AAPL", 63)], 62)
    assert bench.shape.headroom(len(session.tokens)) == 1 < len(builder.generic_entry)
    assert session.ready == {}
    assert bench.engine.counters.prepositions_skipped_total == 1
    refused = bench.ask("AAPL", TREND)
    assert isinstance(refused, ErrorReply)
    assert refused.code == "question_too_long"
    bench.feed([make_record("AAPL", 64)], 63)
    assert session.ready[""].gap == bench.expected("AAPL").gap


def test_what_has_no_room_in_the_slab_is_computed_in_borrowed_cells(
    fed: Callable[..., Any], builder: Any, make_record: Callable[..., Record]
) -> None:
    full_region = len(fed(bars=64).engine.sessions["AAPL"].tokens)
    bench = fed(bars=63, sessions=1, slab=full_region + 1, extents=1)
    session, budget = bench.engine.sessions["AAPL"], bench.engine.budget
    bench.feed([make_record("AAPL", 63)], 62)
    assert session.ready[""].gap == bench.expected("AAPL").gap
    assert bench.engine.counters.prepositions_skipped_total == 0
    borrowed = [segment for step in bench.runner.steps for segment in step if segment.borrowed is not None]
    assert {segment.borrowed.base for segment in borrowed} == {bench.shape.pool_base}
    for question in (TREND, "What is the momentum?", TREND):
        answer = bench.ask("AAPL", question, path="full")
        assert isinstance(answer, Answer)
        assert answer.gap == bench.expected("AAPL", question).gap
        assert session.resident == len(session.tokens) == full_region
    bench.engine.step()  # what was borrowed is given back before anything else
    assert (budget.lent_count, session.second) == (0, None)
    assert bench.engine.counters.swaps_unprepared_total == 1
    bench.feed([make_record("AAPL", 64)], 63)
    assert session.ready[""].gap == bench.expected("AAPL").gap
    bench.engine.check_integrity()


def test_replay_runs_no_model_and_emits_nothing_until_live(
    make_bench: Callable[..., Any], make_record: Callable[..., Record], fed: Callable[..., Any]
) -> None:
    bench = make_bench()
    bench.engine.assign(Assign(TOPIC, 0, 1, 0, 40))
    bench.claim(make_record("AAPL", 0))
    bench.feed([make_record("AAPL", offset) for offset in range(20)], -1)
    assert bench.runner.steps == []
    reply = bench.ask("AAPL", TREND)
    assert isinstance(reply, ErrorReply)
    assert (reply.status, reply.kind) == (503, "session_rebuilding")
    assert reply.retry_after_s
    bench.feed([make_record("AAPL", offset) for offset in range(20, 40)], 19)
    assert bench.events == []
    session = bench.engine.sessions["AAPL"]
    assert session.state is SessionState.LIVE
    assert session.tokens == fed(bars=40).engine.sessions["AAPL"].tokens
    assert session.version == 40
    assert session.ready[""].gap == bench.expected("AAPL").gap


def test_a_replay_brings_back_only_what_left_a_window(
    make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    """Else a key could come back as another source's, or after its deletion."""
    bench = make_bench()
    bench.engine.assign(Assign(TOPIC, 0, 1, 0, 20))
    bench.claim(make_record("MINE", 0))
    bench.feed([make_record("MINE" if offset % 2 == 0 else "REFUSED", offset) for offset in range(20)], -1)
    assert set(bench.engine.sessions) == {"MINE"}
    (ack,) = bench.feed([make_record("REFUSED", 20)], 19)  # a live record is another matter
    assert [window.session for window in ack.windows] == ["REFUSED"]


def test_batches_are_fenced_and_in_order(fed: Callable[..., Any], make_record: Callable[..., Record]) -> None:
    engine = fed(bars=40).engine
    record = make_record("AAPL", 50)

    def refusal(generation: int, follows: int, partition: int = 0) -> Refused | None:
        return engine.ingest.take(
            batch_of((record,), follows, last=50, partition=partition, generation=generation)
        )

    hole = refusal(1, 45)
    assert hole is not None
    assert hole.expected_follows == 39
    assert refusal(0, 39) is not None
    assert refusal(1, 39, partition=3) is not None
    assert refusal(1, 39) is None


def test_redelivered_records_are_duplicates(fed: Callable[..., Any], make_record: Callable[..., Record]) -> None:
    bench = fed(bars=40)
    tokens = list(bench.engine.sessions["AAPL"].tokens)
    bench.engine.assign(Assign(TOPIC, 0, 2, 30, 30))
    records = tuple(make_record("AAPL", offset) for offset in range(30, 40))
    assert bench.engine.ingest.take(batch_of(records, 29, last=39, consumed=10, generation=2)) is None
    bench.engine.run_until_idle()
    assert bench.engine.sessions["AAPL"].tokens == tokens
    assert bench.engine.counters.duplicates_total == 10
    assert [ack.last for ack in bench.engine.ingest.settle()] == [39]


def test_a_second_source_is_rejected_by_name(fed: Callable[..., Any], make_record: Callable[..., Record]) -> None:
    bench = fed(bars=40)
    bench.engine.assign(Assign("other.bars", 5, 1, 0, 0))
    batch = batch_of((make_record("AAPL", 0),), last=0, topic="other.bars", partition=5)
    assert bench.engine.ingest.take(batch) is None
    (ack,) = bench.engine.ingest.settle()
    assert [(r.offset, r.reason) for r in ack.rejected] == [(0, "second_source")]
    assert "market.bars/0" in ack.rejected[0].detail


def test_revoked_partitions_and_deleted_sessions_are_gone(
    fed: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = fed(("A", "B"), bars=40)
    engine = bench.engine
    bench.feed([make_record("A", 80, 40)], 79, run=False)
    engine.drop_session(engine.sessions["A"])
    assert [ack.last for ack in engine.ingest.settle()] == [80]  # its records are given up, not waited for
    reply = bench.ask("A", TREND)
    assert isinstance(reply, ErrorReply)
    assert reply.status == 404
    bench.feed([make_record("A", 81, 41)], 80)
    assert engine.sessions["A"].state is SessionState.WARMING_UP  # it lives again with its next record
    engine.revoke(Revoke(TOPIC, 0, 1))
    assert engine.sessions == {}
    assert engine.budget.resident == ()


def test_small_steps_cut_long_commits_and_answers_wait_for_them(
    fed: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = fed(bars=40, step_tokens=16)
    session = bench.engine.sessions["AAPL"]
    bench.feed([make_record("AAPL", offset) for offset in range(40, 60)], 39, run=False)
    assert bench.engine.step()
    assert not session.current
    bench.engine.queries.ask(Query("AAPL", TREND, path="full"), bench.replies.append)
    bench.engine.run_until_idle()
    (answer,) = bench.replies
    assert isinstance(answer, Answer)
    assert answer.session_version == 60
    assert answer.gap == bench.expected("AAPL", TREND).gap
    assert all(sum(segment.size for segment in step) <= 16 + 16 for step in bench.runner.steps)


def test_a_late_record_changes_nothing(fed: Callable[..., Any], make_record: Callable[..., Record]) -> None:
    bench = fed(bars=40)
    session = bench.engine.sessions["AAPL"]
    ready, events = dict(session.ready), len(bench.events)
    (ack,) = bench.feed([make_record("AAPL", 40, index=-5)], 39)
    assert [r.reason for r in ack.rejected] == ["late"]
    assert (session.ready, session.version, len(bench.events)) == (ready, 40, events)
    assert bench.engine.scheduler.commits == {}


def test_incomplete_until_the_window_is_from_behind_the_gap(
    make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = make_bench()
    bench.engine.assign(Assign(TOPIC, 0, 1, 100, 100, incomplete=True))
    for offset in range(100, 140):
        bench.feed([make_record("AAPL", offset)], offset - 1)
        assert bench.engine.sessions["AAPL"].incomplete is (offset < 131)
