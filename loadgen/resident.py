"""How many symbols are resident in how much memory: a window each, one more bar each, then a question to each.

In this process, without Kafka or HTTP: what is counted depends on the engine alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from stream_engine.config.engine import EngineSettings
from stream_engine.engine.engine import Engine
from stream_engine.messages import Answer, Assign, Bar, Batch, ErrorReply, Query, Record
from stream_engine.process.build import build_engine

TOPIC = "market.bars"
MINUTE_US = 60_000_000
AT_ONCE = 64
"""Records of one batch."""


@dataclass(frozen=True, slots=True)
class ResidentMarket:
    """``bar_tokens`` were computed for one more bar of each key, ``expected_tokens`` are those of the bars and of
    the decision points that ride along. ``fast`` answers of ``keys`` came from what was ready."""

    keys: int
    resident: int
    ready: int
    fast: int
    bar_tokens: int
    expected_tokens: int
    evictions: int
    kv_bytes_used: int
    kv_bytes_total: int
    rss_bytes: int


def resident_market(keys: int, kv_memory: str, question: str = "What is the trend?") -> ResidentMarket:
    """Feed ``keys`` symbols on the embedded model, and look at what they take."""
    engine = build_engine(EngineSettings(kv_memory=kv_memory, calibration="none"))
    window = engine.builder.profile.window_bars
    names = [f"S{number:05}" for number in range(keys)]
    engine.assign(Assign(topic=TOPIC, partition=0, generation=1, start=0, live_from=0))
    closes = np.random.default_rng(7).normal(0, 0.2, (keys, window + 1)).cumsum(axis=1) + 100
    bars = {
        name: [_bar(index, close) for index, close in enumerate(row)]
        for name, row in zip(names, closes.tolist(), strict=True)
    }
    offset = _feed(engine, ((name, bars[name][:window]) for name in names), 0)
    before = engine.counters.step_tokens_total
    _feed(engine, ((name, bars[name][window:]) for name in names), offset)
    computed = int(engine.counters.step_tokens_total - before)
    replies: list[Answer | ErrorReply] = []
    for name in names:
        engine.queries.ask(Query(name, question, "fast"), replies.append)
    engine.run_until_idle()
    engine.check_integrity()
    budget = engine.budget
    return ResidentMarket(
        keys=keys,
        resident=budget.resident_count,
        ready=sum("" in session.ready for session in engine.sessions.values()),
        fast=sum(isinstance(reply, Answer) and reply.path == "fast" for reply in replies),
        bar_tokens=computed,
        expected_tokens=keys * (engine.builder.tokens_per_bar + len(engine.builder.generic_entry)),
        evictions=int(engine.counters.evictions_total),
        kv_bytes_used=budget.cells_used * budget.shape.cell_bytes,
        kv_bytes_total=budget.shape.cells * budget.shape.cell_bytes,
        rss_bytes=_resident_bytes(),
    )


def _feed(engine: Engine, bars: Iterator[tuple[str, list[Bar]]], offset: int) -> int:
    """One record a key; returns the next offset."""
    while group := list(islice(bars, AT_ONCE)):
        records = tuple(
            Record(key, offset + n, 1_000 + offset + n, tuple(new)) for n, (key, new) in enumerate(group)
        )
        end = offset + len(records) - 1
        refused = engine.ingest.take(
            Batch(
                topic=TOPIC,
                partition=0,
                generation=1,
                follows=offset - 1,
                last=end,
                consumed=len(records),
                records=records,
            )
        )
        assert refused is None, refused
        engine.run_until_idle()
        engine.ingest.settle()
        offset = end + 1
    return offset


def _bar(index: int, close: float) -> Bar:
    return Bar(
        time_us=index * MINUTE_US, open=close, high=close + 0.05, low=close - 0.05, close=close, volume=100.0
    )


def _resident_bytes() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    print(resident_market(int(sys.argv[1]), sys.argv[2]))
