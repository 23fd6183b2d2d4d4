"""The fast path alone: reads of a real ready board, each with the gate's decision, in one process."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stream_engine.board.layout import BoardMeta, SlotRecord
from stream_engine.board.reader import BoardReader, ReadySlot
from stream_engine.board.writer import BoardWriter
from stream_engine.decision.entry import GENERIC_KEY
from stream_engine.decision.gate import ClassGate, FastAnswer, Gate
from stream_engine.decision.ready import Evidence, ReadyDistribution
from stream_engine.model.forward.distribution import Distribution

READS = 20_000
LEASE_S = 3600.0
SESSION = "gpu"
CLASS = "trend"


@dataclass(frozen=True, slots=True)
class ReadTimes:
    """One read and one decision (Alg. 2; L_fast of Eq. 3), in microseconds."""

    p50_us: float
    p90_us: float
    reads: int


def measure_fast_path(
    logits: Distribution, position: int, reads: int = READS, clock: Callable[[], float] = time.perf_counter
) -> ReadTimes:
    """Put the ready distribution at `position` on a board of its own and answer from it `reads` times, timed by
    `clock` (seconds).

    The gate is made to fire: random weights are rarely sure of anything, and the time is the same.
    Raises RuntimeError where a read does not answer, which is an error of the board.
    """
    answers = {logits.top1: FastAnswer(CLASS, "up")}
    gate = Gate({CLASS: ClassGate(-1.0)}, answers, 0.0)
    meta = BoardMeta(
        topics=("market.bars",),
        model="random",
        profile_digest="",
        calibration_digest="",
        window_bars=1,
        classes=dict(gate.classes),
        answers=answers,
        generic_class=CLASS,
        noise=gate.noise,
    )
    ready = ReadyDistribution.at(position, logits)
    seconds = np.empty(reads)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "board"
        writer = BoardWriter.create(path, meta, 4, 8, 1, LEASE_S)
        try:
            now_ms = time.time_ns() // 1_000_000
            evidence = Evidence(
                session_version=1,
                topic_index=0,
                partition=0,
                offset=0,
                event_time_us=now_ms * 1000,
                record_time_ms=now_ms,
                bars=1,
            )
            handle = writer.open_session(SESSION)
            writer.publish(
                handle,
                [
                    SlotRecord(
                        entry_key=GENERIC_KEY, ready=ready, evidence=evidence, token_hash=0, ready_time_ms=now_ms
                    )
                ],
            )
            reader = BoardReader.open(path, 0)
            for number in range(reads):
                start = clock()
                slot = reader.read(SESSION, GENERIC_KEY)
                fires = isinstance(slot, ReadySlot) and gate.decide(slot.ready, CLASS).fires
                seconds[number] = clock() - start
                if not fires:
                    raise RuntimeError(f"read {number} of the board gave {slot}")
        finally:
            writer.close()
    p50, p90 = np.percentile(seconds, (50, 90)) * 1e6
    return ReadTimes(float(p50), float(p90), reads)
