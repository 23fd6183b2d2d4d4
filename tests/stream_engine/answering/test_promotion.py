"""Promotion in the engine: an often asked question rides along, is served from its slot, and cools."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stream_engine.answering.promotion as promoted_module
from stream_engine.board.meta import board_meta
from stream_engine.board.reader import BoardReader, ReadySlot
from stream_engine.board.writer import BoardWriter
from stream_engine.decision.gate import Gate
from stream_engine.decision.reading import Miss
from stream_engine.messages import Answer, Assign, ErrorReply, Record, StandingPut
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.session.token_hash import token_hash
from tests.support.batches import batch_of
from tests.support.clock import Clock

TOPIC = "market.bars"
MOMENTUM = "What is the momentum?"
POSITION = "Where is it in its range?"
HIGH = "How high is it in the range?"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(promoted_module, "time", made)
    return made


@pytest.fixture
def board(tmp_path: Path, builder: TokenBuilder) -> Iterator[BoardWriter]:
    writer = BoardWriter.create(tmp_path / "board", board_meta(builder.profile, Gate({}, {}, 0.0)), 16, 64, 1, 1e9)
    yield writer
    writer.close()


@pytest.fixture
def reader(board: BoardWriter, tmp_path: Path) -> BoardReader:
    return BoardReader.open(tmp_path / "board", 0)


@pytest.fixture
def start(
    make_bench: Callable[..., Any], make_record: Callable[..., Record], board: BoardWriter
) -> Callable[..., Any]:
    def make(**options: Any) -> Any:
        bench = make_bench(board=board, promotion_half_life_s=100.0, **options)
        bench.engine.assign(Assign(TOPIC, 0, 1, 0, 0))
        commit(bench, [make_record("A", offset) for offset in range(40)])
        return bench

    return make


def commit(bench: Any, records: list[Record]) -> None:
    batch = batch_of(records, records[0].offset - 1)
    assert bench.engine.ingest.take(batch) is None
    bench.engine.run_until_idle()
    bench.engine.check_integrity()
    bench.engine.ingest.settle()


def paths(bench: Any, question: str, times: int) -> list[str]:
    return [bench.ask("A", question).path for _ in range(times)]


def test_the_fourth_ask_is_fast_without_a_pass_of_its_own(
    clock: Clock, start: Callable[..., Any], reader: BoardReader, make_record: Callable[..., Record]
) -> None:
    bench = start()
    assert "fast" not in paths(bench, MOMENTUM, 3)
    steps = len(bench.runner.steps)
    answer = bench.ask("A", MOMENTUM)
    assert (answer.path, answer.gate, answer.routed_by) == ("fast", True, "exact")
    assert len(bench.runner.steps) == steps
    assert answer.gap == bench.expected("A", MOMENTUM).gap
    slot = reader.read("A", MOMENTUM)
    assert isinstance(slot, ReadySlot)
    session = bench.engine.sessions["A"]
    assert slot.token_hash == token_hash(session.tokens, bench.builder.query_entry(MOMENTUM))
    # It rides along with the next commit, in one step with the header.
    commit(bench, [make_record("A", 40)])
    assert len(bench.runner.steps) == steps + 1
    again = reader.read("A", MOMENTUM)
    assert isinstance(again, ReadySlot)
    assert again.evidence.session_version == 41
    assert bench.ask("A", MOMENTUM).gap == bench.expected("A", MOMENTUM).gap


def test_other_white_space_is_the_same_question_and_another_case_is_not(
    clock: Clock, start: Callable[..., Any]
) -> None:
    bench = start()
    paths(bench, MOMENTUM, 3)
    assert bench.ask("A", " What is\tthe momentum? ").path == "fast"
    assert bench.ask("A", MOMENTUM.upper()).path != "fast"


def test_what_nobody_asks_cools_and_its_branch_is_gone(
    clock: Clock, start: Callable[..., Any], reader: BoardReader, make_record: Callable[..., Record]
) -> None:
    bench = start()
    paths(bench, MOMENTUM, 3)
    assert [entry.key for entry in bench.engine.entries.of(bench.engine.sessions["A"])] == ["", MOMENTUM]
    clock.now += 200.0
    bench.engine.step()
    assert [entry.key for entry in bench.engine.entries.of(bench.engine.sessions["A"])] == [""]
    assert reader.read("A", MOMENTUM) is Miss.ABSENT
    assert MOMENTUM not in bench.engine.sessions["A"].ready
    commit(bench, [make_record("A", 40)])
    assert len(bench.runner.steps[-1][0].branches) == 1
    counters = bench.engine.counters
    assert (counters.questions_promoted_total, counters.questions_demoted_total) == (1, 1)


def test_reads_of_the_slot_keep_it_warm(
    clock: Clock, start: Callable[..., Any], reader: BoardReader, make_record: Callable[..., Record]
) -> None:
    bench = start()
    paths(bench, MOMENTUM, 3)
    for offset in range(40, 60):
        slot = reader.read("A", MOMENTUM)
        assert isinstance(slot, ReadySlot)
        reader.consume(slot)
        reader.consume(slot)
        clock.now += 50.0
        commit(bench, [make_record("A", offset)])
    assert bench.engine.counters.promoted_reads_total == 40
    clock.now += 1_000.0
    bench.engine.step()
    assert reader.read("A", MOMENTUM) is Miss.ABSENT


def test_a_question_that_is_read_much_is_not_displaced_by_one_asked_less(
    clock: Clock, start: Callable[..., Any], reader: BoardReader
) -> None:
    bench = start(promoted_questions=1)
    paths(bench, MOMENTUM, 3)
    slot = reader.read("A", MOMENTUM)
    assert isinstance(slot, ReadySlot)
    for _ in range(20):
        reader.consume(slot)
    assert "fast" not in paths(bench, POSITION, 20)
    assert bench.ask("A", MOMENTUM).path == "fast"
    paths(bench, POSITION, 30)
    assert bench.ask("A", POSITION).path == "fast"
    assert reader.read("A", MOMENTUM) is Miss.ABSENT


def test_at_most_so_many_a_session(clock: Clock, start: Callable[..., Any]) -> None:
    bench = start(promoted_questions=2)
    for question in (MOMENTUM, POSITION, HIGH):
        paths(bench, question, 3)
    assert len(bench.engine.promoted.entries("A")) == 2
    assert bench.engine.promoted.count == 2


@pytest.mark.parametrize("options", [{"promoted_questions": 0}, {"preposition": "off"}])
def test_it_can_be_switched_off(options: dict[str, Any], clock: Clock, start: Callable[..., Any]) -> None:
    bench = start(**options)
    assert "fast" not in paths(bench, MOMENTUM, 6)
    assert bench.engine.promoted.count == 0


def test_only_asks_that_a_slot_would_serve_count(clock: Clock, start: Callable[..., Any]) -> None:
    bench = start()
    for _ in range(5):
        bench.ask("A", MOMENTUM, path="full")
        bench.ask("A", "What is the price?")
    assert bench.engine.promoted.count == 0
    refused = [bench.ask("A", MOMENTUM, path="fast") for _ in range(4)]
    assert [isinstance(reply, ErrorReply) for reply in refused] == [True, True, True, False]
    assert isinstance(refused[-1], Answer)  # promoted by the third refusal, decoded in idle time


def test_a_standing_query_takes_over_and_leaves_nothing_behind(
    clock: Clock, start: Callable[..., Any], reader: BoardReader, make_record: Callable[..., Record]
) -> None:
    bench = start()
    paths(bench, MOMENTUM, 3)
    query = bench.engine.register(StandingPut("A", MOMENTUM))
    bench.engine.run_until_idle()
    assert [entry.key for entry in bench.engine.entries.of(bench.engine.sessions["A"])] == ["", MOMENTUM]
    assert bench.engine.promoted.count == 0
    paths(bench, MOMENTUM, 5)
    assert bench.engine.promoted.count == 0
    commit(bench, [make_record("A", 40)])
    assert isinstance(reader.read("A", MOMENTUM), ReadySlot)
    bench.engine.unregister(query.id)
    assert isinstance(reader.read("A", MOMENTUM), Miss)
    commit(bench, [make_record("A", 41)])
    assert isinstance(reader.read("A", MOMENTUM), Miss)


def test_it_takes_no_room_from_a_standing_query_and_no_cells_from_a_session(
    clock: Clock, start: Callable[..., Any], builder: TokenBuilder, make_record: Callable[..., Record]
) -> None:
    bench = start(sessions=1)
    bench.engine.register(StandingPut("A", POSITION))
    paths(bench, MOMENTUM, 3)
    session = bench.engine.sessions["A"]
    keys = [entry.key for entry in bench.engine.entries.of(session)]
    assert keys == ["", POSITION, MOMENTUM]  # in the order in which room is given
    # Another session takes the only cells; the promoted question of the first is no reason to take them back.
    bench.ask("A", MOMENTUM)
    commit(bench, [make_record("B", 40), make_record("B", 41)])
    bench.ask("B", MOMENTUM, path="full")
    bench.engine.unregister("sq-1")
    commit(bench, [make_record("A", 42)])
    assert bench.engine.budget.resident == ("B",)


def test_a_deleted_session_starts_cold(
    clock: Clock, start: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = start()
    paths(bench, MOMENTUM, 3)
    bench.engine.drop_session(bench.engine.sessions["A"])
    assert bench.engine.promoted.count == 0
    clock.now += 1_000.0
    bench.engine.step()
    commit(bench, [make_record("A", 40)])
    assert bench.ask("A", MOMENTUM).path != "fast"


def test_questions_cool_a_slice_of_the_sessions_at_a_time(start: Callable[..., Any], clock: Clock) -> None:
    bench = start()
    promoted, sessions = bench.engine.promoted, bench.engine.sessions
    count = 2 * promoted_module.SLICE + 3
    for number in range(count):
        session = sessions.open(f"S{number}")
        asked = [promoted.asked(session, MOMENTUM, "momentum") for _ in range(3)]
        assert asked == [False, False, True]
    assert promoted.count == count
    promoted.look(sessions)
    assert promoted.count == count, "nothing has had the time to cool"
    clock.now += 300.0
    left = []
    while promoted.count:
        promoted.look(sessions)
        left.append(promoted.count)
    assert left == [promoted_module.SLICE + 3, 3, 0]
    promoted.asked(session, MOMENTUM, "momentum")
    promoted.forget_session(session.id)
    promoted.look(sessions)
