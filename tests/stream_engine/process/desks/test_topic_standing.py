"""Standing queries by way of their topic: what the engine tells the API, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stream_engine.messages import (
    AnswerChanged,
    AnswerGone,
    Assign,
    Done,
    ErrorReply,
    EvaluationsWritten,
    RegistryApplied,
    RegistryHello,
    RegistrySnapshot,
    StandingApply,
    StandingDelete,
    StandingPut,
    StandingQueries,
    StandingRequest,
    StandingWrite,
    Welcome,
)
from stream_engine.messages.transport import Peer
from stream_engine.process.desks.topic_standing import TopicStandingDesk
from stream_engine.session.session import Source

TREND = "What is the trend?"
API, REGISTRY, OTHER = Peer(b"api", b"1"), Peer(b"registry"), Peer(b"other")


class Bench:
    """A desk on a fake model that owns no partition yet, with everything it sent out."""

    def __init__(self, bench: Any) -> None:
        self.now = 100.0
        self.sent: list[tuple[Peer, Any]] = []
        self.engine = bench.engine
        self.desk = TopicStandingDesk(
            bench.engine, lambda peer, message: self.sent.append((peer, message)), lambda: self.now
        )

    def own(self, partition: int) -> None:
        self.engine.assign(Assign("bars", partition, 1, 0, 0))

    def handed_out(self) -> list[AnswerChanged | AnswerGone]:
        return [answer for evaluations in self.desk.evaluations() for answer in evaluations.answers]

    def snapshot(self, *queries: StandingApply, offset: int = 0, answers: tuple[AnswerChanged, ...] = ()) -> None:
        self.desk.replace(REGISTRY, RegistrySnapshot(offset, queries, answers))
        assert self.take()[-1][0] == REGISTRY

    def take(self) -> list[tuple[Peer, Any]]:
        sent, self.sent = self.sent, []
        return sent

    def ids(self) -> set[str]:
        return {query.id for query in self.engine.standing.all()}


@pytest.fixture
def bench(make_bench: Callable[..., Any]) -> Bench:
    return Bench(make_bench())


def put(offset: int, query_id: str, pattern: str = "*", question: str = TREND, token: str | None = None) -> Any:
    return StandingApply(offset, query_id, StandingPut(pattern, question, "change", query_id), token)


def told(session: str, query: str, version: int = 5, **changes: Any) -> AnswerChanged:
    values: dict[str, Any] = {"question": TREND, "answer": "up", **changes}
    return AnswerChanged(
        session, query, previous=None, initial=True, class_="trend", gap=1.0, confidence=None,
        session_version=version, topic="bars", partition=0, offset=version - 1, event_time=None, **values,
    )  # fmt: skip


def test_nothing_is_known_before_the_first_snapshot(bench: Bench) -> None:
    for action in (
        lambda: bench.desk.put(API, StandingPut("*", TREND)),
        lambda: bench.desk.delete(API, StandingDelete("q")),
    ):
        action()
        [(peer, reply)] = bench.take()
        assert (peer, reply.status) == (API, 503)
    assert bench.desk.unavailable() is not None
    bench.snapshot(put(0, "q"))
    assert bench.desk.unavailable() is None
    assert bench.ids() == {"q"}


def test_a_request_is_answered_once_its_record_has_come_back(bench: Bench) -> None:
    bench.snapshot(offset=3)
    bench.desk.put(API, StandingPut("EUR*", f" {TREND}  ", "commit", "mine"))
    [(peer, write)] = bench.take()
    assert peer == REGISTRY
    assert write == StandingWrite(write.token, "mine", StandingPut("EUR*", TREND, "commit", "mine"))
    assert bench.ids() == set()

    bench.desk.apply(REGISTRY, StandingApply(4, "mine", write.query, write.token))
    (api, reply), (registry, applied) = bench.take()
    assert (api, registry) == (API, REGISTRY)
    assert isinstance(reply, StandingQueries)
    assert applied == RegistryApplied(bench.engine.boot_id, 4, False)

    bench.desk.delete(API, StandingDelete("mine"))
    [(_, write)] = bench.take()
    assert (write.id, write.query) == ("mine", None)
    bench.desk.apply(REGISTRY, StandingApply(5, "mine", None, write.token))
    assert bench.take()[0] == (API, Done())
    assert bench.ids() == set()


def test_ids_are_chosen_where_none_is_given_and_differ(bench: Bench) -> None:
    bench.snapshot()
    for _ in range(2):
        bench.desk.put(API, StandingPut("*", TREND))
    first, second = (write.id for _, write in bench.take())
    assert first != second


@pytest.mark.parametrize(
    ("request_", "param"),
    [(StandingPut("*", "Will it rain?"), "question"), (StandingPut("*", TREND, id="a|b"), "id")],
)
def test_what_cannot_be_registered_is_refused_before_it_is_written(
    bench: Bench, request_: StandingPut, param: str
) -> None:
    bench.snapshot()
    bench.desk.put(API, request_)
    [(peer, reply)] = bench.take()
    assert (peer, reply.status, reply.param) == (API, 422, param)


def test_an_unknown_query_cannot_be_deleted(bench: Bench) -> None:
    bench.snapshot()
    bench.desk.delete(API, StandingDelete("q"))
    assert bench.take()[0][1].status == 404


def test_a_registry_that_is_silent_is_not_waited_for(bench: Bench) -> None:
    bench.snapshot()
    bench.now += 4.9
    bench.desk.put(API, StandingPut("*", TREND))
    assert bench.take()[0][0] == REGISTRY
    bench.now += 0.1
    bench.desk.put(API, StandingPut("*", TREND))
    assert bench.take()[0][1].status == 503
    bench.desk.greet(OTHER, RegistryHello())
    assert bench.take() == [(OTHER, Welcome(bench.engine.boot_id, 0, OTHER.identity))]
    bench.desk.put(API, StandingPut("*", TREND))
    assert bench.take()[0][0] == OTHER


def test_a_write_that_does_not_come_back_is_answered_and_forgotten(bench: Bench) -> None:
    bench.snapshot()
    bench.desk.put(API, StandingPut("*", TREND))
    [(_, write)] = bench.take()
    bench.now += 4.9
    bench.desk.expire()
    assert bench.take() == []
    bench.now += 0.1
    bench.desk.expire()
    [(peer, reply)] = bench.take()
    assert isinstance(reply, ErrorReply)
    assert (peer, reply.status) == (API, 503)
    bench.desk.apply(REGISTRY, StandingApply(1, write.id, write.query, write.token))
    assert [peer for peer, _ in bench.take()] == [REGISTRY]
    assert bench.ids() == {write.id}


def test_records_are_applied_once_in_order_whichever_registry_is_quicker(bench: Bench) -> None:
    bench.snapshot(put(0, "q"))
    bench.desk.apply(REGISTRY, put(1, "q", "EUR*"))
    bench.desk.apply(OTHER, put(0, "q"))
    bench.desk.replace(OTHER, RegistrySnapshot(0, (put(0, "q"),), ()))
    assert bench.engine.standing.get("q").session == "EUR*"
    assert [message.offset for _, message in bench.take()] == [1, 0, 0]


def test_a_snapshot_replaces_what_was_registered(bench: Bench) -> None:
    bench.snapshot(put(0, "a"), put(1, "b"), offset=1)
    bench.snapshot(put(1, "b"), put(3, "c"), offset=3)
    assert bench.ids() == {"b", "c"}


def test_a_question_the_model_does_not_answer_is_refused_and_ends_the_query(bench: Bench) -> None:
    bench.snapshot(put(0, "q"))
    bench.desk.apply(REGISTRY, put(1, "q", question="Will it rain?"))
    [(_, applied)] = bench.take()
    [refused] = applied.refused
    assert (refused.offset, refused.reason) == (1, "question_not_supported")
    assert bench.ids() == set()


def test_answers_that_nothing_asks_for_any_more_are_withdrawn(bench: Bench) -> None:
    answers = (told("AAPL", "q"), told("EURUSD", "q"), told("AAPL", "gone"))
    bench.snapshot(put(0, "q"), answers=answers)
    gone = AnswerGone("AAPL", "gone", "bars", 0, 4)
    for partition, expected in ((1, []), (0, [gone])):
        bench.own(partition)
        bench.desk.assigned(Source("bars", partition))
        assert bench.handed_out() == expected
    bench.desk.apply(REGISTRY, put(1, "q", "EUR*"))
    assert bench.handed_out() == [AnswerGone("AAPL", "q", "bars", 0, 4)]


def test_answers_of_partitions_that_are_owned_elsewhere_are_not_withdrawn_here(bench: Bench) -> None:
    bench.snapshot(put(0, "q"), answers=(told("AAPL", "q"),))
    bench.desk.apply(REGISTRY, put(1, "q", "EUR*"))
    assert bench.handed_out() == []
    bench.own(0)
    assert bench.handed_out() == []


def test_answers_are_handed_out_until_this_generation_says_that_they_are_written(bench: Bench) -> None:
    bench.own(0)
    bench.desk.answered(answer := told("AAPL", "q"))
    [evaluations] = bench.desk.evaluations()
    assert (evaluations.answers, evaluations.generation) == ((answer,), 1)
    assert bench.handed_out() == []
    written = EvaluationsWritten("bars", 0, 1, evaluations.number)
    bench.desk.written(REGISTRY, msgspec.structs.replace(written, generation=2))
    bench.desk.assigned(Source("bars", 0))
    assert bench.handed_out() == [answer]
    bench.desk.written(REGISTRY, written)
    bench.desk.assigned(Source("bars", 0))
    assert bench.handed_out() == []


def test_nothing_is_handed_out_of_a_partition_that_was_given_up(bench: Bench) -> None:
    bench.own(0)
    bench.desk.answered(told("AAPL", "q"))
    bench.desk.given_up(Source("bars", 0))
    assert bench.handed_out() == []


def test_standing_queries_are_listed_once_they_are_known(bench: Bench) -> None:
    bench.desk.list(API, StandingRequest())
    assert bench.take()[0][1].status == 503
    bench.snapshot(put(0, "q"))
    for request in (StandingRequest(), StandingRequest("q"), StandingRequest("gone")):
        bench.desk.list(API, request)
    everything, single, none = (reply for _, reply in bench.take())
    assert [query.id for query in everything.queries] == ["q"]
    assert single == everything
    assert none.status == 404


def test_a_restart_tells_no_unchanged_answer_again_and_knows_the_one_before(
    bench: Bench, make_record: Callable[..., Any]
) -> None:
    bench.snapshot(put(0, "q"), answers=(told("AAPL", "q", 5, answer="flat"),))
    evaluated = bench.engine.standing.evaluated
    assert evaluated(told("AAPL", "q", 4, answer="down"), "change") is None
    assert evaluated(told("AAPL", "q", 5, answer="down"), "commit") is None
    assert bench.engine.standing.answers("AAPL", "q")[0].answer == "flat"
    assert evaluated(told("AAPL", "q", 6, answer="flat"), "change") is None
    changed = evaluated(told("AAPL", "q", 7, answer="up"), "change")
    assert (changed.previous, changed.initial) == ("flat", False)


def test_another_question_under_the_same_id_is_a_first_evaluation(bench: Bench) -> None:
    bench.snapshot(put(0, "q"), answers=(told("AAPL", "q", 5, question="another"),))
    first = bench.engine.standing.evaluated(told("AAPL", "q", 5), "change")
    assert (first.previous, first.initial) == (None, True)


def test_a_snapshot_in_parts_counts_once_it_is_whole(bench: Bench) -> None:
    bench.snapshot(put(0, "before"))
    first, second, third = (RegistrySnapshot(9, (put(n, f"q{n}"),), (), n, n < 2) for n in range(3))
    for parts in ((second, third), (first, third), (third, first)):
        for part in parts:
            bench.desk.replace(REGISTRY, part)
        assert bench.take() == []
        assert bench.ids() == {"before"}
    bench.desk.replace(OTHER, second)  # of another registry
    bench.desk.replace(OTHER, third)
    assert bench.ids() == {"before"}
    for part in (first, second, third):
        bench.desk.replace(REGISTRY, part)
    assert [(peer, message.offset, message.snapshot) for peer, message in bench.take()] == [(REGISTRY, 9, True)]
    assert bench.ids() == {"q0", "q1", "q2"}
    bench.desk.replace(REGISTRY, third)  # nothing of the last one is kept
    assert bench.take() == []
