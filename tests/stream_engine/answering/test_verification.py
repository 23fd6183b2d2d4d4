"""Shadow verification on the fake model: what is checked, when, against what, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_engine.answering.verification import Dropped
from stream_engine.board.meta import board_meta
from stream_engine.board.reader import BoardReader
from stream_engine.board.writer import BoardWriter
from stream_engine.config.risk import RiskSettings
from stream_engine.decision.gate import ClassGate, Gate
from stream_engine.engine.engine import UNWATCHED
from stream_engine.messages import Answer, Check, Query, Record, RiskChanged, StandingPut
from stream_engine.model.forward.distribution import Distribution
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.process.status import status
from stream_engine.session.token_hash import token_hash
from tests.support.checks import ALL, OTHER_WORDING, TREND, check_of, dropped, judged, word_token


def test_a_fast_answer_of_the_engine_is_checked_after_its_reply(planted: Callable[..., Any]) -> None:
    bench = planted("up", "up", risk=ALL)
    steps = len(bench.runner.steps)
    bench.engine.queries.ask(Query("AAPL", TREND), bench.replies.append)
    (answer,) = bench.replies
    assert isinstance(answer, Answer)
    assert (answer.path, len(bench.runner.steps)) == ("fast", steps), "the reply waits for no check"
    bench.engine.run_until_idle()
    (segment,) = bench.runner.steps[-1]
    (branch,) = segment.branches
    assert branch.tokens == bench.builder.query_entry(TREND)
    assert branch.sees == len(bench.engine.sessions["AAPL"].tokens)
    (trend,) = bench.engine.verification.calibration().classes
    assert (trend.checks, trend.false_accepts) == (1, 0)
    bench.engine.check_integrity()


def test_a_share_of_them_is_checked(planted: Callable[..., Any], ask_anew: Callable[..., Any]) -> None:
    bench = planted("up", "up", risk=RiskSettings(check_share=0.25))
    numbers = iter([0.1, 0.9, 0.24, 0.25])
    bench.engine.verification._chance = lambda: next(numbers)
    for _ in range(4):
        ask_anew(bench)
    (trend,) = bench.engine.verification.calibration().classes
    assert trend.checks == 2


def test_answers_that_no_gate_let_through_are_not_checked(planted: Callable[..., Any]) -> None:
    """Of the full path, of a question's own distribution, and below the gate."""
    bench = planted("up", "down", risk=ALL)
    bench.engine.register(StandingPut("AAPL", OTHER_WORDING))
    bench.engine.run_until_idle()
    assert bench.ask("AAPL", TREND, path="full").path == "cold"
    assert bench.ask("AAPL", OTHER_WORDING).path == "fast"
    bench.engine.gate_control.apply({"trend": ClassGate(7.0)})
    below = bench.ask("AAPL", TREND, path="fast")
    assert (below.path, below.gate) == ("fast", False)
    assert bench.engine.verification.calibration().classes[0].checks == 0
    assert not dropped(bench)


def test_a_header_that_disagrees_raises_tau_then_closes_the_class(
    planted: Callable[..., Any], ask_anew: Callable[..., Any]
) -> None:
    """A planted fault: nothing but the checks can see it. The board's readers and the engine obey at once."""
    bench = planted("up", "down", risk=ALL)
    asked = 0
    while bench.engine.verification.calibration().classes[0].state == "OPEN":
        assert ask_anew(bench).answer == "up"
        asked += 1
    assert asked < 10
    (raised,) = [event for event in bench.events if isinstance(event, RiskChanged)]
    assert (raised.class_, raised.previous, raised.state) == ("trend", "OPEN", "RAISED")
    assert (raised.tau_before, raised.tau, raised.open) == (2.0, 3.0, True)
    assert (raised.checks, raised.false_accepts) == (asked, asked)
    assert raised.evidence >= raised.threshold
    assert raised.lower > raised.budget
    assert ask_anew(bench).tau == 3.0  # still a gap of 5: raising did not help
    while bench.engine.verification.calibration().classes[0].state == "RAISED":
        ask_anew(bench)
    closed = bench.events[-1]
    assert isinstance(closed, RiskChanged)
    assert (closed.previous, closed.state, closed.open) == ("RAISED", "CLOSED", False)
    answer = bench.ask("AAPL", TREND)
    assert (answer.answer, answer.path) == ("down", "cold")
    assert len([event for event in bench.events if isinstance(event, RiskChanged)]) == 2


def test_a_tau_beyond_the_gap_sends_questions_to_the_full_path(
    planted: Callable[..., Any], ask_anew: Callable[..., Any]
) -> None:
    bench = planted("up", "down", risk=RiskSettings(check_share=1.0, tau_step=4.0))
    while ask_anew(bench).answer == "up":
        pass
    (trend,) = bench.engine.verification.calibration().classes
    assert (trend.state, trend.tau, trend.checks) == ("RAISED", 6.0, 0)


def test_readers_of_the_board_see_the_gate_move(
    planted: Callable[..., Any], ask_anew: Callable[..., Any], tmp_path: Path, builder: TokenBuilder
) -> None:
    meta = board_meta(builder.profile, Gate({"trend": ClassGate(2.0)}, {}, 0.0))
    board = BoardWriter.create(tmp_path / "board", meta, 16, 64, 1, 60.0)
    bench = planted("up", "down", risk=ALL, board=board)
    reader = BoardReader.open(tmp_path / "board", 0)
    seen = []
    for _ in range(20):
        assert reader.meta is not None
        if reader.meta.classes["trend"] not in seen:
            seen.append(reader.meta.classes["trend"])
        ask_anew(bench)
    assert seen == [ClassGate(2.0), ClassGate(3.0), ClassGate(3.0, open=False)]
    assert reader.meta.topics == ("market.bars",), "nothing else of META is lost"
    bench.engine.close()


def test_the_full_path_of_then_is_what_a_check_compares_with(
    fed: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    """The session has moved on by three bars, and the newest but one of them was corrected."""
    bench = fed(bars=40, risk=ALL)
    seen, check, then = judged(bench), check_of(bench), bench.expected("AAPL", TREND)
    bench.feed([make_record("AAPL", offset) for offset in range(40, 43)], 39)
    bench.feed([make_record("AAPL", 43, index=41, close=101.0)], 42)
    ready = dict(bench.engine.sessions["AAPL"].ready)
    bench.engine.verification.offer(check)
    bench.engine.run_until_idle()
    assert seen == [then]
    assert then != bench.expected("AAPL", TREND)
    given = bench.builder.answers[check.token]
    differs = tuple(bench.builder.answers[then.top1]) != tuple(given)
    assert bench.engine.verification.calibration().classes[0].false_accepts == differs
    assert bench.engine.sessions["AAPL"].ready == ready
    bench.engine.check_integrity()


def test_a_check_leaves_resident_branches_as_they_are(
    fed: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = fed(bars=40, risk=ALL)
    bench.engine.register(StandingPut("AAPL", TREND))
    bench.feed([make_record("AAPL", 40)], 39)
    branches = list(bench.engine.sessions["AAPL"].branches)
    tokens, generic = bench.engine.sessions["AAPL"].tokens, bench.builder.generic_entry
    for bars in range(30):  # far more cells than there are, were they not given back
        then = tokens[: len(tokens) - bars * bench.builder.tokens_per_bar]
        position, hashed = len(then) + len(generic), token_hash(then, generic)
        check = check_of(bench, question=OTHER_WORDING, position=position, token_hash=hashed)
        bench.engine.verification.offer(check)
        bench.engine.run_until_idle()
    assert bench.engine.verification.calibration().classes[0].checks_total + sum(dropped(bench).values()) == 30
    assert not dropped(bench) or set(dropped(bench)) == {"gate_moved"}
    assert bench.engine.sessions["AAPL"].branches == branches
    answer = bench.ask("AAPL", TREND, path="full")
    assert (answer.path, answer.gap) == ("fallthrough", bench.expected("AAPL", TREND).gap)


def test_what_is_gone_is_dropped_and_counted(fed: Callable[..., Any], make_record: Callable[..., Record]) -> None:
    bench = fed(bars=40, risk=ALL)
    desk = bench.engine.verification
    check = check_of(bench)

    def lost(check: Check) -> str:
        before = dropped(bench)
        desk.offer(check)
        bench.engine.run_until_idle()
        (reason,) = [name for name, count in dropped(bench).items() if count > before.get(name, 0)]
        return reason

    assert lost(msgspec.structs.replace(check, gap=2.0)) == "gate_moved"
    assert lost(msgspec.structs.replace(check, question_class="tides")) == "gate_moved"
    assert lost(msgspec.structs.replace(check, token=0)) == "gate_moved"  # no answer that any gate lets through
    assert lost(msgspec.structs.replace(check, session="GOOG")) == "session_gone"
    assert lost(msgspec.structs.replace(check, question="x " * 2_000)) == "no_room"
    assert lost(msgspec.structs.replace(check, position=10**6)) == "changed"
    assert lost(msgspec.structs.replace(check, position=0)) == "changed"
    bench.feed([make_record("AAPL", 40, index=39, close=90.0)], 39)  # the last bar of that version
    assert lost(check) == "changed"
    check = check_of(bench)
    bench.feed([make_record("AAPL", offset) for offset in range(41, 80)], 40)
    assert bench.engine.sessions["AAPL"].swaps == 1
    assert lost(check) == "changed"
    assert desk.calibration().classes[0].checks == 0


@pytest.mark.parametrize(
    ("most", "said", "steps", "differs"),
    [
        (24, ("down",), 1, True),
        (24, ("end",), 1, True),
        (24, ("text", "text", "down"), 3, True),
        (24, ("text", "text", "up"), 3, False),
        (24, ("text",), 24, True),
        (1, ("text", "up"), 1, True),
    ],
)
def test_a_check_goes_on_to_the_word_as_the_full_path_does(
    most: int,
    said: tuple[str, ...],
    steps: int,
    differs: bool,
    planted: Callable[..., Any],
    builder: TokenBuilder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A header that disagrees with answers of several tokens, always, is noticed as any other."""
    monkeypatch.setattr(builder, "profile", replace(builder.profile, max_answer_tokens=most))
    bench = planted("up", "up", risk=ALL)
    desk, entry, header = bench.engine.verification, builder.query_entry(TREND), bench.runner.predict
    tokens = {"end": builder.end_token, "text": entry[0], "up": word_token(bench, "up")}
    tokens["down"] = word_token(bench, "down")
    live = len(bench.engine.sessions["AAPL"].tokens)

    def predict(path: Sequence[int]) -> Distribution:
        if tuple(path[live : live + len(entry)]) != entry:
            return header(path)
        number = min(len(path) - live - len(entry), len(said) - 1)
        return Distribution(tokens[said[number]], 0, 5.0, 5.0, 6.0, 0.9)

    bench.runner.predict = predict
    before = len(bench.runner.steps)
    fast = bench.ask("AAPL", TREND)
    assert len(bench.runner.steps) - before == steps, "one step a token"
    full = bench.ask("AAPL", TREND, path="full")
    assert (fast.path, full.answer != fast.answer) == ("fast", differs)
    (trend,) = desk.calibration().classes
    assert (trend.checks, trend.false_accepts, dropped(bench)) == (1, differs, {})
    bench.engine.check_integrity()


def test_what_is_gone_before_its_word_is_dropped(
    planted: Callable[..., Any],
    make_record: Callable[..., Record],
    builder: TokenBuilder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Data that comes meanwhile goes first, and the check goes on where the session has only grown."""
    monkeypatch.setattr(builder, "profile", replace(builder.profile, max_answer_tokens=24))
    bench = planted("up", "up", risk=ALL)
    bench.runner.predict = lambda path: Distribution(path[0], 0, 5.0, 5.0, 6.0, 0.9)  # no word, ever
    bench.engine.verification.offer(check_of(bench))
    assert bench.engine.step()
    bench.feed([make_record("AAPL", 40)], 39, run=False)
    for _ in range(3):
        assert bench.engine.step()
    (work,) = bench.engine.scheduler.checks
    assert len(work.generated) == 3
    bench.feed([make_record("AAPL", 41, index=38, close=90.0)], 40)
    assert (bench.engine.verification.calibration().classes[0].checks, dropped(bench)) == (0, {"changed": 1})


@pytest.mark.parametrize("step_tokens", [16, 512])
def test_the_check_of_an_evicted_session_takes_no_cells(step_tokens: int, fed: Callable[..., Any]) -> None:
    bench = fed(("A", "B"), bars=40, sessions=1, risk=ALL, step_tokens=step_tokens)
    check, seen = check_of(bench, "A"), judged(bench)
    bench.ask("B", TREND, path="full")
    assert bench.engine.budget.resident == ("B",)
    bench.engine.verification.offer(check)
    bench.engine.run_until_idle()
    assert seen == [bench.expected("A", TREND)]
    assert dropped(bench) == {}
    assert bench.engine.budget.resident == ("B",)


def test_an_engine_that_is_behind_drops_checks_and_one_that_watches_nothing_all(
    fed: Callable[..., Any],
) -> None:
    behind, off = fed(bars=40, risk=ALL), fed(bars=40, risk=UNWATCHED)
    for bench in (behind, off):
        for number in range(256 + 3):
            bench.engine.verification.offer(check_of(bench, token_hash=number))
    assert dropped(behind) == {"engine_behind": 3}
    assert dropped(off) == {"off": 256 + 3}
    assert behind.engine.verification.calibration().waiting == 256
    assert set(behind.engine.verification.calibration().dropped) == {reason.value for reason in Dropped}


def test_checks_wait_for_queries_commits_and_standing_queries_but_for_no_preposition(
    fed: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = fed(bars=40, risk=ALL, preposition="idle")
    engine, header = bench.engine, bench.builder.generic_entry
    engine.verification.offer(check_of(bench))
    engine.register(StandingPut("AAPL", OTHER_WORDING))
    bench.feed([make_record("AAPL", 40)], 39, run=False)
    engine.queries.ask(Query("AAPL", TREND, path="full"), bench.replies.append)
    done = []
    while True:
        steps = len(bench.runner.steps)
        if not engine.step():
            break
        for segment in bench.runner.steps[steps] if len(bench.runner.steps) > steps else ():
            kinds = {header: "header", bench.builder.query_entry(OTHER_WORDING): "standing"}
            done += ["commit"] if segment.append else []
            for branch in segment.branches:
                done.append("check" if branch.sees is not None else kinds.get(branch.tokens, "query"))
    assert done == ["query", "commit", "standing", "check", "header"]


def test_a_waiting_check_is_no_sign_of_trouble(fed: Callable[..., Any]) -> None:
    """Readiness is about queries and commits; the queue of checks has a gauge of its own."""
    bench = fed(bars=40, risk=ALL)
    bench.engine.verification.offer(check_of(bench))
    told = status(bench.engine, 0.0, 1, {}, 0, {})
    assert (told.oldest_work_s, told.gauges["queue_checks"], told.calibration.waiting) == (0.0, 1, 1)
    assert told.calibration.model == bench.builder.profile.name
    assert [entry.class_ for entry in told.calibration.classes] == ["trend"]
