"""The two doors to a ready distribution, an API process on the board and the engine on its sessions, say the same
of the same version: answer, state word and evidence, or none of them an answer."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from query_api.errors import ApiError
from query_api.fast_path import FastPath
from query_api.metrics import ApiMetrics
from query_api.schemas import AnswerBody
from stream_engine.board.meta import board_meta
from stream_engine.board.writer import BoardWriter
from stream_engine.decision.gate import ClassGate
from stream_engine.messages import Answer, Assign, ErrorReply, OffsetBound, Query, Record, StandingPut
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.questions.router import Router
from tests.support.batches import batch_of

TOPIC = "market.bars"
LISTED = "What is the trend?"
REWORDED = "Which way is it going?"
STANDING = "What is the momentum?"
CLOCK_FIELDS = ("latency_us", "age_ms")
"""The only fields that two looks at one version may differ in."""


@pytest.fixture
def metrics() -> ApiMetrics:
    return ApiMetrics()


Doors = Callable[[Query], tuple[Answer | ErrorReply, AnswerBody | None]]


@pytest.fixture
def open_doors(
    make_bench: Callable[..., Any],
    make_record: Callable[..., Record],
    builder: TokenBuilder,
    metrics: ApiMetrics,
    tmp_path: Path,
) -> Callable[..., Doors]:
    """A session with ``bars`` bars, others beside it that may take its cells, and both doors to it."""
    router, boards = Router(builder.profile), count()

    def make(bars: int, *, tau: float, gap_end: int | None, others: int, standing: bool) -> Doors:
        bench = make_bench(sessions=2)
        gates = {builder.profile.generic_class.name: ClassGate(tau)}
        path = tmp_path / f"{next(boards)}.board"
        board = BoardWriter.create(path, board_meta(builder.profile, bench.gate), 16, 64, 1, 60.0)
        bench = make_bench(sessions=2, board=board)
        words = [
            token for token, (name, _) in builder.answers.items() if name == builder.profile.generic_class.name
        ]
        bench.runner.answers = words  # of another class the gate would let nothing through
        engine = bench.engine
        engine.assign(Assign(TOPIC, 0, 1, 0, 0))
        (partition,) = engine.ingest.partitions.all()
        partition.gap_end = gap_end
        if standing:
            engine.register(StandingPut("*", STANDING, "commit", "sq"))
        keys = ["A"] * bars + [f"other {number}" for number in range(others)]
        records = tuple(make_record(key, offset) for offset, key in enumerate(keys))
        assert engine.ingest.take(batch_of(records, last=len(keys) - 1, consumed=len(keys))) is None
        engine.run_until_idle()
        engine.ingest.settle()
        engine.gate_control.apply(gates)
        api = FastPath(path, 0, builder.profile.digest, metrics)

        def ask(query: Query) -> tuple[Answer | ErrorReply, AnswerBody | None]:
            try:
                at_api = api.answer(query, router.route(query.question, query.session))
            except ApiError:  # the bounds are not met: no answer here either
                at_api = None
            replies: list[Answer | ErrorReply] = []
            engine.queries.ask(query, replies.append)
            engine.run_until_idle()
            (at_engine,) = replies
            return at_engine, at_api

        return ask

    return make


def evidence(answer: Answer) -> dict[str, Any]:
    fields = msgspec.structs.asdict(answer)
    return {name: value for name, value in fields.items() if name not in CLOCK_FIELDS}


def unmet(bound: dict[str, Any]) -> Any:
    """An example that both doors would answer fast, but for its bound."""
    return example(
        bars=40, tau=-1.0, gap_end=None, others=0, standing=False, question=LISTED, path="auto", bound=bound
    )


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    bars=st.integers(1, 70),
    tau=st.sampled_from([-1.0, 2.0, 5.0, 99.0]),
    gap_end=st.sampled_from([None, None, 0, 5, 1_000]),
    others=st.integers(0, 3),
    standing=st.booleans(),
    question=st.sampled_from([LISTED, REWORDED, STANDING]),
    path=st.sampled_from(["auto", "fast"]),
    bound=st.sampled_from(
        [
            {},
            {"min_version": 3},
            {"min_version": 10_000},
            {"max_age_ms": 5_000},
            {"min_offset": OffsetBound(0, 3)},
            {"min_offset": OffsetBound(0, 10_000)},
            {"min_offset": OffsetBound(7, 0)},
        ]
    ),
)
@unmet({"min_version": 10_000})
@unmet({"min_offset": OffsetBound(0, 10_000)})
@unmet({"min_offset": OffsetBound(7, 0)})
def test_the_doors_say_the_same_of_the_same_version(
    open_doors: Callable[..., Doors],
    bars: int,
    tau: float,
    gap_end: int | None,
    others: int,
    standing: bool,
    question: str,
    path: Any,
    bound: dict[str, Any],
) -> None:
    doors = open_doors(bars, tau=tau, gap_end=gap_end, others=others, standing=standing)
    at_engine, at_api = doors(Query("A", question, path, **bound))
    if isinstance(at_engine, Answer) and at_engine.path == "fast":
        assert at_api is not None, "the engine serves what the API process would not"
        assert evidence(at_engine) == evidence(at_api)
    else:
        assert at_api is None, "the API process serves what the engine would not"


@pytest.mark.parametrize(("bars", "word"), [(10, "WARMING_UP"), (40, "LIVE"), (64, "LIVE")])
def test_the_state_word_is_one_at_every_door_and_on_every_path(
    open_doors: Callable[..., Doors], bars: int, word: str
) -> None:
    """64 bars fill the region (state FULL): that is about its next swap, and no answer says it."""
    doors = open_doors(bars, tau=-1.0, gap_end=None, others=0, standing=False)
    at_engine, at_api = doors(Query("A", LISTED))
    on_the_full_path, _ = doors(Query("A", LISTED, "full"))
    assert isinstance(at_engine, Answer)
    assert isinstance(on_the_full_path, Answer)
    assert {at_engine.state, on_the_full_path.state} == {word}
    assert (at_api is None) == (word == "WARMING_UP")
    assert at_api is None or at_api.state == word
