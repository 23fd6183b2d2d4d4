"""Standing queries by way of their topic: what the engine tells the API, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_engine.messages import (
    AnswerChanged,
    AnswerGone,
    Done,
    ErrorReply,
    RegistryApplied,
    RegistryHello,
    RegistrySnapshot,
    StandingApply,
    StandingDelete,
    StandingPut,
    StandingQueries,
    StandingWrite,
    Welcome,
)
from stream_engine.messages.transport import Peer
from stream_engine.process.registration import REGISTRY_LOST_S, WRITE_WITHIN_S, Registration
from stream_engine.session.session import Source

TREND = "What is the trend?"
API, REGISTRY, OTHER = Peer(b"api", b"1"), Peer(b"registry"), Peer(b"other")


class Desk:
    """A registration on a fake model, with everything it sent out."""

    def __init__(self, bench: Any) -> None:
        self.now = 100.0
        self.sent: list[tuple[Peer, Any]] = []
        self.withdrawn: list[AnswerGone] = []
        self.engine = bench.engine
        self.registration = Registration(
            bench.engine, lambda peer, message: self.sent.append((peer, message)), self.withdrawn.append,
            lambda: self.now,
        )  # fmt: skip

    def snapshot(self, *queries: StandingApply, offset: int = 0, answers: tuple[AnswerChanged, ...] = ()) -> None:
        self.registration.handle(REGISTRY, RegistrySnapshot(offset, queries, answers))
        assert self.take()[-1][0] == REGISTRY

    def take(self) -> list[tuple[Peer, Any]]:
        sent, self.sent = self.sent, []
        return sent

    def ids(self) -> set[str]:
        return {query.id for query in self.engine.standing.all()}


@pytest.fixture
def desk(make_bench: Callable[..., Any]) -> Desk:
    return Desk(make_bench())


def put(offset: int, query_id: str, pattern: str = "*", question: str = TREND, token: str | None = None) -> Any:
    return StandingApply(offset, query_id, StandingPut(pattern, question, "change", query_id), token)


def told(session: str, query: str, version: int = 5, **changes: Any) -> AnswerChanged:
    values: dict[str, Any] = {"question": TREND, "answer": "up", **changes}
    return AnswerChanged(
        session, query, previous=None, initial=True, class_="trend", gap=1.0, confidence=None,
        session_version=version, topic="bars", partition=0, offset=version - 1, event_time=None, **values,
    )  # fmt: skip


def test_nothing_is_known_before_the_first_snapshot(desk: Desk) -> None:
    for action in (
        lambda: desk.registration.put(API, StandingPut("*", TREND)),
        lambda: desk.registration.delete(API, StandingDelete("q")),
    ):
        action()
        [(peer, reply)] = desk.take()
        assert (peer, reply.status) == (API, 503)
    assert desk.registration.unavailable() is not None
    desk.snapshot(put(0, "q"))
    assert desk.registration.unavailable() is None
    assert desk.ids() == {"q"}


def test_a_request_is_answered_once_its_record_has_come_back(desk: Desk) -> None:
    desk.snapshot(offset=3)
    desk.registration.put(API, StandingPut("EUR*", f" {TREND}  ", "commit", "mine"))
    [(peer, write)] = desk.take()
    assert peer == REGISTRY
    assert write == StandingWrite(write.token, "mine", StandingPut("EUR*", TREND, "commit", "mine"))
    assert desk.ids() == set()

    desk.registration.handle(REGISTRY, StandingApply(4, "mine", write.query, write.token))
    (api, reply), (registry, applied) = desk.take()
    assert (api, registry) == (API, REGISTRY)
    assert isinstance(reply, StandingQueries)
    assert applied == RegistryApplied(desk.engine.boot_id, 4, False)

    desk.registration.delete(API, StandingDelete("mine"))
    [(_, write)] = desk.take()
    assert (write.id, write.query) == ("mine", None)
    desk.registration.handle(REGISTRY, StandingApply(5, "mine", None, write.token))
    assert desk.take()[0] == (API, Done())
    assert desk.ids() == set()


def test_ids_are_chosen_where_none_is_given_and_differ(desk: Desk) -> None:
    desk.snapshot()
    for _ in range(2):
        desk.registration.put(API, StandingPut("*", TREND))
    first, second = (write.id for _, write in desk.take())
    assert first != second


@pytest.mark.parametrize(
    ("request_", "param"),
    [(StandingPut("*", "Will it rain?"), "question"), (StandingPut("*", TREND, id="a|b"), "id")],
)
def test_what_cannot_be_registered_is_refused_before_it_is_written(
    desk: Desk, request_: StandingPut, param: str
) -> None:
    desk.snapshot()
    desk.registration.put(API, request_)
    [(peer, reply)] = desk.take()
    assert (peer, reply.status, reply.param) == (API, 422, param)


def test_an_unknown_query_cannot_be_deleted(desk: Desk) -> None:
    desk.snapshot()
    desk.registration.delete(API, StandingDelete("q"))
    assert desk.take()[0][1].status == 404


def test_a_registry_that_is_silent_is_not_waited_for(desk: Desk) -> None:
    desk.snapshot()
    desk.now += REGISTRY_LOST_S
    desk.registration.put(API, StandingPut("*", TREND))
    assert desk.take()[0][1].status == 503
    desk.registration.handle(OTHER, RegistryHello())
    assert desk.take() == [(OTHER, Welcome(desk.engine.boot_id, 0))]
    desk.registration.put(API, StandingPut("*", TREND))
    assert desk.take()[0][0] == OTHER


def test_a_write_that_does_not_come_back_is_answered_and_forgotten(desk: Desk) -> None:
    desk.snapshot()
    desk.registration.put(API, StandingPut("*", TREND))
    [(_, write)] = desk.take()
    desk.registration.expire()
    assert desk.take() == []
    desk.now += WRITE_WITHIN_S
    desk.registration.expire()
    [(peer, reply)] = desk.take()
    assert isinstance(reply, ErrorReply)
    assert (peer, reply.status) == (API, 503)
    desk.registration.handle(REGISTRY, StandingApply(1, write.id, write.query, write.token))
    assert [peer for peer, _ in desk.take()] == [REGISTRY]
    assert desk.ids() == {write.id}


def test_records_are_applied_once_in_order_whichever_registry_is_quicker(desk: Desk) -> None:
    desk.snapshot(put(0, "q"))
    desk.registration.handle(REGISTRY, put(1, "q", "EUR*"))
    desk.registration.handle(OTHER, put(0, "q"))
    desk.registration.handle(OTHER, RegistrySnapshot(0, (put(0, "q"),), ()))
    assert desk.engine.standing.get("q").session == "EUR*"
    assert [message.offset for _, message in desk.take()] == [1, 0, 0]


def test_a_snapshot_replaces_what_was_registered(desk: Desk) -> None:
    desk.snapshot(put(0, "a"), put(1, "b"), offset=1)
    desk.snapshot(put(1, "b"), put(3, "c"), offset=3)
    assert desk.ids() == {"b", "c"}


def test_a_question_the_model_does_not_answer_is_refused_and_ends_the_query(desk: Desk) -> None:
    desk.snapshot(put(0, "q"))
    desk.registration.handle(REGISTRY, put(1, "q", question="Will it rain?"))
    [(_, applied)] = desk.take()
    [refused] = applied.refused
    assert (refused.offset, refused.reason) == (1, "question_not_supported")
    assert desk.ids() == set()


def test_answers_that_nothing_asks_for_any_more_are_withdrawn(desk: Desk) -> None:
    answers = (told("AAPL", "q"), told("EURUSD", "q"), told("AAPL", "gone"))
    desk.snapshot(put(0, "q"), answers=answers)
    assert desk.registration.orphans(Source("bars", 0)) == [AnswerGone("AAPL", "gone", "bars", 0, 4)]
    assert desk.registration.orphans(Source("bars", 1)) == []
    desk.registration.handle(REGISTRY, put(1, "q", "EUR*"))
    assert desk.withdrawn == [AnswerGone("AAPL", "q", "bars", 0, 4)]


def test_a_restart_tells_no_unchanged_answer_again_and_knows_the_one_before(
    desk: Desk, make_record: Callable[..., Any]
) -> None:
    desk.snapshot(put(0, "q"), answers=(told("AAPL", "q", 5, answer="flat"),))
    evaluated = desk.engine.standing.evaluated
    assert evaluated(told("AAPL", "q", 4, answer="down"), "change") is None
    assert evaluated(told("AAPL", "q", 5, answer="down"), "commit") is None
    assert desk.engine.standing.answers("AAPL", "q")[0].answer == "flat"
    assert evaluated(told("AAPL", "q", 6, answer="flat"), "change") is None
    changed = evaluated(told("AAPL", "q", 7, answer="up"), "change")
    assert (changed.previous, changed.initial) == ("flat", False)


def test_another_question_under_the_same_id_is_a_first_evaluation(desk: Desk) -> None:
    desk.snapshot(put(0, "q"), answers=(told("AAPL", "q", 5, question="another"),))
    first = desk.engine.standing.evaluated(told("AAPL", "q", 5), "change")
    assert (first.previous, first.initial) == (None, True)
