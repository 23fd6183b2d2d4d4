"""What a web page may do through its reader's browser: requests as browsers send them, to a real server."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pytest

from stream_engine.config.api import ApiSettings
from stream_engine.config.rules import ConfigError
from stream_engine.messages import Done, Query, SessionDelete, StandingPut, StandingQueries, StandingQuery
from tests.support.api_service import TREND, Service, answer

WRITE = {"content": json.dumps({"session": "AAPL", "question": TREND})}
JSON = {"content-type": "application/json"}


@pytest.fixture
def start(make_service: Callable[..., Service]) -> Callable[..., Service]:
    """A service whose engine does what it is asked."""

    def made(**api: str) -> Service:
        service = make_service(**api)
        service.engine.on[Query] = lambda query: answer()
        service.engine.on[SessionDelete] = lambda _: Done()
        query = StandingQuery(id="q", session="AAPL", question=TREND, on="change", class_="trend")
        service.engine.on[StandingPut] = lambda _: StandingQueries((query,))
        return service

    return made


def code(reply: httpx.Response) -> str | None:
    found: str | None = reply.json()["error"].get("code")
    return found


@pytest.mark.parametrize(
    "host", ["attacker.example", "attacker.example:8080", "localhost.attacker.example", "xn--1-zfa"]
)
def test_a_page_whose_name_was_made_to_point_here_reads_and_deletes_nothing(
    host: str, start: Callable[..., Service]
) -> None:
    service = start()
    for method, path in (
        ("GET", "/v1/sessions"),
        ("GET", "/metrics"),
        ("GET", "/docs"),
        ("DELETE", "/v1/sessions/A"),
        ("GET", "/no/such"),
    ):
        refused = service.http.request(method, path, headers={"host": host})
        assert (refused.status_code, code(refused)) == (403, "host_not_allowed"), (method, path)
        assert "api.allowed_hosts" in refused.json()["error"]["message"]
    assert service.engine.received == []
    for path in ("/health/live", "/health/ready"):
        assert service.http.get(path, headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "10.1.2.3", "[::1]:8080", "desk", "Api.local:80"]
)
def test_names_of_the_service_are_taken(host: str, start: Callable[..., Service]) -> None:
    service = start(allowed_hosts="desk, api.local")
    assert service.ask().status_code == 200
    assert service.http.get("/v1/calibration", headers={"host": host}).status_code == 200


def test_any_name_is_taken_where_the_setting_says_so(start: Callable[..., Service]) -> None:
    assert start(allowed_hosts="*").http.get("/metrics", headers={"host": "a.b"}).status_code == 200


@pytest.mark.parametrize(
    "page",
    [
        {"origin": "https://attacker.example"},
        {"origin": "null"},
        {"origin": "http://localhost:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=str,
)
def test_a_foreign_page_writes_nothing(page: dict[str, str], start: Callable[..., Service]) -> None:
    service = start()
    for send in (
        lambda: service.http.post("/v1/standing-queries", headers={**page, **JSON}, **WRITE),
        lambda: service.http.post("/v1/standing-queries", headers={**page, "content-type": "text/plain"}, **WRITE),
        lambda: service.http.delete("/v1/sessions/AAPL", headers=page),
    ):
        refused = send()
        assert (refused.status_code, code(refused)) == (403, "origin_not_allowed")
    assert service.engine.received == []


def test_a_page_of_the_services_own_writes_json_only(start: Callable[..., Service]) -> None:
    service = start()
    own = {"origin": str(service.http.base_url).rstrip("/"), "sec-fetch-site": "same-origin"}
    assert service.http.post("/v1/standing-queries", headers={**own, **JSON}, **WRITE).status_code == 201
    assert service.http.delete("/v1/sessions/AAPL", headers=own).status_code == 200
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        refused = service.http.post("/v1/standing-queries", headers={**own, "content-type": kind}, **WRITE)
        assert (refused.status_code, refused.json()["error"]["param"]) == (415, "Content-Type")


def test_a_program_that_is_no_browser_is_not_concerned(start: Callable[..., Service]) -> None:
    """``curl -d`` calls its body a form."""
    service = start()
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert service.http.post("/v1/standing-queries", headers=form, **WRITE).status_code == 201


DESK = "https://desk.example"
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "content-type,x-api-key"}


def test_a_page_that_is_named_may_ask_and_read(start: Callable[..., Service]) -> None:
    service = start(cors_origins=f"{DESK}, http://other:3000")
    preflight = service.http.options("/v1/sessions/AAPL/query", headers={"origin": DESK, **PREFLIGHT})
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == DESK
    assert "POST" in preflight.headers["access-control-allow-methods"]
    reply = service.http.post(
        "/v1/sessions/AAPL/query",
        headers={"origin": DESK, "sec-fetch-site": "cross-site", **JSON},
        content=json.dumps({"question": TREND}),
    )
    assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (200, DESK)
    refused = service.http.get("/v1/sessions", headers={"origin": DESK, "host": "attacker.example"})
    assert refused.status_code == 403


@pytest.mark.parametrize("allowed", ["", "http://other:3000"])
def test_a_page_that_is_not_named_gets_no_leave(allowed: str, start: Callable[..., Service]) -> None:
    service = start(cors_origins=allowed)
    preflight = service.http.options("/v1/sessions/AAPL/query", headers={"origin": DESK, **PREFLIGHT})
    assert "access-control-allow-origin" not in preflight.headers
    read = service.http.get("/v1/calibration", headers={"origin": DESK})
    assert (read.status_code, "access-control-allow-origin" in read.headers) == (200, False)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("allowed_hosts", "desk:8080"),
        ("allowed_hosts", "http://desk"),
        ("cors_origins", "desk.example"),
        ("cors_origins", "https://a/b"),
    ],
)
def test_what_can_be_no_host_or_origin_is_refused_at_start(setting: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"api.{setting}"):
        ApiSettings(**{setting: value})
