"""Questions over HTTP and what they took, as one client sees it."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx


@dataclass(frozen=True, slots=True)
class Asked:
    """One question, its reply and the client's own time for it (s)."""

    session: str
    question: str
    status: int
    body: dict[str, Any]
    seconds: float

    @property
    def path(self) -> str:
        return str(self.body.get("path", ""))


@dataclass(slots=True)
class DemoTimes:
    """Answers of one path: the client's times in ms, and the service's own in ms."""

    client_ms: list[float] = field(default_factory=list)
    service_ms: list[float] = field(default_factory=list)

    def add(self, asked: Asked) -> None:
        self.client_ms.append(asked.seconds * 1000)
        self.service_ms.append(asked.body["latency_us"] / 1000)

    def p50(self) -> tuple[float, float]:
        """Median of the client's and of the service's times, in ms."""
        return statistics.median(self.client_ms), statistics.median(self.service_ms)


class Asker:
    """Asks in pairs over one connection: as a user does (``auto``), then the same question with ``path: full``."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self.automatic = 0
        self.fast = DemoTimes()
        self.full = DemoTimes()
        self.compared = 0
        """Pairs of a fast and a full answer on the same version of the session."""
        self.agreed = 0

    def ask(self, session: str, question: str, path: str = "auto") -> Asked:
        started = time.perf_counter()
        reply = self._client.post(
            f"/v1/sessions/{quote(session, safe='')}/query", json={"question": question, "path": path}
        )
        return Asked(
            session=session,
            question=question,
            status=reply.status_code,
            body=reply.json(),
            seconds=time.perf_counter() - started,
        )

    def pair(self, session: str, question: str) -> tuple[Asked, Asked]:
        """Ask both ways and count."""
        usual = self.ask(session, question)
        whole = self.ask(session, question, "full")
        if usual.status == 200:
            self.automatic += 1
            if usual.path == "fast":
                self.fast.add(usual)
        if whole.status == 200:
            self.full.add(whole)
        same = usual.body.get("session_version") == whole.body.get("session_version")
        if usual.path == "fast" and whole.status == 200 and same:
            self.compared += 1
            self.agreed += usual.body["answer"] == whole.body["answer"]
        return usual, whole
