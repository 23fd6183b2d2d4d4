"""Clients that look and ask all the time: what they were once shown, no later answer may fall behind."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import Any

import httpx

TOLD_TO_WAIT = {404, 409, 503}
"""Not there yet, not fresh enough, being rebuilt: what a client may hear while something is down."""


class Witness:
    """Two threads on the API at ``url``: one lists the sessions, one asks. ``violations`` says what went back,
    ``answers`` holds everything that was answered."""

    def __init__(self, url: str, questions: Sequence[str], seed: int) -> None:
        self._url = url
        self._questions = questions
        self._chance = random.Random(seed)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._seen: dict[str, int] = {}
        self._acknowledged: dict[str, tuple[int, int]] = {}
        self._threads = [
            threading.Thread(target=self._run, args=(work, pause), name=work.__name__)
            for work, pause in ((self._list, 0.05), (self._ask, 0.005))
        ]
        self.answers: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.violations: list[str] = []
        self.statuses: Counter[int] = Counter()
        self.unreachable = 0

    def __enter__(self) -> Witness:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def published(self, symbol: str, partition: int, offset: int) -> None:
        """The broker has a record of ``symbol`` that, once applied, is the newest of its session."""
        with self._lock:
            self._acknowledged[symbol] = partition, offset

    def _run(self, work: Callable[[httpx.Client], None], pause_s: float) -> None:
        with httpx.Client(base_url=self._url, timeout=60.0, trust_env=False) as http:
            while not self._stop.wait(pause_s):
                try:
                    work(http)
                except httpx.HTTPError:
                    self.unreachable += 1
                    self._stop.wait(0.05)
                except Exception as error:  # the thread's end would pass for silence
                    self.violations.append(f"{work.__name__}: {error!r}")
                    raise

    def _list(self, http: httpx.Client) -> None:
        known = self._known()
        reply = http.get("/v1/sessions?limit=1000")
        if reply.status_code != 200:
            return
        for row in reply.json()["data"]:
            # A session that is being filled has no version to show; it answers nothing.
            if (row["data_version"] is None) is not (row["state"] == "REBUILDING"):
                self.violations.append(f"{row['id']}: version {row['data_version']} when {row['state']}")
            if row["data_version"] is not None and row["state"] != "EMPTY":
                self._compare(row["id"], row["data_version"], known, f"listed as {row['state']}")

    def _ask(self, http: httpx.Client) -> None:
        known = self._known()
        if not known:
            return
        session = self._chance.choice(sorted(known))
        body: dict[str, Any] = {"question": self._chance.choice(self._questions)}
        bound = None
        match self._chance.randrange(4):
            case 0:
                body["min_version"] = known[session]
            case 1:
                with self._lock:
                    bound = self._acknowledged.get(session)
                if bound is not None:
                    body |= {"min_offset": {"partition": bound[0], "offset": bound[1]}, "wait_ms": 100}
        if self._chance.random() < 0.1:
            body["path"] = "full"
        reply = http.post(f"/v1/sessions/{session}/query", json=body)
        self.statuses[reply.status_code] += 1
        if reply.status_code != 200:
            if reply.status_code not in TOLD_TO_WAIT:
                self.violations.append(f"{session}: {body} -> {reply.status_code} {reply.text}")
            return
        answer = reply.json()
        self.answers.put(answer)
        self._compare(session, answer["session_version"], known, f"answered ({answer['path']}, {body})")
        if answer["offset"] != answer["session_version"] - 1:
            self.violations.append(f"{session}: offset {answer['offset']} of version {answer['session_version']}")
        if bound is not None and answer["offset"] < bound[1]:
            self.violations.append(f"{session}: {body} answered from offset {answer['offset']}")

    def _known(self) -> dict[str, int]:
        with self._lock:
            return dict(self._seen)

    def _compare(self, session: str, version: int, known: dict[str, int], how: str) -> None:
        """``known`` is what was known before the request was made."""
        if version < known.get(session, 0):
            self.violations.append(f"{session}: version {version} after {known[session]}, {how}")
        with self._lock:
            self._seen[session] = max(self._seen.get(session, 0), version)
