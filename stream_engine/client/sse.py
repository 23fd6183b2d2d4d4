"""Server-sent events of the API, read on a thread of their own."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
from httpx_sse import EventSource

READ_TIMEOUT_S = 60.0
"""Several heartbeats: a stream that is silent for longer is dead."""
RECONNECT_S = 1.0


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event: its name (``answer_changed``, ``committed`` ...), its JSON, its ``boot:sequence`` id."""

    name: str
    data: dict[str, Any]
    id: str


def read_events(reply: httpx.Response) -> Iterator[ServerEvent]:
    """Events of a ``text/event-stream`` body as they come (WHATWG HTML, 9.2.6). Ends with the last whole one.

    Raises httpx.HTTPError where the connection breaks or the body is no such stream, ValueError where an event's
    data is no JSON."""
    for event in EventSource(reply).iter_sse():
        if event.data:  # the library tells also of blank lines behind a comment
            yield ServerEvent(event.event, json.loads(event.data), event.id)


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
        for event in read_events(reply):
            if event.name == "connected":
                self.connected.set()
            self.events.put(event)
            if self._stop.is_set():
                return
