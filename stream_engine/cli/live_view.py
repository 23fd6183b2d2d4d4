"""The live view of ``watch``: sessions and standing queries as listed, answers from the event stream."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from stream_engine.client.http import error_message, is_local, open_client, request, unreachable
from stream_engine.client.options import Options
from stream_engine.client.shown import cell, shown
from stream_engine.client.sse import EventFollower

POLL_S = 1.0
REFRESH_S = 0.25
SHOWN_ANSWERS = 200
"""Newest standing-query answers in the view; a terminal shows fewer."""
BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(slots=True)
class View:
    """What the view knows at one moment."""

    url: str
    gate: dict[str, Any]
    """Of the class that the generic header answers, as ``/v1/calibration`` tells it; empty while it does not."""
    sessions: list[dict[str, Any]] = field(default_factory=list)
    problem: str = ""
    health: str = ""
    model: str = ""
    queries: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def render(self) -> RenderableType:
        line = Text(f"{self.url}  ", style="bold")
        good = not self.problem and self.health == "ready"
        line.append(shown(self.problem or self.health), style="green" if good else "red")
        if self.model:
            line.append(f"  model {shown(self.model)}  {len(self.sessions)} sessions")
        parts: list[RenderableType] = [line, self._session_table()]
        if self.answers:
            parts.append(self._answer_table())
        elif self.queries:
            parts.append(self._query_table())
        return Group(*parts)

    def _session_table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("session", "state", "bars", "age", "close", "recent", "answer", "gap", "gate"):
            table.add_column(name, justify="right" if name in ("bars", "close", "gap", "age") else "left")
        for session in self.sessions:
            closes = [bar[4] for bar in session["last_bars"]]
            gap = session["ready_gap"]
            table.add_row(
                cell(session["id"]),
                session["state"],
                str(session["bars"]),
                age(session["last_event_time"], datetime.now(UTC)),
                f"{closes[-1]:g}" if closes else "-",
                spark(closes),
                cell(session["ready_token"] or "-"),
                "-" if gap is None else f"{gap:.2f}",
                self._gate(session),
            )
        return table

    def _gate(self, session: dict[str, Any]) -> str:
        """As the engine would decide for the generic header."""
        if session["state"] == "WARMING_UP" or session["ready_gap"] is None or not self.gate.get("open", True):
            return "closed"
        if not self.gate:
            return "?"
        fires = session["ready_token"] is not None and session["ready_gap"] > self.gate["tau"]
        return "fires" if fires else "below"

    def _query_table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("standing query", "session", "on"):
            table.add_column(name)
        for query in self.queries:
            table.add_row(cell(f"{query['id']}: {query['question']}"), cell(query["session"]), query["on"])
        return table

    def _answer_table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("standing query", "session", "answer", "before", "gap", "age"):
            table.add_column(name)
        for answer in list(self.answers.values())[-SHOWN_ANSWERS:][::-1]:
            table.add_row(
                cell(f"{answer['query']}: {answer['question']}"),
                cell(answer["session"]),
                cell(answer["answer"], "bold"),
                cell(answer["previous"] if answer["previous"] not in (None, answer["answer"]) else ""),
                f"{answer['gap']:.2f}",
                age(answer["event_time"], datetime.now(UTC)),
            )
        return table


def age(event_time: str | None, now: datetime) -> str:
    """How long ago a bar's time (RFC 3339) is, in its largest unit."""
    if event_time is None:
        return "-"
    seconds = (now - datetime.fromisoformat(event_time)).total_seconds()
    for unit, length in (("y", 31_557_600), ("d", 86_400), ("h", 3_600), ("m", 60)):
        if abs(seconds) >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def spark(values: list[float]) -> str:
    """The values as a line of blocks."""
    if not values:
        return ""
    # In quarters: the distance of two numbers may be more than any number.
    values = [value / 4 for value in values]
    low, span = min(values), max(values) - min(values)
    return "".join(BLOCKS[int((value - low) / span * (len(BLOCKS) - 1)) if span else 0] for value in values)


def run(options: Options, session: str | None, url: str | None, once: bool) -> None:
    """Show the view until interrupted; once where asked, or where the output is no terminal."""
    console = Console()
    with open_client(options, url, timeout_s=5.0) as client:
        view = View(str(client.base_url).rstrip("/"), {})
        if once or not console.is_terminal:
            request(client, "GET", "/v1/sessions", params={"limit": 1})
            _poll(client, view, session)
            console.print(view.render())
            return
        follower = EventFollower(view.url, not is_local(view.url), session)
        try:
            with Live(view.render(), console=console, screen=True, auto_refresh=False) as live:
                next_poll = 0.0
                while True:
                    if time.monotonic() >= next_poll:
                        _poll(client, view, session)
                        next_poll = time.monotonic() + POLL_S
                    _take_events(follower, view)
                    live.update(view.render(), refresh=True)
                    time.sleep(REFRESH_S)
        except KeyboardInterrupt:
            return  # how one leaves it
        finally:
            follower.stop()


def _poll(client: httpx.Client, view: View, session: str | None) -> None:
    try:
        health = client.get("/health/ready")
        listed = client.get("/v1/sessions", params={} if session is None else {"session": session})
        queries = client.get("/v1/standing-queries")
        calibration = client.get("/v1/calibration")
    except httpx.HTTPError as error:
        view.problem = unreachable(client, error)
        return
    view.problem = ""
    view.health = "ready" if health.is_success else error_message(health)
    if health.is_success:
        view.model = health.json()["model"]
    if calibration.is_success:
        told = calibration.json()
        view.gate = next((entry for entry in told["classes"] if entry["class"] == told["generic_class"]), {})
    if queries.is_success:
        view.queries = queries.json()["data"]
    if listed.is_success:
        view.sessions = listed.json()["data"]


def _take_events(follower: EventFollower, view: View) -> None:
    for event in follower.drain():
        if event.name == "answer_changed":
            key = (event.data["query"], event.data["session"])
            view.answers.pop(key, None)
            view.answers[key] = event.data
        elif event.name == "connected":
            view.answers.clear()  # the snapshot that follows is the whole state
