"""HTTP as other programs speak it: monitors, proxies, old clients. Raw sockets to a real server."""

from __future__ import annotations

import gzip
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from urllib.parse import quote

import pytest

from stream_engine.messages import (
    Query,
    SessionDelete,
    SessionsRequest,
    Snapshot,
    SnapshotRequest,
)  # fmt: skip
from tests.support.api_service import TREND, Service

Talk = Callable[..., tuple[bytes, dict[str, str], bytes]]
QUESTION = json.dumps({"question": TREND}).encode()
READABLE = (
    "/health/live", "/health/ready", "/metrics", "/v1/sessions", "/v1/sessions/AAPL", "/v1/standing-queries",
    "/v1/calibration", "/docs", "/openapi.json",
)  # fmt: skip


@pytest.fixture
def talk(service: Service) -> Talk:
    """Sends bytes, reads to the end of the connection: status line, headers, the rest as it came."""

    def talk(request: bytes, *, until: bytes | None = None) -> tuple[bytes, dict[str, str], bytes]:
        host, port = service.http.base_url.host, service.http.base_url.port
        assert port is not None
        with socket.create_connection((host, port), timeout=30) as connection:
            connection.sendall(request)
            received = b""
            while (until is None or until not in received) and (chunk := connection.recv(65536)):
                received += chunk
        head, _, body = received.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        return first.encode(), headers, body

    return talk


def streams(service: Service) -> None:
    service.engine.on[SnapshotRequest] = lambda _: Snapshot(7, ())


@pytest.mark.parametrize("path", READABLE)
def test_head_is_get_without_a_body(service: Service, path: str) -> None:
    whole, head = service.http.get(path), service.http.head(path)
    assert head.status_code == whole.status_code
    assert head.content == b""
    assert head.headers["content-type"] == whole.headers["content-type"]
    assert "content-length" in head.headers
    if path != "/metrics":  # which counts the request before
        assert head.headers["content-length"] == whole.headers["content-length"]


def test_head_of_a_stream_does_not_wait_for_it(service: Service, talk: Talk) -> None:
    streams(service)
    request = (
        b"HEAD /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health/live HTTP/1.1\r\nHost: localhost\r\n"
    )
    status, headers, rest = talk(request + b"Connection: close\r\n\r\n")
    assert status == b"HTTP/1.1 200 OK"
    assert headers["content-type"].startswith("text/event-stream")
    assert rest.startswith(b"HTTP/1.1 200 OK"), "the next reply of the connection comes where a body would begin"
    assert b'"status":"ok"' in rest
    assert service.metric("query_api_requests_total", method="HEAD", route="/v1/events", status="200") == 1
    assert service.metric("query_api_event_subscribers") == 0


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/health/live", "GET, HEAD, OPTIONS"),
        ("PUT", "/v1/standing-queries", "GET, HEAD, OPTIONS, POST"),
        ("PATCH", "/v1/standing-queries/q", "DELETE, GET, HEAD, OPTIONS"),
        ("POST", "/v1/sessions/BTC%2FUSD", "DELETE, GET, HEAD, OPTIONS"),
        ("DELETE", "/v1/sessions", "GET, HEAD, OPTIONS"),
        ("HEAD", "/v1/sessions/A/query", "OPTIONS, POST"),
        ("TRACE", "/metrics", "GET, HEAD, OPTIONS"),
        ("POST", "/docs", "GET, HEAD, OPTIONS"),
    ],
)
def test_a_method_that_is_not_taken_is_told_those_that_are(
    service: Service, method: str, path: str, allow: str
) -> None:
    reply = service.http.request(method, path)
    assert (reply.status_code, reply.headers["allow"]) == (405, allow)
    if method != "HEAD":
        assert reply.json()["error"] == {
            "type": "method_not_allowed",
            "message": f"{method} is not taken here; {allow} are",
        }
    options = service.http.request("OPTIONS", path)
    assert (options.status_code, options.headers["allow"], options.content) == (204, allow, b"")
    for taken in allow.split(", "):
        assert service.http.request(taken, path).status_code != 405
    assert service.http.request("OPTIONS", "/v2/nothing").status_code == 404


@pytest.mark.parametrize("path", [path for path in READABLE if path.count("/") < 3 or "AAPL" in path])
def test_a_slash_at_the_end_changes_nothing(service: Service, path: str) -> None:
    plain, slashed = service.http.get(path), service.http.get(f"{path}/")
    assert slashed.status_code == plain.status_code
    if path not in ("/metrics", "/health/ready"):
        assert slashed.content == plain.content


def test_a_slash_at_the_end_of_a_post_and_of_an_id(engine_answers: Service) -> None:
    assert engine_answers.http.post("/v1/sessions/A/query/", content=QUESTION).json()["session"] == "A"
    engine_answers.http.get("/v1/sessions/A%2F")
    engine_answers.http.get("/v1/sessions/B//")
    asked = [request.session for request in engine_answers.engine.of(SessionsRequest)]
    assert asked == ["A/", "B"]


@pytest.mark.parametrize(
    "session", ["BTC/USD", "^GSPC", "EURUSD=X", "BRK.B", "a b", "a+b", "a%2Fb", "日経", "Å", "🚀", "x?y#z", "%"]
)
def test_an_id_is_what_was_percent_encoded(engine_answers: Service, session: str) -> None:
    name = quote(session, safe="")
    asked = engine_answers.http.post(f"/v1/sessions/{name}/query", content=QUESTION)
    assert asked.json()["session"] == session
    for lower in (name, name.lower() if session.isascii() else name):
        engine_answers.http.get(f"/v1/sessions/{lower}")
    assert engine_answers.engine.of(SessionsRequest)[0].session == session


@pytest.mark.parametrize("slash", ["%2F", "%2f"])
def test_an_id_may_end_as_another_path_does(engine_answers: Service, slash: str) -> None:
    path = f"/v1/sessions/x{slash}query"
    assert engine_answers.http.get(path).status_code == 404  # it is not there
    assert engine_answers.http.options(path).headers["allow"] == "DELETE, GET, HEAD, OPTIONS"
    engine_answers.http.delete(path)
    assert engine_answers.http.post(f"{path}/query", content=QUESTION).json()["session"] == "x/query"
    asked = engine_answers.engine.of(SessionsRequest), engine_answers.engine.of(SessionDelete)
    assert [[message.session for message in messages] for messages in asked] == [["x/query"], ["x/query"]]
    assert engine_answers.http.post(path, content=QUESTION).status_code == 405
    assert engine_answers.http.get("/v1/sessions/x/query").status_code == 405


def test_a_path_that_is_not_utf_8_is_refused_by_name(service: Service) -> None:
    reply = service.http.get("/v1/sessions/%FF%FE")
    assert (reply.status_code, reply.json()["error"]["param"]) == (422, "path")
    assert service.http.get("/v1/sessions/%EF%BF%BD").status_code == 404


@pytest.mark.parametrize(
    ("headers", "body", "param", "named"),
    [
        ({"content-encoding": "gzip"}, gzip.compress(QUESTION, mtime=0), "Content-Encoding", "gzip"),
        ({"content-encoding": "br"}, QUESTION, "Content-Encoding", "br"),
        ({"content-type": "application/json; charset=utf-16"}, TREND.encode("utf-16"), "Content-Type", "utf-16"),
        ({"content-type": 'application/json; charset="ISO-8859-1"'}, QUESTION, "Content-Type", "ISO-8859-1"),
        ({"content-type": "multipart/form-data; boundary=x"}, QUESTION, "Content-Type", "multipart/form-data"),
        ({}, QUESTION.decode().encode("utf-16"), None, "UTF-16"),
        ({}, QUESTION.decode().encode("utf-16-le"), None, "UTF-16"),
        ({}, QUESTION.decode().encode("utf-32-be"), None, "UTF-32"),
        ({}, '{"question": "Tendência?"}'.encode("latin-1"), None, "not UTF-8 (byte 18)"),
    ],
)
def test_a_body_in_another_coding_is_refused_by_name(
    service: Service, headers: dict[str, str], body: bytes, param: str | None, named: str
) -> None:
    for path in ("/v1/sessions/AAPL/query", "/v1/standing-queries"):
        reply = service.http.post(path, content=body, headers=headers)
        assert reply.status_code == 415
        error = reply.json()["error"]
        assert (error["type"], error.get("param")) == ("unsupported_media_type", param)
        assert named in error["message"]
        assert "send" in error["message"]
    assert service.engine.of(Query) == []


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"content-type": "application/x-www-form-urlencoded"}, QUESTION),
        ({"content-type": "application/json; charset=UTF-8"}, QUESTION),
        ({"content-type": 'application/json;charset="utf-8"'}, QUESTION),
        ({"content-type": "text/plain", "content-encoding": "identity"}, QUESTION),
        ({}, b"\xef\xbb\xbf" + QUESTION),
        ({"accept": "text/html", "accept-encoding": "gzip"}, QUESTION),
    ],
)
def test_json_in_utf_8_is_taken_whatever_it_is_called(
    engine_answers: Service, headers: dict[str, str], body: bytes
) -> None:
    reply = engine_answers.http.post("/v1/sessions/AAPL/query", content=body, headers=headers)
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/json")
    assert "content-encoding" not in reply.headers


def test_http_1_0_gets_a_reply_and_the_end(service: Service, talk: Talk) -> None:
    status, headers, body = talk(b"GET /health/live HTTP/1.0\r\n\r\n")
    assert (status, body) == (b"HTTP/1.1 200 OK", b'{"status":"ok"}')
    assert headers["connection"] == "close"


def test_http_1_0_gets_a_stream_without_chunks(service: Service, talk: Talk) -> None:
    streams(service)
    status, headers, body = talk(
        b"GET /v1/events?session=AAPL HTTP/1.0\r\nAccept: text/event-stream\r\n\r\n", until=b'"AAPL"'
    )
    assert status == b"HTTP/1.1 200 OK"
    assert "transfer-encoding" not in headers
    assert "content-length" not in headers
    assert headers["connection"] == "close"
    assert body.startswith(b"event: connected\n")


def test_http_1_0_reads_a_stream_to_its_end(service: Service, talk: Talk) -> None:
    """The end of the stream is the end of the connection, and no error of the server's."""
    streams(service)
    ended: list[bytes] = []

    def follow() -> None:
        ended.append(talk(b"GET /v1/events HTTP/1.0\r\n\r\n")[2])

    thread = threading.Thread(target=follow)
    thread.start()
    while service.metric("query_api_event_subscribers") == 0:
        time.sleep(0.01)
    service.end_streams()
    thread.join(30)
    assert ended
    assert b"event: shutdown" in ended[0]


def test_http_1_1_gets_a_stream_in_chunks(service: Service, talk: Talk) -> None:
    streams(service)
    _, headers, body = talk(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n", until=b"connected")
    assert headers["transfer-encoding"] == "chunked"
    assert not body.startswith(b"event")


def test_a_client_that_expects_to_be_asked_for_its_body(engine_answers: Service) -> None:
    url = engine_answers.http.base_url
    head = b"POST /v1/sessions/AAPL/query HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += b"Expect: 100-continue\r\n"
    with socket.create_connection((url.host, url.port or 0), timeout=30) as connection:
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(QUESTION))
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(QUESTION)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    assert received.startswith(b"HTTP/1.1 200 OK")
    with socket.create_connection((url.host, url.port or 0), timeout=30) as connection:
        connection.sendall(head + b"Content-Length: 99999999\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 413"), "refused before the body is sent"


def test_a_body_in_chunks(engine_answers: Service, talk: Talk) -> None:
    half = len(QUESTION) // 2
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (QUESTION[:half], QUESTION[half:], b""))
    head = b"POST /v1/sessions/A/query HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    assert talk(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)[0] == b"HTTP/1.1 200 OK"


def test_a_target_in_absolute_form(service: Service, talk: Talk) -> None:
    request = b"GET http://a.test:8080/health/live HTTP/1.1\r\nHost: localhost.test\r\nConnection: close\r\n\r\n"
    status, _, body = talk(request)
    assert (status, body) == (b"HTTP/1.1 200 OK", b'{"status":"ok"}')


@pytest.mark.parametrize("request_line", [b"nonsense\r\n\r\n", b"GET /a b HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_what_is_no_http_is_told_in_the_one_shape(service: Service, talk: Talk, request_line: bytes) -> None:
    status, headers, body = talk(request_line)
    assert status.startswith(b"HTTP/1.1 400")
    assert headers["content-type"] == "application/json"
    assert set(json.loads(body)["error"]) == {"type", "message"}


def test_a_parameter_that_is_given_twice_is_refused(service: Service) -> None:
    reply = service.http.get("/v1/events?session=A&session=B")
    assert (reply.status_code, reply.json()["error"]["param"]) == (422, "session")


@pytest.mark.parametrize("program", ["curl", "wget"])
def test_monitors(service: Service, program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"no {program} on this machine")
    command = {"curl": ["curl", "-sSfI"], "wget": ["wget", "-q", "--spider", "--tries=1"]}[program]
    for path in ("/health/live", "/health/ready", "/metrics", "/docs"):
        done = subprocess.run([*command, f"{service.http.base_url}{path}"], capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
