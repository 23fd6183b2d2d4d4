"""Sessions and standing queries over HTTP."""

from __future__ import annotations

import msgspec
import pytest

from stream_engine.client.http import listed
from stream_engine.messages import (
    Bar,
    Done,
    ErrorReply,
    SessionDelete,
    SessionInfo,
    Sessions,
    SessionsRequest,
    StandingDelete,
    StandingPut,
    StandingQueries,
    StandingRequest,
    StandingShown,
    StatusRequest,
)
from stream_engine.standing.covering import covers
from tests.support.api_service import TREND

INFO = SessionInfo(
    id="BTC/USD", state="LIVE", data_version=42, tokens=120, kv_tokens=118, bars=40,
    last_event_time="2026-01-02T03:04:05Z", offsets={"market.bars/1": 41}, ready=True, ready_token="up",
    ready_gap=4.5, standing_queries=1, swaps=2, last_bars=(Bar(1, 1.0, 2.0, 0.5, 1.5, 10.0),),
)  # fmt: skip
QUERY = StandingShown("q/1", "EUR*", TREND, "change", "trend", 3, 20_000)


def test_sessions_are_listed(service):
    service.engine.on[SessionsRequest] = lambda _: Sessions((INFO,))

    body = service.http.get("/v1/sessions").json()

    assert body["object"] == "list"
    assert [row["id"] for row in body["data"]] == ["BTC/USD"]
    assert body["data"][0]["last_bars"] == [[1, 1.0, 2.0, 0.5, 1.5, 10.0]]


@pytest.mark.parametrize("path", ["BTC%2FUSD", "BTC/USD"])
def test_one_session_is_shown(service, path):
    service.engine.on[SessionsRequest] = lambda _: Sessions((INFO,))

    body = service.http.get(f"/v1/sessions/{path}").json()

    assert service.engine.of(SessionsRequest) == [SessionsRequest("BTC/USD")]
    assert (body["id"], body["data_version"], body["offsets"]) == ("BTC/USD", 42, {"market.bars/1": 41})
    assert "type" not in body


@pytest.mark.parametrize("reply", [Sessions(()), ErrorReply(404, "not_found_error", "no session 'X'", "session")])
def test_an_unknown_session_is_404(service, reply):
    service.engine.on[SessionsRequest] = lambda _: reply

    found = service.http.get("/v1/sessions/X")

    assert found.status_code == 404
    assert found.json()["error"]["type"] == "not_found_error"


def test_a_deleted_session_says_for_how_long(service):
    service.engine.on[SessionDelete] = lambda _: Done("until its next record")

    reply = service.http.delete("/v1/sessions/EURUSD%3DX")

    assert service.engine.of(SessionDelete) == [SessionDelete("EURUSD=X")]
    assert reply.json() == {
        "id": "EURUSD=X",
        "object": "session",
        "detail": "until its next record",
        "deleted": True,
    }


def test_a_standing_query_is_created_where_its_location_says(service):
    service.engine.on[StandingPut] = lambda _: StandingQueries((QUERY,))
    service.engine.on[StandingRequest] = lambda _: StandingQueries((QUERY,))

    reply = service.http.post(
        "/v1/standing-queries", json={"session": "EUR*", "question": TREND, "on": "change", "id": "q/1"}
    )

    assert reply.status_code == 201
    assert reply.json() == {
        "id": "q/1", "session": "EUR*", "question": TREND, "on": "change", "class": "trend",
        "sessions_evaluated": 3, "sessions_waiting": 20_000,
    }  # fmt: skip
    assert service.engine.of(StandingPut) == [StandingPut("EUR*", TREND, "change", "q/1")]
    assert service.http.get(reply.headers["location"]).json() == reply.json()
    assert service.engine.of(StandingRequest) == [StandingRequest("q/1")]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"question": TREND}, "session"),
        ({"session": "*", "question": TREND, "every": 5}, "every"),
        ({"session": "*", "question": TREND, "on": "tick"}, "on"),
        ({"session": "*", "question": "How tall is the tree?"}, "question"),
        ({"session": "*", "question": "  "}, "question"),
        ({"session": "", "question": TREND}, "session"),
    ],
)
def test_a_wrong_standing_query_is_422(service, body, param):
    reply = service.http.post("/v1/standing-queries", json=body)

    assert reply.status_code == 422
    assert reply.json()["error"]["param"] == param
    assert service.engine.of(StandingPut) == []


def test_standing_queries_are_listed_and_removed(service):
    service.engine.on[StandingRequest] = lambda _: StandingQueries((QUERY,))
    service.engine.on[StandingDelete] = lambda _: Done()

    listed = service.http.get("/v1/standing-queries").json()
    removed = service.http.delete("/v1/standing-queries/q%2F1").json()

    assert [row["id"] for row in listed["data"]] == ["q/1"]
    assert service.engine.of(StandingDelete) == [StandingDelete("q/1")]
    assert (removed["object"], removed["deleted"]) == ("standing_query", True)


def test_an_unknown_standing_query_is_404(service):
    service.engine.on[StandingRequest] = lambda _: StandingQueries(())
    service.engine.on[StandingDelete] = lambda _: ErrorReply(404, "not_found_error", "no standing query 'x'")

    assert service.http.get("/v1/standing-queries/x").status_code == 404
    assert service.http.delete("/v1/standing-queries/x").status_code == 404


@pytest.mark.parametrize("path", ["/v1/sessions", "/v1/sessions/A", "/v1/standing-queries", "/v1/events"])
def test_no_answer_from_the_engine_is_503(make_service, path):
    service = make_service(engine_timeout_s=0.05)
    for kind in (StatusRequest, SessionsRequest, StandingRequest):
        service.engine.on[kind] = lambda _: None

    reply = service.http.get(path)

    assert reply.status_code == 503
    assert reply.json()["error"]["type"] == "engine_unavailable"
    assert "retry-after" in reply.headers


def paged(names: list[str], looks: int = 1000):
    """An engine's pages of sessions of these names, each of which looks at so many."""

    def page(asked: SessionsRequest) -> Sessions:
        left = [name for name in sorted(names) if name > asked.after]
        found = left[: min(asked.limit, looks)]
        infos = tuple(msgspec.structs.replace(INFO, id=name) for name in found if covers(asked.pattern, name))
        return Sessions(infos, found[-1] if len(found) < len(left) else None)

    return page


def test_a_page_is_asked_of_the_engine_in_messages_of_bounded_size(service):
    names = [f"S{number:03}" for number in range(250)]
    service.engine.on[SessionsRequest] = paged(names)

    first = service.http.get("/v1/sessions?limit=230").json()
    second = service.http.get("/v1/sessions", params={"limit": 230, "after": first["next"]}).json()

    assert [row["id"] for row in first["data"] + second["data"]] == names
    assert (len(first["data"]), second["next"]) == (230, None)
    assert [request.limit for request in service.engine.of(SessionsRequest)] == [100, 100, 30, 100]


def test_a_page_of_a_pattern_that_leaves_most_out_is_short_and_goes_on(service):
    service.engine.on[SessionsRequest] = paged([f"S{number:03}" for number in range(90)] + ["T"], looks=3)

    first = service.http.get("/v1/sessions?session=T*").json()
    second = service.http.get("/v1/sessions", params={"session": "T*", "after": first["next"]}).json()

    assert (first["data"], first["next"]) == ([], "S059")
    assert [row["id"] for row in second["data"]] == ["T"]
    assert {request.pattern for request in service.engine.of(SessionsRequest)} == {"T*"}


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"), ("limit=-1", "limit"), ("limit=1001", "limit"), ("limit=x", "limit"),
        (f"after={'a' * 257}", "after"), ("session=", "session"), (f"session={'a' * 257}", "session"),
    ],
)  # fmt: skip
def test_a_page_that_cannot_be_is_refused_by_name(service, query, param):
    refused = service.http.get(f"/v1/sessions?{query}")

    assert (refused.status_code, refused.json()["error"]["param"]) == (422, param)
    assert service.engine.of(SessionsRequest) == []


def test_all_pages_are_read_by_the_commands(service):
    names = [f"S{number:03}" for number in range(250)]
    service.engine.on[SessionsRequest] = paged(names)

    assert [row["id"] for row in listed(service.http, "/v1/sessions")] == names
