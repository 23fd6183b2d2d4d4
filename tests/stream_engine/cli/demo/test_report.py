"""What the demo says it measured: pairs of answers that are played, with times that no two of them share."""

from __future__ import annotations

from typing import Any, cast

import httpx
import pytest
from rich.console import Console

from stream_engine.cli.demo.asking import Asked, Asker
from stream_engine.cli.demo.report import Report


def reply(path: str, answer: str, version: int, client_ms: float, status: int = 200) -> Asked:
    """The service's own time is a quarter of the client's."""
    body = {"path": path, "answer": answer, "session_version": version, "latency_us": client_ms * 250}
    return Asked("AAPL", "?", status, body if status == 200 else {"error": {}}, client_ms / 1000)


class Played(Asker):
    def __init__(self, *pairs: tuple[Asked, Asked]) -> None:
        super().__init__(cast(httpx.Client, None))
        self.replies = {"auto": [usual for usual, _ in pairs], "full": [whole for _, whole in pairs]}
        for pair in pairs:
            assert self.pair("AAPL", "?") == pair

    def ask(self, session: str, question: str, path: str = "auto") -> Asked:
        return self.replies[path].pop(0)


@pytest.fixture
def asker() -> Asker:
    return Played(
        *((reply("fast", "up", at, 1.0 + at), reply("cold", "up", at, 40.0 + at)) for at in range(20)),
        (reply("fast", "up", 30, 2.0), reply("cold", "down", 30, 41.0)),  # a false accept
        (reply("fast", "up", 31, 2.0), reply("cold", "down", 32, 41.0)),  # another version: no comparison
        (reply("fallthrough", "up", 33, 90.0), reply("fallthrough", "down", 33, 42.0)),  # the gate held back
        (reply("fast", "up", 34, 3.0), reply("", "", 0, 70.0, 503)),
        (reply("", "", 0, 80.0, 503), reply("cold", "up", 35, 43.0)),
    )


def test_a_pair_counts_for_what_both_of_its_answers_are(asker: Asker) -> None:
    assert (asker.automatic, len(asker.fast.client_ms), len(asker.full.client_ms)) == (24, 23, 24)
    assert (asker.compared, asker.agreed) == (21, 20)
    assert 90.0 not in asker.fast.client_ms, "what was asked as auto and took the full path is of neither row"
    assert 90.0 not in asker.full.client_ms
    assert asker.fast.service_ms == pytest.approx([client_ms / 4 for client_ms in asker.fast.client_ms])


def test_each_figure_is_in_its_own_place(asker: Asker) -> None:
    report: Any = Report()
    report._console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    report.measured(asker, 700, 500, 150)
    report._console.file.close()
    lines = [" ".join(line.split()) for line in report._console.export_text().splitlines()]
    # Fast: 1..20 and 2, 2, 3; full: 40..59 and 41, 41, 42, 43.
    assert "fast 23 9.00 ms 19.00 ms 2.25 ms" in lines
    assert "full (path: full) 24 47.50 ms 58.00 ms 11.88 ms" in lines
    assert "23 of 24 questions asked with path auto were answered fast (95.8%)" in lines
    assert "20 of 21 fast answers equal the full path's on the same version" in lines
    assert "ready distributions: 700 completed, 500 hits, 150 wasted" in lines
    found = "p50: fast 9.00 ms, full path 47.50 ms at the client (2.25 and 11.88 ms in the service)"
    assert found in lines
