"""Server-sent events of the API, read on a thread of their own."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx

READ_TIMEOUT_S = 60.0
"""Several heartbeats: a stream that is silent for longer is dead."""
RECONNECT_S = 1.0


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event: its name (``answer_changed``, ``committed`` ...), its JSON, its ``boot:sequence`` id."""

    name: str
    data: dict[str, Any]
    id: str


def lines_of(chunks: Iterable[str]) -> Iterator[str]:
    """Lines as an event stream has them: what other text calls an end of line (U+2028) may be part of the data."""
    rest = ""
    for chunk in chunks:
        *lines, rest = f"{rest}{chunk}".split("\n")
        yield from (line.removesuffix("\r") for line in lines)


def read_events(lines: Iterable[str]) -> Iterator[ServerEvent]:
    """Events of a ``text/event-stream`` body, line by line (WHATWG HTML, 9.2.6). Ends with the last whole one."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            fields[name] = f"{fields[name]}\n{value}" if name == "data" and name in fields else value
        elif fields:
            if "data" in fields:
                yield ServerEvent(fields.get("event", "message"), json.loads(fields["data"]), fields.get("id", ""))
            fields = {}


class EventFollower:
    """Keeps one subscription to ``/v1/events`` open and queues what comes, across restarts of the API.

    ``connected`` tells whether it is open now. The thread is a daemon, and ends with the stream after ``stop``.
    """

    def __init__(self, base_url: str, trust_env: bool, session: str | None = None) -> None:
        self._client = httpx.Client(
            base_url=base_url, trust_env=trust_env, timeout=httpx.Timeout(10.0, read=READ_TIMEOUT_S)
        )
        self._parameters = {} if session is None else {"session": session}
        self._stop = threading.Event()
        self.connected = threading.Event()
        self.events: queue.SimpleQueue[ServerEvent] = queue.SimpleQueue()
        threading.Thread(target=self._follow, name="events", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def drain(self) -> Iterator[ServerEvent]:
        """Every event that has arrived."""
        while True:
            try:
                yield self.events.get_nowait()
            except queue.Empty:
                return

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                with self._client.stream("GET", "/v1/events", params=self._parameters) as reply:
                    if reply.is_success:
                        self._take(reply)
            except (httpx.HTTPError, ValueError):
                pass  # it is away or restarting: `connected` says so, and the next try follows
            self.connected.clear()
            self._stop.wait(RECONNECT_S)

    def _take(self, reply: httpx.Response) -> None:
        for event in read_events(lines_of(reply.iter_text())):
            if event.name == "connected":
                self.connected.set()
            self.events.put(event)
            if self._stop.is_set():
                return
