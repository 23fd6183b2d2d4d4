"""What the demo prints."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from consumers.files.reader import FeedBar
from stream_engine.cli.demo.asking import Asked, Asker, DemoTimes
from stream_engine.cli.live_view import spark
from stream_engine.client.sse import ServerEvent

WIDTH = 112
"""Columns where the output is no terminal."""


class Report:
    """Prints as things happen; times are of the whole run."""

    def __init__(self) -> None:
        console = Console(highlight=False)
        self._console = console if console.is_terminal else Console(highlight=False, width=WIDTH)
        self._started = time.monotonic()
        self._changes = 0

    def line(self, text: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._started:5.1f} s[/]  {escape(text)}", soft_wrap=True)

    def waiting(self, what: str) -> AbstractContextManager[object]:
        """Say what is waited for; a spinner on a terminal."""
        if not self._console.is_terminal:
            self.line(what)
        return self._console.status(what)

    def opening(self, series: dict[str, list[FeedBar]]) -> None:
        first = min(bars[0][1]["ts"] for bars in series.values())[:10]
        last = max(bars[-1][1]["ts"] for bars in series.values())[:10]
        self._console.rule("market data in, answers out")
        self._console.print(
            f"Daily bars of {', '.join(series)}, {first} to {last}, through a real Kafka into one resident\n"
            "model session each. The answer to the next question is computed with every commit.\n"
        )

    def flow(self, bars: int, speed: float) -> None:
        self._console.print()
        self._console.rule(f"{bars} bars at {speed:g} a second: standing answers as they change, and questions")

    def changes(self, events: Iterable[ServerEvent]) -> None:
        """One line for each standing-query answer that changed."""
        for event in events:
            if event.name != "answer_changed":
                continue
            self._changes += 1
            data = event.data
            before = data["previous"] or "(first)"
            self._console.print(
                f"  {day(data['event_time'])}  [bold]{escape(data['session']):6}[/] {data['class']:9} "
                f"{before:>8} -> [bold]{data['answer']:8}[/] gap {data['gap']:5.2f}  "
                f"offset {data['partition']}:{data['offset']}",
                soft_wrap=True,
            )

    def asked(self, asked: Asked) -> None:
        """One line for a question that a user asked meanwhile."""
        self._console.print(f"  [cyan]{escape(_told(asked))}[/]", soft_wrap=True)

    def bars(self, sessions: list[dict[str, Any]]) -> None:
        """The last bars of every session, as the engine holds them."""
        self._console.print(f"\n  {self._changes} standing answers changed while bars flowed.\n")
        self._console.rule("the last bars, as the sessions hold them")
        for session in sessions:
            table = Table(box=None, pad_edge=False, header_style="dim")
            for name in (escape(session["id"]), "open", "high", "low", "close", "volume"):
                table.add_column(name, justify="right" if table.columns else "left", min_width=10)
            bars = session["last_bars"][-3:]
            for at_us, *prices, volume in bars:
                at = datetime.fromtimestamp(at_us / 1e6, UTC)
                amount = "-" if volume is None else f"{volume:,.0f}"
                table.add_row(f"{at:%Y-%m-%d}", *(f"{price:.2f}" for price in prices), amount)
            closes = [bar[4] for bar in session["last_bars"]]
            self._console.print(table)
            self._console.print(
                f"  {spark(closes)}  {session['state']}, {session['bars']} bars resident in "
                f"{session['kv_tokens']} cells, version {session['data_version']}, {session['swaps']} swaps\n"
            )

    def questions(self, answers: list[Asked]) -> None:
        """Questions in several wordings, with what each answer rests on."""
        self._console.rule("questions")
        for asked in answers:
            self._console.print(f"  {escape(_told(asked))}", soft_wrap=True)

    def measured(self, asker: Asker, slots: int, hits: int, wasted: int) -> None:
        """Both paths, by the same client over the same connection, question by question in turn."""
        self._console.print()
        self._console.rule("measured in this run, while bars flowed")
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("path", "answers", "p50 at the client", "p95 at the client", "p50 in the service"):
            table.add_column(name, justify="left" if name == "path" else "right", min_width=12)
        for name, times in (("fast", asker.fast), ("full (path: full)", asker.full)):
            table.add_row(name, *_times(times))
        self._console.print(table)
        share = len(asker.fast.client_ms) / asker.automatic if asker.automatic else 0.0
        counted = len(asker.fast.client_ms)
        self._console.print(
            f"\n  {counted} of {asker.automatic} questions asked with path auto were answered fast ({share:.1%})"
            f"\n  {asker.agreed} of {asker.compared} fast answers equal the full path's on the same version"
            f"\n  ready distributions: {slots} completed, {hits} hits, {wasted} wasted"
        )
        if asker.fast.client_ms:
            (fast, fast_service), (full, full_service) = asker.fast.p50(), asker.full.p50()
            self._console.print(
                f"  [bold]p50: fast {fast:.2f} ms, full path {full:.2f} ms at the client "
                f"({fast_service:.2f} and {full_service:.2f} ms in the service)[/]"
            )

    def closing(self) -> None:
        self.line("done; nothing is left running. Your own data: docs/tutorial.md, from `stream-engine serve` on.")


def day(event_time: str | None) -> str:
    return (event_time or "-")[:10]


def _told(asked: Asked) -> str:
    question = f'{asked.session:6} "{asked.question}"'
    took = f"{asked.seconds * 1000:.1f} ms"
    if asked.status != 200:
        message = textwrap.shorten(asked.body["error"]["message"], 180, placeholder=" ...")
        return f"{question} -> {asked.status}, {took}: {message}"
    body = asked.body
    return (
        f"{question} -> {body['answer']}   {body['path']}, gap {body['gap']:.2f}, "
        f"offset {body['partition']}:{body['offset']}, {took} ({body['latency_us'] / 1000:.2f} in the service)"
    )


def _times(times: DemoTimes) -> tuple[str, str, str, str]:
    if not times.client_ms:
        return ("0", "-", "-", "-")
    client, service = times.p50()
    ordered = sorted(times.client_ms)
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return (str(len(ordered)), f"{client:.2f} ms", f"{p95:.2f} ms", f"{service:.2f} ms")
