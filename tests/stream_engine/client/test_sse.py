"""An event stream as the API sends it, and as a proxy may cut it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import httpx
import pytest

from stream_engine.client.sse import ServerEvent, read_events


def reply(chunks: Sequence[bytes], content_type: str = "text/event-stream; charset=utf-8") -> httpx.Response:
    def body() -> Iterator[bytes]:
        yield from chunks

    return httpx.Response(200, headers={"content-type": content_type}, content=body())


def test_server_sent_events_are_read_as_the_standard_says() -> None:
    lines = [
        ": a comment",
        "",
        "event: answer_changed",
        'data: {"answer":',
        'data: "up"}',
        "id: boot:3",
        "",
        "event: heartbeat",
        "",
        ": a comment",
        "",
        'data:{"cut": true}',
    ]
    body = "\n".join(lines).encode()
    assert list(read_events(reply([body]))) == [ServerEvent("answer_changed", {"answer": "up"}, "boot:3")]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_an_event_may_hold_what_other_text_calls_an_end_of_line(end: str, size: int) -> None:
    lines = ["event: committed", 'data: {"session": "a\u2028b\x85c"}', "", 'data: {"n": 1}', "", ""]
    body = end.join(lines).encode()
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    assert list(read_events(reply(chunks))) == [
        ServerEvent("committed", {"session": "a\u2028b\x85c"}, ""),
        ServerEvent("message", {"n": 1}, ""),
    ]


def test_what_is_no_event_stream_is_refused_as_a_broken_connection_is() -> None:
    with pytest.raises(httpx.HTTPError, match="text/event-stream"):
        list(read_events(reply([b"<html>"], "text/html")))
