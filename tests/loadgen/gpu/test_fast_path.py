"""The fast path alone: what one read and one decision are timed as."""

from __future__ import annotations

from typing import Any

import pytest

from loadgen.gpu.fast_path import measure_fast_path
from stream_engine.board.reader import BoardReader
from stream_engine.decision.gate import Gate
from stream_engine.decision.reading import Miss
from stream_engine.model.forward.distribution import Distribution

LOGITS = Distribution(3, 5, 0.25, 1.0, 4.0, 0.1)
READ_S, DECIDE_S = 3e-6, 1e-6


class Planted:
    """A clock that goes on by a known time with each read of the board and each decision of the gate."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.reads: list[Any] = []
        self.decided = 0
        self.slow = 1.0
        read, decide = BoardReader.read, Gate.decide

        def counted_read(reader: BoardReader, session: str, key: str) -> Any:
            self.now += READ_S * self.slow
            self.reads.append(read(reader, session, key))
            return self.reads[-1]

        def counted_decide(gate: Gate, *arguments: Any, **options: Any) -> Any:
            self.now += DECIDE_S
            self.decided += 1
            return decide(gate, *arguments, **options)

        monkeypatch.setattr(BoardReader, "read", counted_read)
        monkeypatch.setattr(Gate, "decide", counted_decide)

    def clock(self) -> float:
        self.slow = 10.0 if len(self.reads) % 5 == 4 else 1.0  # every fifth read finds the processor elsewhere
        return self.now


def test_a_read_and_a_decision_are_timed_together_and_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = Planted(monkeypatch)
    found = measure_fast_path(LOGITS, 64, 50, planted.clock)
    assert (found.reads, len(planted.reads), planted.decided) == (50, 50, 50)
    assert found.p50_us == pytest.approx(4.0)
    assert found.p90_us == pytest.approx(31.0)
    assert {slot.ready.position for slot in planted.reads} == {64}
    assert {(slot.ready.top1, slot.ready.gap) for slot in planted.reads} == {(3, 0.25)}


def test_a_read_that_does_not_answer_is_an_error_and_no_quick_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoardReader, "read", lambda *_: Miss.INVALID)
    with pytest.raises(RuntimeError, match=r"read 0 .*INVALID"):
        measure_fast_path(LOGITS, 64, 5)
