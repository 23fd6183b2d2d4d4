"""The event stream as a client reads it, and an engine's snapshots by script."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stream_engine.messages import Snapshot, SnapshotRequest
from tests.support.api_service import Service


class Events:
    """Reads one stream, event by event."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines

    def next(self) -> tuple[str, Any, str]:
        """Name, data and id of the next event."""
        fields: dict[str, str] = {}
        for line in self._lines:
            if not line:
                return fields["event"], json.loads(fields["data"]), fields["id"]
            name, _, value = line.partition(": ")
            fields[name] = value
        raise EOFError("the stream ended")

    def skip_heartbeats(self) -> tuple[str, Any, str]:
        while True:
            event = self.next()
            if event[0] != "heartbeat":
                return event


@contextmanager
def stream(service: Service, **filters: str) -> Iterator[Events]:
    with service.http.stream("GET", "/v1/events", params=filters) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-cache"
        yield Events(response.iter_lines())


def serve_snapshots(service: Service, *snapshots: Snapshot) -> None:
    """One snapshot after the other, the last one again and again."""
    left = list(snapshots)
    service.engine.on[SnapshotRequest] = lambda _: left.pop(0) if len(left) > 1 else left[0]
