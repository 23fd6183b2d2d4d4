"""The engine and its board: what a reader in another process may see, mutation by mutation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_engine.board.reader import BoardReader, ReadySlot
from stream_engine.board.writer import BoardWriter
from stream_engine.decision.reading import Miss
from stream_engine.messages import Assign, Record
from stream_engine.session.token_hash import token_hash
from tests.support.batches import batch_of

TOPIC = "market.bars"


def commit(bench: Any, records: list[Record]) -> None:
    """One batch and the step that commits it, without idle time after it."""
    batch = batch_of(records, records[0].offset - 1)
    assert bench.engine.ingest.take(batch) is None
    assert bench.engine.step()
    bench.engine.ingest.settle()


@pytest.fixture
def start(
    make_bench: Callable[..., Any], make_record: Callable[..., Record], board: BoardWriter
) -> Callable[..., Any]:
    def make(keys: str = "A", **options: Any) -> Any:
        bench = make_bench(board=board, **options)
        bench.engine.assign(Assign(TOPIC, 0, 1, 0, 0))
        commit(
            bench,
            [make_record(key, number * 40 + n, n) for number, key in enumerate(keys) for n in range(40)],
        )
        bench.engine.run_until_idle()
        return bench

    return make


def test_fused_commits_swap_the_slot_in_one_write(
    start: Callable[..., Any], reader: BoardReader, make_record: Callable[..., Record]
) -> None:
    bench = start()
    before = reader.read("A", "")
    commit(bench, [make_record("A", 40)])
    after = reader.read("A", "")
    assert isinstance(before, ReadySlot)
    assert isinstance(after, ReadySlot)
    assert (before.evidence.session_version, after.evidence.session_version) == (40, 41)
    session = bench.engine.sessions["A"]
    assert after.token_hash == token_hash(session.tokens, bench.builder.generic_entry)
    assert (after.evidence.partition, after.evidence.offset) == (0, 40)
    assert reader.applied(0, 0) == 41
    assert reader.meta is not None
    assert reader.meta.topics == (TOPIC,)


def test_idle_commits_clear_the_slot_until_the_header_ran(
    start: Callable[..., Any], reader: BoardReader, make_record: Callable[..., Record]
) -> None:
    bench = start(preposition="idle")
    assert isinstance(reader.read("A", ""), ReadySlot)
    commit(bench, [make_record("A", 40)])
    assert reader.read("A", "") is Miss.INVALID
    bench.engine.run_until_idle()
    again = reader.read("A", "")
    assert isinstance(again, ReadySlot)
    assert again.evidence.session_version == 41


def test_an_evicted_session_is_served_until_its_next_change(
    start: Callable[..., Any], reader: BoardReader, make_record: Callable[..., Record]
) -> None:
    bench = start("ABC", sessions=2)
    assert bench.engine.budget.resident == ("A", "B")
    before = reader.read("A", "")
    bench.ask("C", "What is the trend?", path="full")
    assert bench.engine.budget.resident == ("B", "C")
    assert reader.read("A", "") == before
    for key in "BC":
        assert isinstance(reader.read(key, ""), ReadySlot)
    commit(bench, [make_record("A", 120, 40)])
    assert reader.read("A", "") is Miss.INVALID
    bench.engine.run_until_idle()
    after = reader.read("A", "")
    assert isinstance(after, ReadySlot)
    assert (after.evidence.session_version, after.ready.gap) == (121, bench.expected("A").gap)
    assert bench.engine.budget.resident == ("B", "C")


def test_deleted_sessions_and_queries_leave_no_slot(start: Callable[..., Any], reader: BoardReader) -> None:
    from stream_engine.messages import StandingPut

    bench = start()
    query = bench.engine.register(StandingPut("*", "What is the trend?"))
    bench.engine.run_until_idle()
    assert isinstance(reader.read("A", "What is the trend?"), ReadySlot)
    bench.engine.unregister(query.id)
    assert isinstance(reader.read("A", "What is the trend?"), Miss)
    assert isinstance(reader.read("A", ""), ReadySlot)
    bench.engine.drop_session(bench.engine.sessions["A"])
    assert isinstance(reader.read("A", ""), Miss)


def test_hits_and_waste_are_counted_once(
    start: Callable[..., Any], board: BoardWriter, reader: BoardReader, make_record: Callable[..., Record]
) -> None:
    bench = start()
    slot = reader.read("A", "")
    assert isinstance(slot, ReadySlot)
    reader.consume(slot)
    reader.consume(slot)
    bench.ask("A", "What is the trend?", path="fast")
    commit(bench, [make_record("A", 40)])
    commit(bench, [make_record("A", 41)])
    counters = board.counters()
    assert (counters.completed, counters.hits, counters.wasted) == (3, 1, 1)
