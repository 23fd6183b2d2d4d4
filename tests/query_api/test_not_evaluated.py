"""A standing query that has no answer of a commit is told so on its stream, and on no other query's."""

from __future__ import annotations

from stream_engine.messages import NotEvaluated, Snapshot
from tests.support.api_service import Service, changed
from tests.support.event_stream import serve_snapshots, stream

MISSED = NotEvaluated(
    session="AAPL",
    query="q1",
    question="What is the trend?",
    reason="no_room",
    session_version=41,
    topic="market.bars",
    partition=0,
    offset=40,
    event_time=None,
)


def test_a_missed_evaluation_is_an_event_of_its_session_and_query(service: Service) -> None:
    serve_snapshots(service, Snapshot(0, ()))
    with (
        stream(service, session="AAPL") as of_session,
        stream(service, query="q1") as of_query,
        stream(service, query="q2") as of_another,
    ):
        for events in (of_session, of_query, of_another):
            events.next()
        service.engine.publish(1, MISSED)
        for events in (of_session, of_query):
            name, data, _ = events.skip_heartbeats()
            assert name == "not_evaluated"
            assert (data["query"], data["reason"], data["session_version"]) == ("q1", "no_room", 41)
        service.engine.publish(2, changed(query="q2"))
        assert of_another.skip_heartbeats()[0] == "answer_changed"
