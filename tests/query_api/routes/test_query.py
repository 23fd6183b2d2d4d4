"""``POST /v1/sessions/{id}/query``: routing between the ready board and the engine."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from query_api.routes import query as route
from stream_engine.decision.entry import entry_key
from stream_engine.decision.ready import StateFlag
from stream_engine.messages import ErrorReply, Query
from stream_engine.util.timestamps import NO_TIME
from tests.support.api_service import DOWN, OTHER_TOKEN, TAU, TREND, answer

FIELDS = {
    "session", "question", "answer", "class", "path", "gate", "gap", "tau", "confidence", "fast_set_mass",
    "session_version", "topic", "partition", "offset", "event_time", "age_ms", "latency_us", "window_bars",
    "bars", "state", "entry_tokens", "reused_tokens", "model", "routed_by",
}  # fmt: skip


def test_a_trend_question_is_answered_from_the_board_alone(service):
    service.board.ready("AAPL", gap=5.0, version=42, age_ms=1500)

    reply = service.ask("AAPL", "  which way is the PRICE heading??")

    body = reply.json()
    assert reply.status_code == 200
    assert set(body) == FIELDS
    assert body["answer"] == "up"
    assert body["class"] == "trend"
    assert body["path"] == "fast"
    assert body["gate"] is True
    assert (body["gap"], body["tau"], body["fast_set_mass"]) == (5.0, TAU, 0.875)
    assert (body["session_version"], body["topic"], body["partition"], body["offset"]) == (
        42,
        "market.bars",
        1,
        41,
    )
    assert body["event_time"] == "2026-01-02T03:04:05Z"
    assert body["age_ms"] >= 1500
    assert (body["window_bars"], body["bars"], body["state"]) == (32, 32, "LIVE")
    assert body["question"] == "  which way is the PRICE heading??"
    assert service.engine.of(Query) == []


@pytest.mark.parametrize("gap", [5.0, 0.1])
def test_latency_is_from_the_request_to_the_reply_on_every_path(engine_answers, monkeypatch, gap):
    """In the answer in microseconds, in the histogram in seconds."""
    ticks = iter((1_000_000, 3_750_999))
    monkeypatch.setattr(route, "time", SimpleNamespace(perf_counter_ns=lambda: next(ticks)))
    engine_answers.board.ready(gap=gap)

    body = engine_answers.ask().json()

    assert (body["path"], body["latency_us"]) == ("fast" if gap == 5.0 else "fallthrough", 2750)
    path = {"path": body["path"]}
    assert engine_answers.metric("query_api_answer_seconds_sum", **path) == pytest.approx(0.002750999)
    assert engine_answers.metric("query_api_answer_seconds_count", **path) == 1


@pytest.mark.parametrize("gap", [TAU - 0.5, TAU + 5e-5])
def test_below_the_gate_or_within_its_noise_the_engine_decodes(engine_answers, gap):
    engine_answers.board.ready(gap=gap)

    body = engine_answers.ask().json()

    assert (body["path"], body["answer"]) == ("fallthrough", "down")
    assert "type" not in body
    assert engine_answers.engine.of(Query) == [Query("AAPL", TREND, patience_ms=5_000)]


def test_confidence_is_read_off_the_calibrated_curve_where_there_is_one(service):
    service.board.ready(gap=5.0)
    assert service.ask().json()["confidence"] is None
    service.board.writer.set_meta(service.board.meta(curve=((0.0, 0.5), (4.0, 0.97), (6.0, 0.99))))

    assert service.ask().json()["confidence"] == 0.97
    service.board.ready(gap=1.0)
    below = service.ask(path="fast").json()
    assert (below["gate"], below["confidence"]) == (False, 0.5)
    service.board.ready(key=entry_key("Could this be a rally?"), gap=0.01)
    assert service.ask(question="Could this be a rally?").json()["confidence"] == 1.0


def test_a_read_of_a_valid_slot_is_a_hit_whether_or_not_the_gate_fires(engine_answers):
    board = engine_answers.board
    board.ready("FIRES")
    board.ready("BELOW", gap=0.1)
    board.ready("UNREAD")
    for session in ("FIRES", "BELOW"):
        engine_answers.ask(session)
    engine_answers.ask("UNREAD", path="full")
    for session in ("FIRES", "BELOW", "UNREAD"):
        board.writer.invalidate(board.sessions[session])

    counters = board.writer.counters()

    assert (counters.completed, counters.hits, counters.wasted) == (3, 2, 1)


def test_a_standing_query_of_that_wording_needs_only_the_set_test(service):
    """Its token sequence is the same to the last token, so the gap proves nothing and is only reported."""
    question = "Could this be a rally?"
    service.board.ready(key=entry_key(question), gap=0.01)

    body = service.ask(question=f"  {question}").json()

    assert (body["path"], body["answer"], body["gate"], body["gap"], body["tau"]) == (
        "fast",
        "up",
        True,
        0.01,
        None,
    )


def test_a_standing_query_whose_top_token_is_no_answer_goes_to_the_engine(engine_answers):
    engine_answers.board.ready(key=entry_key(TREND), top1=OTHER_TOKEN, gap=9.0)

    assert engine_answers.ask().json()["path"] == "fallthrough"


def test_another_spelling_of_a_standing_query_is_another_token_sequence(engine_answers):
    """It is of the generic class, so the gate applies to it, on the generic distribution."""
    engine_answers.board.ready(key=entry_key(TREND), gap=0.01)

    assert engine_answers.ask(question=TREND.lower()).json()["path"] == "fallthrough"


def test_path_full_never_reads_the_board(engine_answers):
    engine_answers.board.ready()

    assert engine_answers.ask(path="full").json()["path"] == "fallthrough"
    assert engine_answers.engine.of(Query)[0].path == "full"


def test_path_fast_serves_below_the_gate_and_says_so(service):
    service.board.ready(gap=0.5, top1=DOWN)

    body = service.ask(path="fast").json()

    assert (body["path"], body["answer"], body["gate"], body["tau"]) == ("fast", "down", False, TAU)
    assert service.metric("query_api_fast_path_total", outcome="below_gate") == 1


def test_path_fast_without_a_ready_distribution_is_409(service):
    refusal = ErrorReply(409, "no_ready_distribution", "nothing is ready for 'AAPL'")
    service.engine.on[Query] = lambda query: refusal if query.path == "fast" else None

    reply = service.ask(path="fast")

    assert reply.status_code == 409
    assert reply.json() == {"error": {"type": "no_ready_distribution", "message": "nothing is ready for 'AAPL'"}}


def test_a_session_that_warms_up_has_no_fast_path(engine_answers):
    engine_answers.board.ready(flags=StateFlag.WARMING_UP)

    assert engine_answers.ask().json()["path"] == "fallthrough"
    assert engine_answers.ask(path="fast").json()["path"] == "fallthrough"


def test_an_incomplete_window_is_answered_and_named(service):
    service.board.ready(flags=StateFlag.INCOMPLETE)

    assert service.ask().json()["state"] == "INCOMPLETE"


def test_an_invalidated_slot_is_not_served(engine_answers):
    engine_answers.board.ready()
    engine_answers.board.writer.invalidate(engine_answers.board.sessions["AAPL"])

    assert engine_answers.ask().json()["path"] == "fallthrough"
    assert engine_answers.metric("query_api_fast_path_total", outcome="invalid") == 1


def test_a_closed_class_is_not_served(engine_answers):
    engine_answers.board.ready()
    assert engine_answers.ask().json()["path"] == "fast"
    engine_answers.board.writer.set_meta(engine_answers.board.meta(is_open=False))

    assert engine_answers.ask().json()["path"] == "fallthrough"


def test_a_raised_tau_applies_at_once(engine_answers):
    engine_answers.board.ready(gap=5.0)
    assert engine_answers.ask().json()["path"] == "fast"
    engine_answers.board.writer.set_meta(engine_answers.board.meta(tau=6.0))

    assert engine_answers.ask().json()["path"] == "fallthrough"


def test_a_board_of_another_profile_is_not_trusted(engine_answers):
    engine_answers.board.profile_digest = "another"
    engine_answers.board.writer.set_meta(engine_answers.board.meta())
    engine_answers.board.ready()

    assert engine_answers.ask().json()["path"] == "fallthrough"
    assert engine_answers.metric("query_api_fast_path_total", outcome="other_profile") == 1


def test_an_engine_that_stopped_its_heartbeat_leaves_no_answers(make_service):
    service = make_service(lease_s=1e-6)
    service.board.ready()

    reply = service.ask()

    assert reply.status_code == 404  # the scripted engine's own refusal: the board was not believed
    assert service.metric("query_api_fast_path_total", outcome="lease") == 1


def test_a_dead_engine_is_503_with_retry_after(make_service):
    service = make_service(lease_s=1e-6)
    service.board.ready()
    service.engine.on[Query] = lambda _: None

    reply = service.ask()

    assert reply.status_code == 503
    assert reply.json()["error"]["type"] == "engine_unavailable"
    assert reply.headers["retry-after"] == "1"


def test_without_a_board_every_question_goes_to_the_engine(make_service):
    service = make_service(board=False)
    service.engine.on[Query] = lambda query: answer(session=query.session)

    assert service.ask().json()["path"] == "fallthrough"
    assert service.metric("query_api_fast_path_total", outcome="no_board") == 1


@pytest.mark.parametrize(
    ("encoded", "name"),
    [
        ("BTC%2FUSD", "BTC/USD"),
        ("BTC/USD", "BTC/USD"),
        ("%5EGSPC", "^GSPC"),
        ("EURUSD%3DX", "EURUSD=X"),
        ("BRK.B", "BRK.B"),
        ("a%2Fquery", "a/query"),
        ("A%20+%C3%BC", "A +ü"),
    ],
)
def test_symbols_are_ids(engine_answers, encoded, name):
    engine_answers.board.ready(name)

    fast = engine_answers.ask(encoded)
    full = engine_answers.ask(encoded, path="full")

    assert (fast.json()["session"], fast.json()["path"]) == (name, "fast")
    assert full.json()["session"] == name


def test_a_question_the_model_does_not_answer_names_what_can_be_asked(service):
    reply = service.ask(question="Will it rain tomorrow?")

    error = reply.json()["error"]
    assert reply.status_code == 422
    assert (error["type"], error["param"], error["code"]) == (
        "invalid_request_error",
        "question",
        "question_not_supported",
    )
    assert "trend (up/down/flat)" in error["message"]
    assert TREND in error["message"]
    assert service.engine.of(Query) == []


def test_the_engines_refusal_is_the_callers_error(service):
    service.engine.on[Query] = lambda _: ErrorReply(
        status=503, kind="rebuilding", message="being rebuilt", param="session", code="replay", retry_after_s=2.2
    )

    reply = service.ask()

    assert reply.status_code == 503
    assert reply.headers["retry-after"] == "3"
    assert reply.json() == {
        "error": {"type": "rebuilding", "message": "being rebuilt", "param": "session", "code": "replay"}
    }


def test_a_session_without_bars_has_no_event_time(service):
    service.board.ready(event_time_us=NO_TIME)

    assert service.ask().json()["event_time"] is None


def test_an_engine_that_has_its_hands_full_is_429_with_the_time_to_come_again(service):
    service.engine.on[Query] = lambda _: ErrorReply(429, "overloaded", "ask again", retry_after_s=1.0)

    reply = service.ask()

    assert reply.status_code == 429
    assert reply.json()["error"] == {"type": "overloaded", "message": "ask again"}
    assert reply.headers["retry-after"] == "1"
    assert (
        "429"
        in service.http.get("/openapi.json").json()["paths"]["/v1/sessions/{session}/query"]["post"]["responses"]
    )


def test_the_engine_is_told_how_long_a_query_is_waited_for(make_service):
    """With no engine that holds the lease it is not waited for as long, and dropped as early."""
    service = make_service(board=False)
    service.engine.on[Query] = lambda query: answer(session=query.session, question=query.question)

    service.ask(path="full", wait_ms=1_000)

    assert service.engine.of(Query)[0].patience_ms == 1_200


def test_an_answer_slower_than_the_engine_timeout_but_within_wait_ms_is_awaited(make_service):
    service = make_service(engine_timeout_s=5.0)
    service.engine.on[Query] = lambda query: answer() if query.wait_ms == 200 else None

    assert service.ask(wait_ms=200).status_code == 200


def test_outcomes_and_latency_are_measured(engine_answers):
    engine_answers.board.ready()
    engine_answers.ask()
    engine_answers.ask(path="full")

    assert engine_answers.metric("query_api_fast_path_total", outcome="fired") == 1
    assert engine_answers.metric("query_api_answer_seconds_count", path="fast") == 1
    assert engine_answers.metric("query_api_answer_seconds_count", path="fallthrough") == 1
    route = "/v1/sessions/{session:path}/query"
    assert engine_answers.metric("query_api_requests_total", route=route, status="200", method="POST") == 2
