"""An engine on the fake model, records to feed it, and a small chat model on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stream_engine.board.writer import BoardWriter
from stream_engine.config.engine import EngineSettings
from stream_engine.config.risk import RiskSettings
from stream_engine.decision.gate import ClassGate, FastAnswer, Gate
from stream_engine.engine.engine import UNWATCHED, Engine
from stream_engine.messages import Assign, Bar, Event, Record
from stream_engine.model.forward.distribution import Distribution
from stream_engine.model.profile import EMBEDDED
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.risk.monitor import RiskMonitor
from stream_engine.session.cell_budget import BudgetShape
from stream_engine.state.engine_state import new_state
from stream_engine.state.live_gate import LiveGate
from stream_engine.state.publication import BoardPublication
from tests.support.checks import OTHER_WORDING, TREND, word_token
from tests.support.engine_bench import TOPIC, Bench, FakeRunner


@pytest.fixture(scope="session")
def builder() -> TokenBuilder:
    return TokenBuilder.load(EMBEDDED)


CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def tiny_chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as one gets it from the hub: a tiny random Llama, a small BPE tokenizer, a chat template."""
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("tiny-chat")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    words = ["Trend: up", "Trend: down", "Trend: flat", "Answer: Up", "What is the trend?", "system user"]
    tokenizer.train_from_iterator(words * 20, trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in ("<|im_start|>", "<|im_end|>")])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", chat_template=CHAT_TEMPLATE, model_max_length=1024
    )
    wrapped.save_pretrained(folder)
    torch.manual_seed(11)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=64,  # quantized blocks are of 64 weights
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        initializer_range=0.25,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def make_bar() -> Callable[..., Bar]:
    def make(index: int, close: float = 100.0, **changes: Any) -> Bar:
        values: dict[str, Any] = {
            "time_us": index * 60_000_000,
            "open": close,
            "high": close + 0.5,
            "low": close - 0.5,
            "close": close,
            "volume": 10.0,
        }
        return Bar(**{**values, **changes})

    return make


@pytest.fixture
def make_record(make_bar: Callable[..., Bar]) -> Callable[..., Record]:
    """A record of one bar; its close walks so that regions have a unit."""

    def make(key: str, offset: int, index: int | None = None, close: float | None = None) -> Record:
        number = offset if index is None else index
        price = 100 + (number * 7 % 11) * 0.5 if close is None else close
        return Record(key, offset, 1_000 + offset, (make_bar(number, price),))

    return make


@pytest.fixture
def make_bench(builder: TokenBuilder) -> Callable[..., Bench]:
    def make(
        *,
        sessions: int = 3,
        slab: int | None = None,
        extents: int | None = None,
        board: BoardWriter | None = None,
        risk: RiskSettings = UNWATCHED,
        emit: Callable[[Event], None] | None = None,
        **settings: Any,
    ) -> Bench:
        profile = builder.profile
        prefix = len(builder.prefix)
        region = prefix + builder.max_anchor_tokens + profile.region_bars * builder.tokens_per_bar
        reserve = prefix + builder.max_anchor_tokens + profile.window_bars * builder.tokens_per_bar
        shape = BudgetShape(
            sessions, slab or region + 64, 2 * sessions if extents is None else extents, reserve, prefix
        )
        runner = FakeRunner(shape.cells, sorted(builder.answers))
        runner.cells[shape.prefix_base :] = builder.prefix
        answers = {token: FastAnswer(*answer) for token, answer in builder.answers.items()}
        gate = Gate({profile.generic_class.name: ClassGate(2.0)}, answers, 0.0)
        bench: Bench
        live = LiveGate(gate)
        publication = None if board is None else BoardPublication(board, profile, live)
        made = EngineSettings(check_integrity=True, **settings)
        engine = Engine(
            made,
            builder,
            runner,
            new_state(made, builder, shape, live, publication),
            emit or (lambda event: bench.events.append(event)),
            RiskMonitor(risk, gate.classes),
        )
        bench = Bench(engine, runner, builder, shape, gate)
        return bench

    return make


@pytest.fixture
def fed(make_bench: Callable[..., Any], make_record: Callable[..., Record]) -> Callable[..., Any]:
    """A bench whose sessions hold ``bars`` bars each, one batch a round."""

    def make(keys: tuple[str, ...] = ("AAPL",), bars: int = 40, **options: Any) -> Any:
        bench = make_bench(**options)
        bench.engine.assign(Assign(TOPIC, 0, 1, 0, 0))
        offset = 0
        for index in range(bars):
            round_ = [make_record(key, offset + n, index) for n, key in enumerate(keys)]
            bench.feed(round_, offset - 1)
            offset += len(keys)
        return bench

    return make


@pytest.fixture
def planted(fed: Callable[..., Any], make_record: Callable[..., Record]) -> Callable[..., Any]:
    """A session whose header says one word and whose questions another, with a gap of 5 each."""

    def make(header: str, full: str, bars: int = 40, **options: Any) -> Any:
        bench = fed(bars=bars - 1, **options)
        entries = [bench.builder.query_entry(question) for question in (TREND, OTHER_WORDING)]

        def predict(path: Sequence[int]) -> Distribution:
            asked = any(tuple(path[-len(entry) :]) == entry for entry in entries)
            return Distribution(word_token(bench, full if asked else header), 0, 5.0, 5.0, 6.0, 0.9)

        bench.runner.predict = predict
        bench.feed([make_record("AAPL", bars - 1)], bars - 2)
        return bench

    return make


@pytest.fixture
def ask_anew(make_record: Callable[..., Record]) -> Callable[..., Any]:
    """Asks after one more bar: of a decision point that was not asked about before."""

    def ask(bench: Any, question: str = TREND) -> Any:
        offset = bench.engine.sessions["AAPL"].version
        bench.feed([make_record("AAPL", offset)], offset - 1)
        return bench.ask("AAPL", question)

    return ask
