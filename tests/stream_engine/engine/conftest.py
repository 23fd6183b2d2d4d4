"""A real board for engines on the fake model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_engine.board.meta import board_meta
from stream_engine.board.reader import BoardReader
from stream_engine.board.writer import BoardWriter
from stream_engine.decision.gate import Gate
from stream_engine.model.render.builder import TokenBuilder


@pytest.fixture
def board(tmp_path: Path, builder: TokenBuilder) -> Iterator[BoardWriter]:
    meta = board_meta(builder.profile, Gate({}, {}, 0.0))
    writer = BoardWriter.create(tmp_path / "board", meta, max_sessions=16, slots=64, max_workers=1, lease_s=60.0)
    yield writer
    writer.close()


@pytest.fixture
def reader(board: BoardWriter, tmp_path: Path) -> BoardReader:
    return BoardReader.open(tmp_path / "board", 0)
