"""Sessions that nobody feeds or asks sleep, and wake at the version at which they fell asleep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_engine.board.reader import BoardReader
from stream_engine.board.writer import BoardWriter
from stream_engine.decision.entry import GENERIC_KEY
from stream_engine.decision.reading import Miss
from stream_engine.messages import (
    Answer,
    AnswerChanged,
    Asleep,
    Assign,
    ErrorReply,
    Query,
    Record,
    Restore,
    Revoke,
    Sleeper,
    StandingPut,
)
from stream_engine.session.session import IllegalTransition, SessionState, Source
from tests.support.batches import batch_of
from tests.support.checks import TREND
from tests.support.played_windows import PlayedWindows

TOPIC = "market.bars"
AFTER_S = 100.0


class Night:
    """A bench with sessions that sleep, its windows topic, and a clock of its own."""

    def __init__(self, bench: Any, windows: PlayedWindows | None = None) -> None:
        self.bench, self.engine = bench, bench.engine
        self.windows = windows or PlayedWindows()
        self.now = 1_000.0
        self.engine.sleeping.clock = lambda: self.now

    def touch_all(self) -> None:
        """As of this clock."""
        for session in self.engine.sessions.values():
            self.engine.sleeping.touch(session)

    def passes(self, seconds: float = AFTER_S + 1, answer: bool = True) -> None:
        self.now += seconds
        self.engine.run_until_idle()
        if answer:
            self.answer()

    def answer(self) -> None:
        self.windows.answer(self.engine)
        self.engine.run_until_idle()
        self.engine.check_integrity()

    def dormant(self) -> set[str]:
        return {name for owned in self.engine.ingest.partitions.all() for name in owned.dormant}

    def ask(self, session: str, **options: Any) -> Answer | ErrorReply:
        replies: list[Answer | ErrorReply] = []
        self.engine.queries.ask(Query(session, TREND, **options), replies.append)
        for _ in range(3):
            self.answer()
        assert len(replies) == 1, "every query gets exactly one reply"
        return replies[0]

    def end(self) -> int:
        return int(self.engine.ingest.partitions.all()[0].taken) + 1


@pytest.fixture
def night(fed: Callable[..., Any]) -> Callable[..., Night]:
    """Of ``A`` and ``B`` with 40 bars each, none of them asleep."""

    def make(keys: tuple[str, ...] = ("A", "B"), **options: Any) -> Night:
        made = Night(fed(keys, sleep_after_s=AFTER_S, **options))
        made.touch_all()
        return made

    return make


def test_a_quiet_session_sleeps_once_its_window_is_confirmed(night: Callable[..., Night]) -> None:
    here = night()
    session = here.engine.sessions["A"]
    here.passes(answer=False)
    assert set(here.engine.sessions) == {"A", "B"}, "its window is not written yet"
    here.answer()
    assert here.dormant() == {"A", "B"}
    assert not here.engine.sessions
    assert session.state is SessionState.DORMANT
    assert here.engine.budget.resident_count == 0
    owned = here.engine.ingest.partitions.all()[0]
    assert not owned.sessions
    assert owned.floors.lowest() is None, "no sleeper holds the floor back"
    assert owned.dormant["A"].version == session.version
    assert here.engine.counters.sessions_slept_total == 2


def test_one_that_is_fed_or_asked_stays_awake(
    night: Callable[..., Night], make_record: Callable[..., Record]
) -> None:
    here = night(("A", "B", "C"))
    here.passes(AFTER_S - 1)
    here.bench.feed([make_record("A", here.end(), 40)], here.end() - 1)
    here.bench.ask("B", TREND)
    here.passes(2)
    assert here.dormant() == {"C"}
    here.passes(AFTER_S - 3)
    assert here.dormant() == {"C"}
    here.passes(2)
    assert here.dormant() == {"A", "B", "C"}


@pytest.mark.parametrize("moved", ["record", "question"])
def test_one_that_is_fed_or_asked_while_its_window_is_written_stays(
    night: Callable[..., Night], make_record: Callable[..., Record], moved: str
) -> None:
    here = night()
    here.passes(answer=False)
    here.windows.hear(here.engine)
    if moved == "record":
        here.bench.feed([make_record("A", here.end(), 40)], here.end() - 1)
    else:
        here.bench.ask("A", TREND)
    here.answer()
    assert here.dormant() == {"B"}


def test_a_window_that_was_not_written_puts_nobody_to_sleep(night: Callable[..., Night]) -> None:
    here = night()
    here.windows.too_large = True
    here.passes()
    assert set(here.engine.sessions) == {"A", "B"}
    here.windows.too_large = False
    here.passes()
    assert here.dormant() == {"A", "B"}


def test_a_record_wakes_it_at_its_version(night: Callable[..., Night], make_record: Callable[..., Record]) -> None:
    here, twin = night(), night()
    here.passes()
    for made in (here, twin):
        records = [make_record("A", made.end() + n, 40 + n) for n in range(3)]
        made.engine.ingest.take(batch_of(records, made.end() - 1))
    assert not here.engine.ingest.settle(), "they are not applied before it is awake"
    here.answer()
    twin.engine.run_until_idle()
    woken, straight = here.engine.sessions["A"], twin.engine.sessions["A"]
    assert woken.tokens == straight.tokens
    assert (woken.version, woken.swaps, woken.offset) == (straight.version, straight.swaps, straight.offset)
    assert woken.ready == straight.ready, "its decision points are computed as if it had never slept"
    assert here.dormant() == {"B"}
    (ack,) = here.engine.ingest.settle()
    assert (ack.applied, ack.duplicates) == (3, 0)
    assert ack.floor == 80, "a restart finds it as of its window, and reads on from there"


def test_a_question_wakes_it(night: Callable[..., Night]) -> None:
    here = night()
    before = here.bench.ask("A", TREND, path="full")
    here.passes()
    assert here.dormant() == {"A", "B"}
    version = here.engine.ingest.partitions.all()[0].dormant["A"].version
    answer = here.ask("A")
    assert isinstance(answer, Answer)
    assert (answer.answer, answer.session_version) == (before.answer, version)
    assert answer.state == before.state
    assert here.dormant() == {"B"}
    assert here.engine.sessions["A"].ready.keys() == {GENERIC_KEY}
    here.passes()
    assert here.dormant() == {"A", "B"}, "it sleeps again"


def test_a_question_whose_session_does_not_wake_is_refused_in_time(night: Callable[..., Night]) -> None:
    here = night()
    here.passes()
    replies: list[Answer | ErrorReply] = []
    here.engine.queries.ask(Query("A", TREND, patience_ms=0), replies.append)
    here.engine.run_until_idle()
    assert [reply.status for reply in replies if isinstance(reply, ErrorReply)] == [503]
    assert here.engine.ingest.dormancy.waking == 1, "and it wakes all the same"


def test_its_slots_are_given_back(night: Callable[..., Night], board: BoardWriter, reader: BoardReader) -> None:
    here = night(board=board)
    used = board.counters().used_slots
    assert used == 2
    here.passes()
    assert here.dormant() == {"A", "B"}
    assert reader.read("A", GENERIC_KEY) is Miss.ABSENT
    assert board.counters().used_slots == 0
    here.ask("A")
    assert not isinstance(reader.read("A", GENERIC_KEY), Miss), "it is ready again, in idle time"


def test_one_that_is_read_from_the_board_only_stays_awake(
    night: Callable[..., Night], board: BoardWriter, reader: BoardReader
) -> None:
    here = night(board=board)
    reading = reader.read("A", GENERIC_KEY)
    assert not isinstance(reading, Miss)
    reader.consume(reading)
    here.passes()
    assert here.dormant() == {"B"}
    here.passes()
    assert here.dormant() == {"A", "B"}


def test_what_was_told_is_neither_lost_nor_told_twice(
    night: Callable[..., Night], make_record: Callable[..., Record]
) -> None:
    here = night()
    here.engine.register(StandingPut("*", TREND, id="q"))
    here.engine.run_until_idle()
    told = {event.session: event for event in here.bench.events if isinstance(event, AnswerChanged)}
    assert told.keys() == {"A", "B"}
    here.touch_all()
    here.passes()
    assert here.dormant() == {"A", "B"}
    assert set(here.engine.standing.answers(None, None)) == set(told.values())
    here.bench.events.clear()
    here.ask("A")
    assert not [event for event in here.bench.events if isinstance(event, AnswerChanged)]
    at = 40
    while not (changed := [event for event in here.bench.events if isinstance(event, AnswerChanged)]):
        here.bench.feed([make_record("A", here.end(), at, 100 + 3 * (-1) ** at)], here.end() - 1)
        at += 1
    assert (changed[0].previous, changed[0].initial) == (told["A"].answer, False)


def test_a_pattern_wakes_nobody_and_an_id_does(night: Callable[..., Night]) -> None:
    here = night()
    here.passes()
    here.engine.register(StandingPut("*", TREND, id="all"))
    here.answer()
    assert here.dormant() == {"A", "B"}
    here.engine.register(StandingPut("A", TREND, id="only"))
    here.answer()
    assert here.dormant() == {"B"}
    told = [event for event in here.bench.events if isinstance(event, AnswerChanged)]
    assert {(event.session, event.query) for event in told} == {("A", "all"), ("A", "only")}
    here.passes()
    assert here.dormant() == {"A", "B"}


def test_an_answer_goes_with_its_query_while_the_session_sleeps(night: Callable[..., Night]) -> None:
    here = night()
    here.engine.register(StandingPut("*", TREND, id="q"))
    here.engine.run_until_idle()
    here.touch_all()
    here.passes()
    here.engine.unregister("q")
    assert not tuple(here.engine.standing.told("q"))
    assert isinstance(here.ask("A"), Answer)


def test_who_must_not_sleep(night: Callable[..., Night], make_record: Callable[..., Record]) -> None:
    here = night()
    opened = make_record("A", here.end(), 40)
    here.bench.feed([Record(opened.key, opened.offset, opened.timestamp_ms, opened.bars, True)], here.end() - 1)
    here.engine.append_turn("T", (5, 6))
    here.engine.sessions["B"].gap_end = here.end()
    here.engine.run_until_idle()
    here.passes()
    assert not here.dormant(), "an open bar, pushed turns, a gap inside the window"
    assert set(here.engine.sessions) == {"A", "B", "T"}


def test_one_with_records_that_wait_does_not_sleep(
    night: Callable[..., Night], make_record: Callable[..., Record]
) -> None:
    here = night()
    here.engine.ingest.take(batch_of([make_record("A", here.end(), 40)], here.end() - 1))
    here.now += AFTER_S + 1
    here.engine.sleeping.look()
    here.windows.answer(here.engine)
    assert here.dormant() == {"B"}


def test_a_deleted_sleeper_is_gone_with_its_window(
    night: Callable[..., Night], make_record: Callable[..., Record]
) -> None:
    here = night()
    here.passes()
    assert here.engine.drop_sleeper("A")
    assert not here.engine.drop_sleeper("A")
    refused = here.ask("A")
    assert isinstance(refused, ErrorReply)
    assert refused.status in (404, 503)
    (ack,) = here.bench.feed([make_record("C", here.end(), 0)], here.end() - 1)
    assert [window.session for window in ack.windows if not window.bars] == ["A"]


def test_a_sleeper_belongs_to_its_source(night: Callable[..., Night], make_record: Callable[..., Record]) -> None:
    here = night()
    here.passes()
    here.engine.assign(Assign(TOPIC, 1, 1, 0, 0))
    here.engine.ingest.take(batch_of([make_record("A", 0, 90)], partition=1))
    here.engine.run_until_idle()
    acks = here.engine.ingest.settle()
    assert [(r.reason, r.offset) for ack in acks for r in ack.rejected] == [("second_source", 0)]
    assert here.dormant() == {"A", "B"}
    here.engine.asleep(Asleep(TOPIC, 1, 1, (Sleeper("A", 5, 7),)))
    assert here.engine.ingest.partitions.get(Source(TOPIC, 1)).dormant.keys() == set()


def test_records_that_it_holds_already_do_not_wake_it(
    night: Callable[..., Night], make_record: Callable[..., Record]
) -> None:
    here = night()
    here.passes()
    here.windows.generation = 2
    here.engine.assign(Assign(TOPIC, 0, 2, 0, 0))
    here.windows.restart(here.engine)
    here.engine.ingest.take(batch_of([make_record("A", n, n) for n in range(10)], generation=2))
    here.engine.run_until_idle()
    (ack,) = here.engine.ingest.settle()
    assert ack.duplicates == 10
    assert here.dormant() == {"A", "B"}


def test_a_restart_indexes_sleepers_without_waking_them(
    night: Callable[..., Night], make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    before = night()
    before.passes()
    asked = before.ask("A", path="full")
    assert isinstance(asked, Answer)
    before.passes()
    end = before.end()
    here = Night(make_bench(sleep_after_s=0.0), before.windows)  # nobody falls asleep here
    here.engine.assign(Assign(TOPIC, 0, 1, end, end))
    here.windows.restart(here.engine)
    here.answer()
    assert here.dormant() == {"A", "B"}
    assert not here.engine.sessions
    assert not here.bench.runner.steps
    answer = here.ask("A", path="full")
    assert isinstance(answer, Answer)
    assert (answer.answer, answer.session_version) == (asked.answer, asked.session_version)


def test_one_that_was_awake_again_is_refilled_in_a_replay_before_its_partition_is_live(
    night: Callable[..., Night], make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    before = night()
    before.passes()
    floor = before.end()
    records = [make_record("A", floor + n, 40 + n) for n in range(3)]
    before.engine.ingest.take(batch_of(records, floor - 1))
    before.answer()
    here = Night(make_bench(), before.windows)
    here.engine.assign(Assign(TOPIC, 0, 1, floor, floor + 3))
    here.windows.restart(here.engine)
    here.engine.ingest.take(batch_of(records, floor - 1))
    here.engine.run_until_idle()
    assert not here.engine.ingest.settle()
    assert here.engine.ingest.partitions.all()[0].state.value == "REPLAYING"
    here.answer()
    assert [ack.last for ack in here.engine.ingest.settle()] == [floor + 2]
    here.engine.run_until_idle()
    assert here.engine.sessions["A"].tokens == before.engine.sessions["A"].tokens
    assert here.engine.sessions["A"].version == before.engine.sessions["A"].version
    assert not [event for event in here.bench.events if isinstance(event, AnswerChanged)]
    assert here.dormant() == {"B"}


def test_a_new_assignment_asks_for_its_windows_again(
    night: Callable[..., Night], make_record: Callable[..., Record]
) -> None:
    here = night()
    here.passes()
    end = here.end()
    record = make_record("A", end, 40)
    here.engine.ingest.take(batch_of([record], end - 1))
    here.windows.hear(here.engine)
    here.windows.asked.clear()  # the consumer died over it
    here.windows.generation = 2
    here.engine.assign(Assign(TOPIC, 0, 2, end, end))
    here.windows.restart(here.engine)
    here.engine.ingest.take(batch_of([record], end - 1, generation=2))
    here.answer()
    assert [ack.applied for ack in here.engine.ingest.settle()] == [1]
    assert here.engine.sessions["A"].version == end + 1


def test_windows_that_were_being_written_do_not_stand_in_the_way_of_others(night: Callable[..., Night]) -> None:
    here = night()
    here.passes(answer=False)
    here.windows.hear(here.engine)
    here.windows.asked.clear()  # the consumer died over them
    here.windows.generation = 2
    here.engine.assign(Assign(TOPIC, 0, 2, here.end(), here.end()))
    here.engine.asleep(Asleep(TOPIC, 0, 2, (Sleeper("A", here.engine.sessions["A"].offset, 0),)))
    assert not here.dormant(), "of the assignment before"
    here.passes()
    assert here.dormant() == {"A", "B"}


def test_a_partition_that_is_given_up_takes_its_sleepers_along(night: Callable[..., Night]) -> None:
    here = night()
    here.engine.register(StandingPut("*", TREND, id="q"))
    here.engine.run_until_idle()
    here.touch_all()
    here.passes()
    assert len(here.engine.standing.answers(None, None)) == 2
    here.engine.revoke(Revoke(TOPIC, 0, 1))
    assert not here.dormant()
    assert not here.engine.standing.answers(None, None)
    refused = here.ask("A")
    assert isinstance(refused, ErrorReply)


@pytest.mark.parametrize("left", ["nothing", "an older window"])
def test_one_whose_window_is_lost_begins_anew(
    night: Callable[..., Night], make_record: Callable[..., Record], left: str
) -> None:
    here = night()
    here.passes()
    at, window = here.windows.kept.pop("A")
    if left == "an older window":
        older = here.engine.ingest.partitions.all()[0].dormant["A"].version - 2
        bars = tuple(bar for bar in window.bars if bar.offset <= older)
        here.windows.kept["A"] = at, type(window)("A", older, 0, 0, window.units, bars, asleep=True)
    here.engine.ingest.take(batch_of([make_record("A", here.end(), 40)], here.end() - 1))
    here.answer()
    assert len(here.engine.sessions["A"].region) == 1
    assert here.engine.counters.sessions_not_woken_total == 1
    assert [ack.applied for ack in here.engine.ingest.settle()] == [1]


def test_a_sleeper_that_is_deleted_while_it_wakes_settles_what_waits_for_it(
    night: Callable[..., Night], make_record: Callable[..., Record]
) -> None:
    here = night()
    here.passes()
    here.engine.ingest.take(batch_of([make_record("A", here.end(), 40)], here.end() - 1))
    assert here.engine.drop_sleeper("A")
    assert [ack.applied for ack in here.engine.ingest.settle()] == [1]
    here.answer()
    assert "A" not in here.engine.sessions


def test_many_fall_asleep_a_few_at_a_time(night: Callable[..., Night]) -> None:
    keys = tuple(f"K{n}" for n in range(300))
    here = night(keys, bars=1, sessions=2)
    here.passes(answer=False)
    here.windows.hear(here.engine)
    assert sum(len(message.windows) for message in here.windows.asked) <= 256
    for _ in range(8):
        here.answer()
    assert here.dormant() == set(keys)


def test_only_who_serves_falls_asleep(night: Callable[..., Night]) -> None:
    session = night().engine.sessions["A"]
    session.move_to(SessionState.DORMANT)
    for state in (SessionState.LIVE, SessionState.FULL, SessionState.WARMING_UP, SessionState.EMPTY):
        with pytest.raises(IllegalTransition):
            session.move_to(state)
    session.move_to(SessionState.EVICTED)
    fresh = night().engine.sessions.open("X", Source(TOPIC, 0))
    with pytest.raises(IllegalTransition):
        fresh.move_to(SessionState.DORMANT)


def test_a_restore_wakes_nobody_that_was_not_asked_for(night: Callable[..., Night]) -> None:
    here = night()
    here.passes()
    window = here.windows.kept["A"][1]
    here.engine.ingest.restore(Restore(TOPIC, 0, 1, (window,)))
    assert here.dormant() == {"A", "B"}


@pytest.mark.parametrize("asleep", [True, False])
def test_one_that_is_deleted_does_not_come_back_while_its_window_is_still_to_go(
    night: Callable[..., Night], make_record: Callable[..., Record], asleep: bool
) -> None:
    here = night()
    for ack in here.bench.feed([make_record("C", here.end(), 0)], here.end() - 1):
        for window in ack.windows:
            here.windows.write(window)
    if asleep:
        here.passes()
        assert here.engine.drop_sleeper("C")
    else:
        here.engine.drop_session(here.engine.sessions["C"])
    here.windows.generation = 2
    here.engine.assign(Assign(TOPIC, 0, 2, here.end(), here.end()))
    here.windows.restart(here.engine)
    assert "C" not in here.dormant() | set(here.engine.sessions)
