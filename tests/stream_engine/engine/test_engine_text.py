"""A general model as the resident one: rendered as text, exact at every decision point, free text answered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from stream_engine.config.engine import EngineSettings
from stream_engine.config.risk import RiskSettings
from stream_engine.decision.entry import GENERIC_KEY
from stream_engine.decision.gate import ClassGate
from stream_engine.engine.engine import Engine
from stream_engine.messages import Answer, Assign, Check, ErrorReply, Query, Record
from stream_engine.model.render.text_builder import TextBuilder
from stream_engine.process.build import build_engine
from stream_engine.risk.monitor import RiskMonitor
from stream_engine.session.token_hash import token_hash
from tests.support.batches import batch_of

NOISE = 2e-4


@pytest.fixture
def engine(tiny_chat: Path) -> Engine:
    found = build_engine(EngineSettings(model=str(tiny_chat), check_integrity=True, threads=1))
    found.ingest.assign(Assign("market.bars", 0, 1, 0, 0))
    return found


def commit(engine: Engine, records: list[Record]) -> None:
    first, last = records[0].offset, records[-1].offset
    batch = batch_of(records, first - 1, last=last)
    assert engine.ingest.take(batch) is None
    engine.run_until_idle()
    engine.ingest.settle()
    engine.check_integrity()


def ask(engine: Engine, session: str, question: str) -> Answer | ErrorReply:
    replies: list[Answer | ErrorReply] = []
    engine.queries.ask(Query(session, question, "full"), replies.append)
    engine.run_until_idle()
    (reply,) = replies
    return reply


def test_every_decision_point_is_a_plain_forwards(
    engine: Engine, tiny_chat: Path, make_record: Callable[..., Record]
) -> None:
    plain = AutoModelForCausalLM.from_pretrained(str(tiny_chat), dtype=torch.float32).eval()

    def from_scratch(entry: tuple[int, ...]) -> tuple[float, int]:
        tokens = torch.tensor([[*engine.sessions["AAPL"].tokens, *entry]])
        with torch.inference_mode():
            values, ids = plain(input_ids=tokens, use_cache=False).logits[0, -1].topk(2)
        return float(values[0] - values[1]), int(ids[0])

    builder = engine.builder
    assert isinstance(builder, TextBuilder)
    commit(engine, [make_record("AAPL", offset) for offset in range(40)])
    for offset in range(40, 70):
        commit(engine, [make_record("AAPL", offset)])
        if offset % 6:
            continue
        gap, first = from_scratch(builder.generic_entry)
        ready = engine.sessions["AAPL"].ready[GENERIC_KEY]
        assert ready.gap == pytest.approx(gap, abs=NOISE)
        assert ready.top1 == first or gap < NOISE
        answer = ask(engine, "AAPL", "What is the trend?")
        assert isinstance(answer, Answer)
        gap, _ = from_scratch(builder.query_entry("What is the trend?"))
        assert answer.gap == pytest.approx(gap, abs=NOISE)
    assert engine.sessions["AAPL"].swaps, "a window was swapped on the way"


def test_a_question_of_no_class_is_answered_in_text(engine: Engine, make_record: Callable[..., Record]) -> None:
    commit(engine, [make_record("AAPL", offset) for offset in range(40)])
    answer = ask(engine, "AAPL", "Who are you, and what is the highest close?")
    assert isinstance(answer, Answer)
    assert (answer.class_, answer.path) == ("text", "cold" if not answer.reused_tokens else "fallthrough")
    trend = ask(engine, "AAPL", "What is the trend?")
    assert isinstance(trend, Answer)
    assert trend.class_ in ("trend", "other")


def test_greedy_text_is_that_of_a_plain_model(
    engine: Engine, tiny_chat: Path, make_record: Callable[..., Record]
) -> None:
    commit(engine, [make_record("AAPL", offset) for offset in range(33)])
    question = "Tell me about it"
    plain = AutoModelForCausalLM.from_pretrained(str(tiny_chat), dtype=torch.float32).eval()
    tokens = [*engine.sessions["AAPL"].tokens, *engine.builder.query_entry(question)]
    written: list[int] = []
    while len(written) < engine.builder.profile.max_answer_tokens:
        with torch.inference_mode():
            logits = plain(input_ids=torch.tensor([[*tokens, *written]]), use_cache=False).logits[0, -1]
        written.append(int(logits.argmax()))
        if written[-1] == engine.builder.end_token:
            break
    answer = ask(engine, "AAPL", question)
    assert isinstance(answer, Answer)
    kept = [token for token in written if token != engine.builder.end_token]
    assert answer.answer == engine.builder.decode(kept).strip()
    assert len(written) > 1, "several tokens were decoded"


def test_an_answer_that_nobody_waits_for_any_more_is_not_written_to_its_end(
    engine: Engine, make_record: Callable[..., Record]
) -> None:
    commit(engine, [make_record("AAPL", offset) for offset in range(33)])
    replies: list[Answer | ErrorReply] = []
    engine.queries.ask(Query("AAPL", "Tell me about it", "full", patience_ms=3_600_000), replies.append)
    for _ in range(3):
        engine.step()
    (work,) = engine.scheduler.queries
    assert work.generated
    work.expires = 0.0
    engine.run_until_idle()
    (reply,) = replies
    assert isinstance(reply, ErrorReply)
    assert reply.status == 503
    engine.check_integrity()
    commit(engine, [make_record("AAPL", 33)])
    answer = ask(engine, "AAPL", "Tell me about it")
    assert isinstance(answer, Answer)
    assert answer.session_version == 34


def test_a_check_finds_the_full_paths_answer_of_that_time(
    engine: Engine, make_record: Callable[..., Record]
) -> None:
    """However many tokens the answer has, and though the session has moved on."""
    question, builder, desk = "What is the trend?", engine.builder, engine.verification
    unmoved = RiskSettings(check_share=1.0, budget=0.9, horizon=10**9)
    desk.control.monitor = RiskMonitor(unmoved, {"trend": ClassGate(0.0)})
    commit(engine, [make_record("AAPL", offset) for offset in range(40)])
    lengths = []
    for offset in range(40, 46):
        full = ask(engine, "AAPL", question)
        assert isinstance(full, Answer)
        session, before = engine.sessions["AAPL"], desk.calibration().classes[0]
        position = len(session.tokens) + len(builder.generic_entry)
        hashed = token_hash(session.tokens, builder.generic_entry)
        token = next(token for token, (kind, _) in builder.answers.items() if kind == "trend")
        check = Check(
            session="AAPL",
            question=question,
            question_class="trend",
            session_version=session.version,
            position=position,
            token=token,
            gap=99.0,
            token_hash=hashed,
        )
        commit(engine, [make_record("AAPL", offset)])
        steps = engine.counters.steps_total
        desk.offer(check)
        engine.run_until_idle()
        lengths.append(int(engine.counters.steps_total - steps))
        after = desk.calibration().classes[0]
        assert after.checks == before.checks + 1
        assert after.false_accepts - before.false_accepts == (full.answer != builder.answers[token][1])
    assert max(lengths) > 1, "several tokens were decoded"
