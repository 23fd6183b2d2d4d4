"""What the judge says: the outcome that is counted, the bound that is not met, the fields served."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from stream_engine.decision.answer import state_word
from stream_engine.decision.gate import ClassGate, FastAnswer, Gate, GateReason
from stream_engine.decision.judge import _NEARNESS, Outcome, fast_answer, judge
from stream_engine.decision.reading import Miss, Policy, Reading
from stream_engine.decision.ready import Evidence, ReadyDistribution, StateFlag
from stream_engine.decision.route import Route, RoutedBy
from stream_engine.messages import Answer, OffsetBound, PathRequest, Query
from stream_engine.model.profile import AnswerClass

NOW_MS = 1_000_000
UP, DOWN, NO_WORD = 11, 12, 99
TREND = AnswerClass("trend", ("up", "down"), "", generic=True)
VOLUME = AnswerClass("volume", ("rising",), "")
OWN, HEADER = "is it going up?", ""
GATE = Gate({"trend": ClassGate(2.0)}, {UP: FastAnswer("trend", "up"), DOWN: FastAnswer("trend", "down")}, 1e-3)
POLICY = Policy(GATE, "small", "digest", 32)
EVIDENCE = Evidence(
    session_version=42,
    topic_index=0,
    partition=1,
    offset=41,
    event_time_us=1_700_000_000_000_000,
    record_time_ms=NOW_MS - 3_000,
    bars=32,
)


def reading(top1: int = UP, gap: float = 3.0, evidence: Evidence = EVIDENCE, generation: int = 1) -> Reading:
    return Reading(ReadyDistribution(top1, DOWN, gap, 9.0, 9.1, 0.99, 40), evidence, generation)


@dataclass
class Played:
    """A board that holds ``slots`` and says ``absent`` of all others."""

    slots: dict[str, Reading]
    absent: Miss = Miss.ABSENT
    policy: Policy | None = POLICY
    consumed: list[Reading] = field(default_factory=list)

    def read(self, session_id: str, entry_key: str) -> Reading | Miss:
        return self.slots.get(entry_key, self.absent)

    def consume(self, reading: Reading) -> None:
        self.consumed.append(reading)

    def topic(self, index: int) -> str | None:
        return None if index < 0 else "market.bars"

    def applied(self, topic_index: int, partition: int) -> int | None:
        return 50 if (topic_index, partition) == (0, 1) else None


def query(path: PathRequest = "auto", **bound: int) -> Query:
    at = bound.pop("offset", None)
    min_offset = None if at is None else OffsetBound(bound.pop("partition", 1), at)
    return Query("AAPL", "Is it going up?", path, min_offset=min_offset, **bound)


ROUTE = Route(OWN, TREND, RoutedBy.LISTED)


@pytest.mark.parametrize("miss", list(Miss))
@pytest.mark.parametrize("kind", [TREND, VOLUME, None])
def test_an_entry_that_nobody_ordered_is_told_from_one_that_is_not_there_now(
    miss: Miss, kind: AnswerClass | None
) -> None:
    """The header answers the generic class alone: of any other question nothing was to be expected. A torn slot,
    one of an older version or a board without an engine is a miss whatever was asked."""
    board = Played({}, absent=miss)
    verdict = judge(query(), Route(OWN, kind), (board,), NOW_MS)
    nothing_ordered = miss in (Miss.ABSENT, Miss.FULL) and kind is not TREND
    assert verdict.outcome is (Outcome.NO_ENTRY if nothing_ordered else miss)
    assert (verdict.served, board.consumed) == (None, [])


def test_the_header_answers_no_other_class() -> None:
    assert judge(query(), Route(OWN, VOLUME), (Played({HEADER: reading()}),), NOW_MS).outcome is Outcome.NO_ENTRY


def test_a_board_that_no_engine_holds_any_more_serves_nothing() -> None:
    board = Played({HEADER: reading()}, policy=None)
    assert judge(query(), ROUTE, (board,), NOW_MS).outcome is Miss.LEASE
    assert board.consumed == []


def test_a_board_of_another_profile_counts_no_hit() -> None:
    board = Played({HEADER: reading()})
    assert judge(query(), ROUTE, (board,), NOW_MS, "another").outcome is Outcome.OTHER_PROFILE
    assert board.consumed == []
    assert judge(query(), ROUTE, (board,), NOW_MS, "digest").outcome is GateReason.FIRED
    assert judge(query(), ROUTE, (board,), NOW_MS, None).outcome is GateReason.FIRED


@pytest.mark.parametrize(
    ("bound", "unmet"),
    [
        ({"min_version": 43}, "session_version is 42, min_version asks for 43"),
        ({"offset": 50}, "partition 1 is applied up to offset 49, min_offset asks for 50"),
        ({"partition": 2, "offset": 0}, "partition 2 is not owned by this engine"),
        ({"max_age_ms": 2_999}, "the newest record is 3000 ms old, max_age_ms asks for 2999"),
    ],
)
def test_a_bound_that_is_not_met_is_named(bound: dict[str, int], unmet: str) -> None:
    verdict = judge(query(**bound), ROUTE, (Played({HEADER: reading()}),), NOW_MS)
    assert (verdict.outcome, verdict.unmet, verdict.served) == (Outcome.NOT_FRESH, unmet, None)


@pytest.mark.parametrize("bound", [{"min_version": 42}, {"offset": 49}, {"max_age_ms": 3_000}])
def test_a_bound_is_met_at_its_own_value(bound: dict[str, int]) -> None:
    assert judge(query(**bound), ROUTE, (Played({HEADER: reading()}),), NOW_MS).outcome is GateReason.FIRED


@pytest.mark.parametrize("waived", [True, False])
@pytest.mark.parametrize(
    ("found", "reason", "serves"),
    [
        (reading(gap=1.0), GateReason.GAP, True),
        (reading(top1=NO_WORD), GateReason.NOT_IN_SET, False),
        (reading(evidence=replace(EVIDENCE, flags=StateFlag.WARMING_UP)), GateReason.WARMING_UP, False),
    ],
)
def test_path_fast_waives_the_gap_only(found: Reading, reason: GateReason, serves: bool, waived: bool) -> None:
    verdict = judge(query("fast" if waived else "auto"), ROUTE, (Played({HEADER: found}),), NOW_MS)
    assert verdict.outcome is (Outcome.BELOW_GATE if waived and serves else reason)
    assert (verdict.served is not None) == (waived and serves)


@pytest.mark.parametrize(("key", "routed_by"), [(HEADER, "listed"), (OWN, "exact")])
def test_what_is_served_says_where_it_comes_from(key: str, routed_by: str) -> None:
    board = Played({key: reading()})
    served = judge(query(), ROUTE, (board,), NOW_MS).served
    assert served is not None
    assert served.exact == (key == OWN)
    answer = fast_answer(Answer, query(), served, NOW_MS)
    assert answer == Answer(
        session="AAPL",
        question="Is it going up?",
        answer="up",
        class_="trend",
        path="fast",
        gate=True,
        gap=3.0,
        tau=None if key == OWN else 2.0,
        confidence=None,
        fast_set_mass=0.99,
        session_version=42,
        topic="market.bars",
        partition=1,
        offset=41,
        event_time="2023-11-14T22:13:20Z",
        age_ms=3_000,
        latency_us=0,
        window_bars=32,
        bars=32,
        state="LIVE",
        entry_tokens=0,
        reused_tokens=0,
        model="small",
        routed_by=routed_by,
    )
    assert board.consumed == [served.reading]


def test_a_pushed_session_has_no_topic_partition_or_offset() -> None:
    """-1 stands for them on the board, and is no partition that could be looked up."""
    pushed = replace(EVIDENCE, topic_index=-1, partition=-1, offset=-1)
    served = judge(query(), ROUTE, (Played({HEADER: reading(evidence=pushed)}),), NOW_MS).served
    assert served is not None
    answer = fast_answer(Answer, query(), served, NOW_MS)
    assert (answer.topic, answer.partition, answer.offset) == (None, None, None)


@pytest.mark.parametrize(
    ("flags", "state"),
    [
        (StateFlag.NONE, "LIVE"),
        (StateFlag.WARMING_UP, "WARMING_UP"),
        (StateFlag.INCOMPLETE, "INCOMPLETE"),
        (StateFlag.INCOMPLETE | StateFlag.WARMING_UP, "INCOMPLETE"),
    ],
)
def test_the_state_word_tells_of_a_hole_before_a_short_window(flags: StateFlag, state: str) -> None:
    assert state_word(replace(EVIDENCE, flags=flags)) == state


def test_of_several_boards_the_one_that_has_the_session_answers() -> None:
    other, mine, late = Played({}), Played({HEADER: reading()}), Played({HEADER: reading(top1=DOWN)})
    verdict = judge(query(), ROUTE, (other, mine, late), NOW_MS)
    assert verdict.served is not None
    assert verdict.served.board is mine
    assert ([], [verdict.served.reading], []) == (other.consumed, mine.consumed, late.consumed)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("nearer", "farther"),
    [
        (Miss.LEASE, Miss.ABSENT),
        (Miss.INVALID, Miss.LEASE),
        (Miss.TORN, Miss.INVALID),
        (Miss.FULL, Miss.ABSENT),
        (Miss.ABSENT, Miss.LAYOUT),
        (Miss.LAYOUT, Miss.NO_BOARD),
    ],
)
def test_where_no_board_has_it_the_nearest_says_why(nearer: Miss, farther: Miss, turned: bool) -> None:
    """An engine that is gone may be the one that had the session: a board that never heard of it does not hide
    that, whichever is read first."""
    boards = [Played({}, absent=nearer), Played({}, absent=farther)]
    verdict = judge(query(), ROUTE, boards[::-1] if turned else boards, NOW_MS)
    assert (verdict.outcome, verdict.served) == (nearer, None)


def test_a_question_without_an_entry_does_not_hide_a_lost_engine() -> None:
    boards = (Played({}, absent=Miss.LEASE), Played({}))
    assert judge(query(), Route(OWN, VOLUME), boards, NOW_MS).outcome is Miss.LEASE
    assert judge(query(), Route(OWN, VOLUME), boards[1:], NOW_MS).outcome is Outcome.NO_ENTRY


def test_a_board_of_another_profile_does_not_stop_the_search() -> None:
    other = Played({HEADER: reading()}, policy=replace(POLICY, profile_digest="another"))
    mine = Played({HEADER: reading()})
    served = judge(query(), ROUTE, (other, mine), NOW_MS, "digest").served
    assert served is not None
    assert served.board is mine
    assert judge(query(), ROUTE, (other, Played({})), NOW_MS, "digest").outcome is Outcome.OTHER_PROFILE


def test_every_outcome_without_an_answer_has_its_nearness() -> None:
    """One that is missing in the order would end the search at the first board."""
    assert set(_NEARNESS) == {*Miss, Outcome.NO_ENTRY, Outcome.OTHER_PROFILE}
    assert judge(query(), ROUTE, (), NOW_MS).outcome is Miss.NO_BOARD
