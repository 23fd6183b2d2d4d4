"""The one error shape, health, metrics and the OpenAPI document."""

from __future__ import annotations

import pytest

from stream_engine.messages import PartitionStatus, Query, SessionsRequest, Status, StatusRequest
from tests.support.api_service import status


def test_an_unknown_path_is_404_in_the_one_shape(service):
    reply = service.http.get("/v2/nothing")

    assert reply.status_code == 404
    assert set(reply.json()["error"]) == {"type", "message"}
    assert reply.json()["error"]["type"] == "not_found_error"


def test_a_wrong_method_is_405_and_names_the_right_ones(service):
    reply = service.http.put("/v1/standing-queries")

    assert reply.status_code == 405
    assert reply.json()["error"]["type"] == "method_not_allowed"
    assert reply.headers["allow"]


def test_an_unexpected_error_shows_no_trace(service, caplog):
    service.engine.on[SessionsRequest] = lambda _: status()  # a reply of the wrong type

    reply = service.http.get("/v1/sessions")

    assert reply.status_code == 500
    assert reply.json()["error"]["type"] == "internal_error"
    assert "Traceback" not in reply.text
    assert "File" not in reply.text


def test_a_bug_in_a_route_costs_one_request_and_is_counted(service, monkeypatch):
    def broken(*_: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr("query_api.fast_path.FastPath.answer", broken)

    reply = service.ask()

    assert reply.status_code == 500
    assert reply.json()["error"]["type"] == "internal_error"
    assert "secret" not in reply.text
    assert service.metric("query_api_requests_total", status="500", method="POST") == 1


def test_live_needs_no_engine(make_service):
    service = make_service(board=False)
    service.engine.on.clear()

    assert service.http.get("/health/live").json() == {"status": "ok"}


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_question_is_posted(service, method):
    reply = service.http.request(method, "/v1/sessions/BTC%2FUSD/query")

    assert (reply.status_code, reply.headers["allow"]) == (405, "OPTIONS, POST")
    assert reply.json()["error"]["type"] == "method_not_allowed"
    assert service.engine.of(SessionsRequest) == []


def test_ready_when_engine_and_board_are(service):
    reply = service.http.get("/health/ready")

    assert reply.status_code == 200
    assert reply.json() == {
        "model": "embedded",
        "uptime_s": 12.5,
        "lag_records": 5,
        "degraded": [],
        "lag_stale": False,
        "status": "ready",
    }


def test_a_consumer_without_kafka_is_told_and_no_reason_against_asking(service):
    why = "broker_unreachable: a consumer has no answer from Kafka since 2026-01-02T03:04:05Z"
    service.engine.on[StatusRequest] = lambda _: status(degraded=(why,), lag_stale=True)

    reply = service.http.get("/health/ready")

    assert reply.status_code == 200
    assert (reply.json()["degraded"], reply.json()["lag_stale"]) == ([why], True)


def _silent(_: StatusRequest) -> None:
    return None


def _stuck(_: StatusRequest) -> Status:
    return status(ready=False, reasons=("a commit waits for 11 s",))


@pytest.mark.parametrize(
    ("handler", "board", "reasons"),
    [
        (_silent, True, ["the engine does not answer"]),
        (_stuck, True, ["a commit waits for 11 s"]),
        (lambda _: status(), False, ["the ready board is not there or its engine's heartbeat is too old"]),
        (
            _stuck,
            False,
            ["a commit waits for 11 s", "the ready board is not there or its engine's heartbeat is too old"],
        ),
    ],
)
def test_not_ready_is_503_with_every_reason(make_service, handler, board, reasons):
    service = make_service(board=board)
    service.engine.on[StatusRequest] = handler

    reply = service.http.get("/health/ready")

    assert reply.status_code == 503
    assert reply.json()["reasons"] == reasons
    assert reply.json()["error"] == {"type": "not_ready", "message": "; ".join(reasons)}
    assert reply.headers["retry-after"] == "1"


def test_a_closed_board_is_not_ready(service):
    assert service.http.get("/health/ready").status_code == 200
    service.close_board()

    assert service.http.get("/health/ready").status_code == 503


def test_metrics_show_the_engines_state(service):
    partition = PartitionStatus(
        topic="market.bars", partition=2, generation=1, state="LIVE", applied=77, sessions=3
    )
    service.engine.on[StatusRequest] = lambda _: status(partitions=(partition,))

    reply = service.http.get("/metrics")

    assert reply.headers["content-type"].startswith("text/plain; version=")
    assert service.metric("stream_engine_up") == 1
    assert service.metric("stream_engine_ready") == 1
    assert service.metric("stream_engine_board_alive") == 1
    assert service.metric("stream_engine_commits_total") == 3
    assert service.metric("stream_engine_sessions") == 2
    assert service.metric("stream_engine_partition_applied_offset", topic="market.bars", partition="2") == 77
    assert service.metric("stream_engine_consumer_lag_records", topic="market.bars", partition="2") == 5


def test_metrics_without_an_engine_say_that_it_is_down(make_service):
    service = make_service(board=False, engine_timeout_s=0.05)
    service.engine.on[StatusRequest] = _silent

    text = service.http.get("/metrics").text

    assert "stream_engine_up 0.0" in text
    assert "stream_engine_board_alive 0.0" in text
    assert "stream_engine_ready" not in text


def test_typing_errors_make_no_new_series(service):
    for path in ("/a", "/b", "/c"):
        service.http.get(path)

    assert service.metric("query_api_requests_total", route="unmatched", status="404") == 3


def test_requests_of_every_kind_are_counted_by_route(service):
    service.http.get("/health/live")
    service.http.get("/v1/sessions/A")
    service.http.delete("/v1/standing-queries/q")

    for method, route, code in (
        ("GET", "/health/live", "200"),
        ("GET", "/v1/sessions/{session:path}", "404"),
        ("DELETE", "/v1/standing-queries/{query:path}", "404"),
    ):
        assert service.metric("query_api_requests_total", method=method, route=route, status=code) == 1
        assert service.metric("query_api_request_seconds_count", route=route) == 1


def test_the_root_leads_to_the_documentation(service):
    reply = service.http.get("/")

    assert reply.status_code == 307
    assert reply.headers["location"] == "/docs"
    assert service.http.get("/docs").status_code == 200


def test_every_reference_of_the_openapi_document_resolves(service):
    document = service.http.get("/openapi.json").json()
    schemas = document["components"]["schemas"]

    def references(node: object) -> set[str]:
        if isinstance(node, dict):
            own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
            return own.union(*map(references, node.values()))
        return set().union(*map(references, node)) if isinstance(node, list) else set()

    found = references(document)
    assert {reference.removeprefix("#/components/schemas/") for reference in found} <= set(schemas)
    query = document["paths"]["/v1/sessions/{session}/query"]["post"]
    assert query["requestBody"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/QueryBody"
    }
    assert "class" in schemas["AnswerBody"]["properties"]


def test_a_stranger_never_reaches_the_engine(service):
    service.http.post("/v1/sessions/AAPL/query", content=b"nonsense")

    assert service.engine.of(Query) == []
