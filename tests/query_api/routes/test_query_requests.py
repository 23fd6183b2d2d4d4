"""A query that is not one: what is wrong with it is named, and the engine is not asked."""

from __future__ import annotations

import msgspec
import pytest

from tests.support.api_service import TREND


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"question": TREND, "tau": 1}, "tau"),
        ({}, "question"),
        ({"question": ""}, "question"),
        ({"question": " \t "}, "question"),
        ({"question": 5}, "question"),
        ({"question": TREND, "path": "warm"}, "path"),
        ({"question": TREND, "max_age_ms": -1}, "max_age_ms"),
        ({"question": TREND, "min_version": 2**63}, "min_version"),
        ({"question": TREND, "min_offset": {"partition": 0}}, "min_offset.offset"),
        ({"question": TREND, "min_offset": {"partition": 0, "offset": 1, "topic": "x"}}, "min_offset.topic"),
        ({"question": TREND, "wait_ms": 30_001}, "wait_ms"),
        ([], None),
    ],
)
def test_a_wrong_body_is_422_that_names_the_field(service, body, param):
    reply = service.http.post("/v1/sessions/AAPL/query", json=body)

    error = reply.json()["error"]
    assert reply.status_code == 422
    assert error["type"] == "invalid_request_error"
    assert error.get("param") == param


@pytest.mark.parametrize("content", [b"", b"{", b"question=x"])
def test_a_body_that_is_not_json_is_422(service, content):
    reply = service.http.post("/v1/sessions/AAPL/query", content=content)

    assert reply.status_code == 422
    assert reply.json()["error"]["code"] == "invalid_json"


@pytest.mark.parametrize("session", ["x" * 257, ""])
def test_an_impossible_session_id_is_422(service, session):
    reply = service.ask(session)

    assert reply.status_code == 422
    assert reply.json()["error"]["param"] == "session"


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_limit_is_413(service, chunked):
    content = msgspec.json.encode({"question": "x" * 70_000})

    reply = service.http.post("/v1/sessions/AAPL/query", content=iter([content]) if chunked else content)

    assert reply.status_code == 413
    assert reply.json()["error"]["type"] == "payload_too_large"
    assert reply.headers["content-type"] == "application/json"
