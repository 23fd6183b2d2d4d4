"""Standing queries with ``on: commit``: each commit is evaluated, in every mode, or it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_engine.messages import (
    AnswerChanged,
    Assign,
    Committed,
    NotEvaluated,
    Query,
    Record,
    StandingPut,
)
from stream_engine.model.render.builder import TokenBuilder
from tests.support.batches import batch_of

TOPIC = "market.bars"
TREND = "What is the trend?"
MOMENTUM = "What is the momentum?"
MODES = ("fused", "idle", "off")


class Stream:
    """Records of partition 0 with no idle time between them: another one is there before the last is committed."""

    def __init__(self, bench: Any, make_record: Callable[..., Record]) -> None:
        self.bench, self._make = bench, make_record
        self.offset = 0
        self._index: dict[str, int] = {}
        bench.engine.assign(Assign(TOPIC, 0, 1, 0, 0))

    def send(self, key: str, index: int | None = None, close: float | None = None) -> None:
        number = self._index.get(key, 0) if index is None else index
        self._index[key] = max(self._index.get(key, 0), number + 1)
        record = self._make(key, self.offset, number, close)
        batch = batch_of((record,), self.offset - 1, last=self.offset)
        assert self.bench.engine.ingest.take(batch) is None
        self.offset += 1

    def commit(self, *keys: str) -> None:
        """A bar of each, and steps until all of them are committed: not one more."""
        for key in keys:
            self.send(key)
        self.finish()

    def finish(self) -> None:
        while self.bench.engine.scheduler.commits:
            assert self.bench.engine.step(), "there is work, and the engine calls itself idle"
        self.bench.engine.check_integrity()
        self.bench.engine.ingest.settle()

    def of(self, kind: type[Any], query: str = "q") -> list[tuple[str, int]]:
        told = [event for event in self.bench.events if isinstance(event, kind)]
        return [(e.session, e.session_version) for e in told if isinstance(e, Committed) or e.query == query]


@pytest.fixture
def stream(make_bench: Callable[..., Any], make_record: Callable[..., Record]) -> Callable[..., Stream]:
    def make(*questions: str, bars: int = 40, keys: str = "A", **options: Any) -> Stream:
        found = Stream(make_bench(**options), make_record)
        for _ in range(bars):
            for key in keys:
                found.send(key)
        found.bench.engine.run_until_idle()
        for name, question in zip("qrs", questions or (TREND,), strict=False):
            assert not hasattr(found.bench.engine.register(StandingPut("*", question, "commit", name)), "status")
        found.bench.engine.run_until_idle()
        found.bench.events.clear()
        return found

    return make


@pytest.fixture
def slab(fed: Callable[..., Any], builder: TokenBuilder) -> Callable[[int], dict[str, int]]:
    """Slabs with so many cells for entries beside a full region, and a pool that has nothing to lend."""

    def make(beside: int) -> dict[str, int]:
        region = len(fed(("A",), bars=builder.profile.region_bars).engine.sessions["A"].tokens)
        return {"slab": region + beside, "extents": 0}

    return make


@pytest.mark.parametrize("mode", MODES)
def test_ten_commits_in_a_row_are_ten_evaluations(mode: str, stream: Callable[..., Stream]) -> None:
    found = stream(preposition=mode)
    for _ in range(10):
        found.commit("A")
        session = found.bench.engine.sessions["A"]
        assert session.ready[TREND].gap == found.bench.expected("A", TREND).gap
    assert found.of(AnswerChanged) == found.of(Committed) == [("A", 41 + n) for n in range(10)]
    assert found.of(NotEvaluated) == []


@pytest.mark.parametrize("mode", MODES)
def test_through_warm_up_swaps_and_corrections(mode: str, stream: Callable[..., Stream]) -> None:
    found = stream(bars=1, preposition=mode)
    for number in range(140):
        if number % 25 == 24:
            found.send("A", index=number - 10, close=101.5)  # rolled back to, inside the region
            found.finish()
        found.commit("A")
    assert found.bench.engine.sessions["A"].swaps >= 2
    assert found.of(AnswerChanged) == found.of(Committed)
    assert len(found.of(Committed)) == 145


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("step_tokens", [16, 512])
def test_with_fewer_cells_than_sessions(mode: str, step_tokens: int, stream: Callable[..., Stream]) -> None:
    found = stream(keys="ABCDE", sessions=2, preposition=mode, step_tokens=step_tokens)
    for _ in range(3):
        found.commit(*"ABCDE")
    assert sorted(found.of(AnswerChanged)) == sorted(found.of(Committed))
    assert len(found.of(Committed)) == 15


@pytest.mark.parametrize("mode", MODES)
def test_while_questions_wait_and_others_ride_late(mode: str, stream: Callable[..., Stream]) -> None:
    found = stream(keys="AB", preposition=mode, commit_every=2, max_deferrals=8)
    engine = found.bench.engine
    for _ in range(6):
        found.send("A")
        while engine.scheduler.commits:
            engine.queries.ask(Query("B", TREND, "full"), found.bench.replies.append)
            assert engine.step()
    assert found.of(AnswerChanged) == found.of(Committed)
    assert len(found.of(Committed)) == 6


@pytest.mark.parametrize("mode", MODES)
def test_records_that_wait_are_one_commit_and_one_evaluation(mode: str, stream: Callable[..., Stream]) -> None:
    found = stream(preposition=mode)
    for _ in range(3):
        found.send("A")
    found.commit("A")
    assert found.of(AnswerChanged) == found.of(Committed) == [("A", 44)]


@pytest.mark.parametrize("mode", MODES)
def test_questions_that_fit_only_one_by_one_take_their_turns_before_the_next_commit(
    mode: str, stream: Callable[..., Stream], builder: TokenBuilder, slab: Callable[[int], dict[str, int]]
) -> None:
    longest = max(len(builder.query_entry(question)) for question in (TREND, MOMENTUM))
    found = stream(TREND, MOMENTUM, bars=62, preposition=mode, sessions=1, **slab(longest))
    session = found.bench.engine.sessions["A"]
    for _ in range(2):  # the region is full after them: no room beside it for both
        found.commit("A")
    found.send("A")
    assert found.bench.engine.step()
    assert session.version == 64
    found.finish()
    found.bench.engine.run_until_idle()
    for query in "qr":
        assert found.of(AnswerChanged, query) == found.of(Committed) == [("A", 63), ("A", 64), ("A", 65)]
    assert found.bench.engine.counters.evaluations_missed_total == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_question_without_room_is_told_of_at_each_commit(
    mode: str, stream: Callable[..., Stream], builder: TokenBuilder, slab: Callable[[int], dict[str, int]]
) -> None:
    found = stream(bars=62, preposition=mode, sessions=1, **slab(1))
    found.bench.engine.register(StandingPut("*", TREND, "change", "calm"))
    found.bench.engine.run_until_idle()
    for _ in range(3):
        found.commit("A")
    told = [event for event in found.bench.events if isinstance(event, NotEvaluated)]
    assert [(e.query, e.session_version, e.reason, e.offset) for e in told] == [
        ("q", 63, "no_room", 62),
        ("q", 64, "no_room", 63),
    ]
    assert found.of(AnswerChanged) == [("A", 65)]  # after the swap there is room again
    assert found.bench.engine.counters.evaluations_missed_total == 2


def test_a_turn_that_overtakes_an_evaluation_is_told(
    builder: TokenBuilder, make_bench: Callable[..., Any]
) -> None:
    longest = max(len(builder.query_entry(question)) for question in (TREND, MOMENTUM))
    bench = make_bench(sessions=1, extents=0)
    engine = bench.engine
    tokens = builder.tool_payload("x" * bench.shape.share)
    engine.append_turn("agent", tokens[: bench.shape.headroom(len(builder.prefix)) - longest - 2])
    engine.run_until_idle()
    for name, question in (("q", TREND), ("r", MOMENTUM)):
        engine.register(StandingPut("*", question, "commit", name))
    engine.run_until_idle()
    bench.events.clear()
    engine.append_turn("agent", tokens[:1])
    assert engine.step()
    engine.append_turn("agent", tokens[:1])
    engine.run_until_idle()
    (missed,) = [event for event in bench.events if isinstance(event, NotEvaluated)]
    assert (missed.reason, missed.session_version, missed.topic) == ("overtaken", 2, None)
    evaluated = {(e.query, e.session_version) for e in bench.events if isinstance(e, AnswerChanged)}
    assert evaluated | {(missed.query, 2)} == {(query, version) for query in "qr" for version in (2, 3)}
