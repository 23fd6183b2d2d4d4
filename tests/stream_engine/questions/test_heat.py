"""Which ad-hoc questions are promoted: never too many, none that is cold, and no flapping."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stream_engine.questions.heat import HeatChange, QuestionHeat

HALF_LIFE = 100.0


def ask(heat: QuestionHeat, question: str, times: int, now: float = 0.0) -> list[HeatChange]:
    return [heat.asked(question, now) for _ in range(times)]


def test_three_quick_asks_promote_and_silence_demotes() -> None:
    heat = QuestionHeat(2, HALF_LIFE)
    assert ask(heat, "q", 3) == [HeatChange(), HeatChange(), HeatChange(promoted=("q",))]
    assert heat.promoted == ("q",)
    assert heat.cool(1.5 * HALF_LIFE) == HeatChange()
    assert heat.cool(1.7 * HALF_LIFE) == HeatChange(demoted=("q",))
    assert heat.promoted == ()
    assert not heat.empty
    heat.cool(10 * HALF_LIFE)
    assert heat.empty


def test_an_ask_counts_half_after_a_half_life() -> None:
    heat = QuestionHeat(1, HALF_LIFE)
    heat.asked("q", 0.0, times=8)
    assert heat.heat("q", HALF_LIFE) == 4.0
    assert heat.heat("never asked", 0.0) == 0.0


def test_a_full_place_goes_only_to_one_that_is_much_hotter() -> None:
    heat = QuestionHeat(1, HALF_LIFE)
    ask(heat, "a", 4)
    assert ask(heat, "b", 7)[-1] == HeatChange()  # 7 = 1.5 * 4 + 1
    assert ask(heat, "b", 1) == [HeatChange(promoted=("b",), demoted=("a",))]
    assert heat.promoted == ("b",)


def test_no_places_promote_nothing() -> None:
    heat = QuestionHeat(0, HALF_LIFE)
    assert ask(heat, "q", 50) == [HeatChange()] * 50


def test_what_was_registered_counts_no_more() -> None:
    heat = QuestionHeat(1, HALF_LIFE)
    ask(heat, "q", 3)
    heat.discard(["q", "unknown"])
    assert heat.promoted == ()
    assert heat.empty


def test_a_flood_of_different_questions_is_bounded_and_displaces_nothing() -> None:
    heat = QuestionHeat(2, HALF_LIFE)
    ask(heat, "q", 3)
    for number in range(640):
        assert heat.asked(f"flood {number}", 1.0) == HeatChange()
    assert heat.promoted == ("q",)
    assert len(heat._questions) <= 64


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.floats(0, 80), st.booleans(), st.integers(1, 4)), max_size=120
    ),
    st.integers(0, 3),
)
def test_promoted_are_few_hot_and_told_exactly_once(asks: list[tuple[str, float, bool, int]], places: int) -> None:
    heat, now, told = QuestionHeat(places, HALF_LIFE), 0.0, set[str]()
    for question, wait, cools, times in asks:
        now += wait
        changes = [heat.asked(question, now, times)]
        if cools:
            changes.append(heat.cool(now))
            assert all(heat.heat(question, now) >= 1.0 for question in heat.promoted)
        for change in changes:
            assert told >= set(change.demoted)
            told -= set(change.demoted)
            assert not told & set(change.promoted)
            told |= set(change.promoted)
            assert all(heat.heat(question, now) >= 2.5 for question in change.promoted)
        assert told == set(heat.promoted)
        assert len(told) <= places


@given(st.floats(1.0, 400.0), st.integers(1, 3), st.integers(1, 6), st.floats(0, 1))
def test_questions_asked_at_one_steady_rate_do_not_flap(
    period: float, places: int, rivals: int, phase: float
) -> None:
    heat, changes = QuestionHeat(places, HALF_LIFE), 0
    for turn in range(60):
        for rival in range(rivals):
            now = (turn + phase * rival / rivals) * period
            change = heat.asked(f"q{rival}", now)
            cooled = heat.cool(now)
            assert change.demoted == ()
            assert cooled.demoted == ()
            changes += len(change.promoted)
    assert changes <= places
