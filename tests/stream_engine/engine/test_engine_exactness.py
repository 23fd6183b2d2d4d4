"""The whole engine against plain `transformers` forwards of the same token sequences, on three architectures."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from stream_engine.config.engine import EngineSettings
from stream_engine.config.risk import RiskSettings
from stream_engine.engine.engine import UNWATCHED, Engine
from stream_engine.messages import Answer, Assign, Check, ErrorReply, Query, Record, StandingPut
from stream_engine.model.backbones.backbone import Backbone
from stream_engine.model.backbones.model_runner import ModelRunner
from stream_engine.model.forward.distribution import Distribution
from stream_engine.model.forward.step import Segment
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.process.configured_budget import budget_shape
from stream_engine.process.configured_gate import build_gate
from stream_engine.risk.monitor import RiskMonitor
from stream_engine.session.token_hash import token_hash
from stream_engine.state.engine_state import new_state
from stream_engine.state.live_gate import LiveGate
from tests.support.batches import batch_of
from tests.support.kv_memory import kv_memory_for

WINDOW = 11
"""Sliding window in tokens, far shorter than any region: a wrong distance cannot go unseen."""

NOISE = 2e-4

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {"head_dim": 12},
    "gemma3_text": {
        "head_dim": 12,
        "query_pre_attn_scalar": 12,
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention", "full_attention"],
    },
}
QUESTION = "What is the trend?"


class Exact:
    """An engine on random weights, and the same weights behind a plain forward."""

    def __init__(
        self, family: str, builder: TokenBuilder, risk: RiskSettings = UNWATCHED, **settings: Any
    ) -> None:
        torch.manual_seed(5)
        config = CONFIG_MAPPING[family](
            vocab_size=builder.vocab_size,
            hidden_size=36,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=3,
            num_key_value_heads=1,
            max_position_embeddings=512,
            initializer_range=0.25,
            **FAMILIES[family],
        )
        self.builder = builder
        self.plain = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        self.settings = EngineSettings(kv_memory=kv_memory_for(2), check_integrity=True, **settings)
        shape = budget_shape(self.settings, builder)
        runner = ModelRunner(Backbone(copy.deepcopy(self.plain), shape.cells), sorted(builder.answers))
        runner.run([Segment(shape.prefix_base, 0, builder.prefix)])
        gate = build_gate(builder)
        monitor = RiskMonitor(risk, gate.classes)
        self.engine = Engine(
            self.settings, builder, runner, new_state(self.settings, builder, shape, LiveGate(gate)), risk=monitor
        )
        self.engine.assign(Assign("market.bars", 0, 1, 0, 0))
        self.offset = 0
        self.checked = 0

    def commit(self, records: list[Record]) -> None:
        follows, self.offset = self.offset - 1, self.offset + len(records)
        batch = batch_of(records, follows, last=self.offset - 1)
        assert self.engine.ingest.take(batch) is None
        self.engine.run_until_idle()
        self.engine.check_integrity()

    def ask(self, session: str, question: str) -> Answer:
        replies: list[Answer | ErrorReply] = []
        self.engine.queries.ask(Query(session, question, "full"), replies.append)
        self.engine.run_until_idle()
        (answer,) = replies
        assert isinstance(answer, Answer)
        return answer

    def from_scratch(self, session: str, entry: tuple[int, ...]) -> tuple[float, int]:
        """Gap and top-1 of a plain forward of token log + entry."""
        tokens = torch.tensor([[*self.engine.sessions[session].tokens, *entry]])
        with torch.inference_mode():
            logits = self.plain(input_ids=tokens, use_cache=False).logits[0, -1]
        values, ids = logits.topk(2)
        return float(values[0] - values[1]), int(ids[0])

    def check(self, session: str, entry: tuple[int, ...], gap: float, top1: int | None = None) -> None:
        self.agrees((gap, top1), self.from_scratch(session, entry))

    def agrees(self, found: tuple[float, int | None], expected: tuple[float, int]) -> None:
        """Gaps within float noise, and one argmax where that decides it."""
        assert found[0] == pytest.approx(expected[0], abs=NOISE)
        if found[1] is not None and expected[0] > NOISE:
            assert found[1] == expected[1]
        self.checked += 1

    def check_ready(self) -> None:
        """Every ready distribution that the engine holds."""
        for session in self.engine.sessions.values():
            for entry in self.engine.entries.of(session):
                ready = session.ready.get(entry.key)
                if ready is not None:
                    self.check(session.id, entry.tokens, ready.gap, ready.top1)
                    assert ready.position == len(session.tokens) + len(entry.tokens)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("step_tokens", [40, 512])
def test_every_distribution_equals_a_plain_forward(
    family: str, step_tokens: int, builder: TokenBuilder, make_record: Callable[..., Record]
) -> None:
    """Appends in random chunks to three sessions on cells for two, corrections, swaps, evictions, standing
    and ad-hoc questions."""
    exact = Exact(family, builder, step_tokens=step_tokens)
    exact.engine.register(StandingPut("B", QUESTION))
    chance = random.Random(f"{family}{step_tokens}")
    bars = dict.fromkeys("ABC", 0)
    for _ in range(14):
        records = []
        for key in chance.sample("ABC", chance.randint(1, 3)):
            for _ in range(chance.choice([1, 2, 17, 40])):
                index = bars[key]
                if index > 3 and chance.random() < 0.05:
                    index = chance.randint(index - 3, index - 1)  # a correction
                else:
                    bars[key] += 1
                close = 100 + chance.gauss(0, 2)
                records.append(make_record(key, exact.offset + len(records), index, close))
        exact.commit(records)
        exact.check_ready()
        asked = chance.choice([key for key in "ABC" if key in exact.engine.sessions])
        for question in chance.sample([QUESTION, "What is the momentum?", "Which way is it going?"], 2):
            if exact.engine.router.route(question).question_class is not None:
                answer = exact.ask(asked, question)
                exact.check(asked, builder.query_entry(question), answer.gap)
    assert exact.engine.counters.swaps_total > 3
    assert exact.engine.counters.evictions_total > 0
    assert exact.checked > 40


@pytest.mark.parametrize("family", FAMILIES)
def test_a_check_of_an_old_version_equals_the_full_path_of_that_time(
    family: str, builder: TokenBuilder, make_record: Callable[..., Record]
) -> None:
    """Versions at many fills, checked at once or when the session has moved on by up to 20 bars, some of them
    corrected meanwhile; what a swap or a correction has taken away is dropped."""
    # Random weights disagree with themselves all the time: a budget that lets them.
    exact = Exact(family, builder, RiskSettings(check_share=1.0, budget=0.9, horizon=10**9))
    desk, entry, chance = (
        exact.engine.verification,
        builder.query_entry(QUESTION),
        random.Random(f"check {family}"),
    )
    up = next(token for token, answer in builder.answers.items() if answer == ("trend", "up"))
    judged: list[Distribution] = []
    finish = desk.finish

    def watching(work: Any, logits: Distribution) -> None:
        judged.append(logits)
        finish(work, logits)

    desk.finish = watching  # type: ignore[method-assign]
    waiting: list[tuple[Check, tuple[float, int], int]] = []
    bars = late = 0
    for _ in range(18):
        closes = [100 + chance.gauss(0, 2) for _ in range(chance.choice([1, 2, 3, 16]))]
        records = [make_record("A", exact.offset + n, bars + n, close) for n, close in enumerate(closes)]
        bars += len(closes)
        if chance.random() < 0.3:
            records.append(make_record("A", exact.offset + len(closes), bars - 1, 100 + chance.gauss(0, 2)))
        exact.commit(records)
        session = exact.engine.sessions["A"]
        hashed = token_hash(session.tokens, builder.generic_entry)
        position = len(session.tokens) + len(builder.generic_entry)
        check = Check(
            session="A",
            question=QUESTION,
            question_class="trend",
            session_version=session.version,
            position=position,
            token=up,
            gap=99.0,
            token_hash=hashed,
        )
        waiting.append((check, exact.from_scratch("A", entry), bars))
        for offered in [offered for offered in waiting if bars - offered[2] > 20 or chance.random() < 0.3]:
            waiting.remove(offered)
            judged.clear()
            desk.offer(offered[0])
            exact.engine.run_until_idle()
            for logits in judged:
                exact.agrees((logits.gap, logits.top1), offered[1])
                late += offered[2] < bars
        exact.engine.check_integrity()
    exact.check_ready()
    assert exact.engine.sessions["A"].swaps > 0
    assert desk.control.monitor.dropped["changed"] > 0
    assert late > 4
