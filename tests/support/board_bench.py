"""A ready board of its own, with a clock that moves only when told to."""

from __future__ import annotations

from pathlib import Path

from stream_engine.board.layout import BoardMeta
from stream_engine.board.reader import BoardReader
from stream_engine.board.writer import BoardWriter
from stream_engine.decision.gate import ClassGate, FastAnswer
from tests.support.clock import Clock

META = BoardMeta(
    topics=("market.bars",),
    model="test",
    profile_digest="p",
    calibration_digest="c",
    window_bars=32,
    classes={"trend": ClassGate(2.0, True)},
    answers={11: FastAnswer("trend", "up"), 12: FastAnswer("trend", "down")},
    generic_class="trend",
    noise=1e-4,
)
LEASE_S = 2.0


class Bench:
    """A writer and readers of one board, on one clock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = Clock()
        self.writer = self.create()

    def create(self, *, max_sessions: int = 4, slots: int = 8, workers: int = 2) -> BoardWriter:
        self.writer = BoardWriter.create(
            self.path, META, max_sessions, slots, workers, LEASE_S, max_partitions=2, clock=self.clock.monotonic_ns
        )
        return self.writer

    def reader(self, worker: int = 0) -> BoardReader:
        return BoardReader.open(self.path, worker, clock=self.clock.monotonic_ns)
