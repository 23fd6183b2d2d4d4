"""With a board or without one the engine does the same; only who reads along differs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from stream_engine.board.meta import board_meta
from stream_engine.board.reader import BoardReader
from stream_engine.board.writer import BoardWriter
from stream_engine.decision.reading import Miss
from stream_engine.messages import StandingPut
from stream_engine.messages.metric_help import ENGINE_COUNTERS

QUESTION = "What is the trend?"


def test_the_engine_does_the_same_without_a_board(fed: Callable[..., Any], builder: Any, tmp_path: Path) -> None:
    told = {}
    for name in ("board", "nobody"):
        board = None
        if name == "board":
            gate = fed(bars=1).gate
            board = BoardWriter.create(tmp_path / "board", board_meta(builder.profile, gate), 16, 64, 1, 60.0)
        bench = fed(keys=("AAPL", "MSFT"), bars=20, board=board)
        engine = bench.engine
        engine.register(StandingPut("*", QUESTION, "commit", "mine"))
        engine.run_until_idle()
        engine.unregister("mine")
        engine.drop_session(engine.sessions["MSFT"])
        told[name] = (bench.events, replace(engine.counters, step_seconds_total=0.0))
        if board is not None:
            reader = BoardReader.open(tmp_path / "board", 0)
            assert not isinstance(reader.read("AAPL", ""), Miss)
            assert engine.publication.counters().keys() <= ENGINE_COUNTERS.keys()
            assert engine.publication.counters()["preposition_slots_total"] > 0
        else:
            assert engine.publication.counters() == {}
            assert engine.publication.valid(engine.sessions["AAPL"]) == {}
        engine.close()
    assert told["board"][0], "something was told"
    assert told["board"] == told["nobody"]
