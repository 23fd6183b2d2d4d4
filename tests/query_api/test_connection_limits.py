"""What a connection may cost: raw sockets that send too much, too slowly, or nothing, to a real server."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from stream_engine.messages import Query, Snapshot, SnapshotRequest
from tests.support.api_service import TREND, Service, answer, changed


def connect(service: Service) -> socket.socket:
    url = service.http.base_url
    return socket.create_connection((url.host, url.port or 0), timeout=30)


def to_the_end(connection: socket.socket) -> bytes:
    received = b""
    try:
        while chunk := connection.recv(65536):
            received += chunk
    except ConnectionResetError:
        pass
    return received


def refused(service: Service, reason: str) -> float:
    return service.metric("query_api_connections_refused_total", reason=reason)


def test_a_header_that_never_ends_is_cut_off(make_service: Callable[..., Service]) -> None:
    service = make_service(max_header_bytes=10_000)
    with connect(service) as connection:
        connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        sent = 0
        try:
            while sent < 100_000_000:
                sent += connection.send(b"x" * 10_000)
        except OSError:
            pass  # it was closed meanwhile
        reply = to_the_end(connection)
    assert sent < 20_000_000, "the rest was not taken"
    assert refused(service, "header_too_large") == 1
    assert reply.startswith(b"HTTP/1.1 431 ") or reply == b"", reply[:100]


@pytest.mark.parametrize(("size", "status"), [(9_000, b"200"), (11_000, b"431")])
def test_a_head_has_so_many_bytes(size: int, status: bytes, make_service: Callable[..., Service]) -> None:
    service = make_service(max_header_bytes=10_000)
    with connect(service) as connection:
        head = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Long: %s\r\n\r\n"
        connection.sendall(head % (b"x" * size))
        first, _, rest = to_the_end(connection).partition(b"\r\n")
    assert first.split(b" ")[1] == status
    if status == b"431":
        error = json.loads(rest.partition(b"\r\n\r\n")[2])["error"]
        assert (error["type"], "10000 bytes" in error["message"]) == ("request_header_fields_too_large", True)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", b""),
        (b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n", b"408"),
        (b"POST /v1/sessions/A/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{", b""),
    ],
    ids=["nothing", "half a head", "half a body"],
)
def test_a_request_that_does_not_come_is_not_waited_for(
    sent: bytes, status: bytes, make_service: Callable[..., Service]
) -> None:
    service = make_service(request_timeout_s=0.3)
    with connect(service) as connection:
        connection.sendall(sent)
        reply = to_the_end(connection)
    assert reply.split(b" ")[1:2] == ([status] if status else [])
    assert refused(service, "too_slow") == 1


def test_who_sends_in_time_may_wait_for_the_answer(make_service: Callable[..., Service]) -> None:
    service = make_service(request_timeout_s=0.2)

    def slowly(query: Query) -> object:
        time.sleep(0.6)
        return answer()

    service.engine.on[Query] = slowly
    for _ in range(2):  # the second on the same connection
        assert service.ask(question=TREND).status_code == 200
    assert refused(service, "too_slow") == 0


def test_so_many_connections_and_no_more(make_service: Callable[..., Service]) -> None:
    service = make_service(max_connections=8)
    assert service.http.get("/health/live").status_code == 200  # one, kept open
    with ExitStack() as stack:
        held = [stack.enter_context(connect(service)) for _ in range(7)]
        held[0].sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert held[0].recv(100).startswith(b"HTTP/1.1 200")  # all of them are in
        with connect(service) as one_more:
            assert to_the_end(one_more) == b""
        assert refused(service, "too_many_connections") == 1
    assert service.http.get("/health/live").status_code == 200


def test_a_subscriber_that_never_reads_is_dropped(make_service: Callable[..., Service]) -> None:
    service = make_service(send_timeout_s=0.5, event_queue=1_000_000)
    service.engine.on[SnapshotRequest] = lambda _: Snapshot(0, ())
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        url = service.http.base_url
        connection.connect((url.host, url.port or 0))
        connection.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 200"
        deadline, sequence = time.monotonic() + 60, 0
        while not refused(service, "does_not_read") and time.monotonic() < deadline:
            for _ in range(500):
                sequence += 1
                service.engine.publish(sequence, changed(question="q" * 4_000))
            time.sleep(0.1)
        assert refused(service, "does_not_read") == 1
    while service.metric("query_api_event_subscribers") and time.monotonic() < deadline + 60:
        time.sleep(0.02)  # its stream ends a moment after its connection
    assert service.metric("query_api_event_subscribers") == 0
