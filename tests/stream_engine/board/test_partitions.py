"""Applied offsets on the board, read while a partition goes away and its row to another one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_engine.board import layout
from stream_engine.board.reader import BoardReader
from tests.support.board_bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "ready.board")


class MovingWords:
    """The board's words; what ``meanwhile`` does happens just before the reader looks at a word of ``when``."""

    def __init__(self, words: Any, when: Callable[[int], bool], meanwhile: Callable[[], None]) -> None:
        self._words = words
        self._when = when
        self._meanwhile: Callable[[], None] | None = meanwhile

    def __getitem__(self, where: Any) -> Any:
        if isinstance(where, int) and self._when(where) and self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()
        return self._words[where]


def watch(reader: BoardReader, column: int, meanwhile: Callable[[], None]) -> None:
    """``column``: 0 the key word of a partition's row, 1 its offset word."""
    mapping = reader._mapping
    assert mapping is not None
    geometry = mapping.geometry
    first = geometry.partition_base // 8
    end = first + geometry.max_partitions * layout.PARTITION_ROW_BYTES // 8
    mapping.words = MovingWords(  # type: ignore[assignment]
        mapping.words, lambda word: first <= word < end and (word - first) % 2 == column, meanwhile
    )


@pytest.mark.parametrize("known", [True, False])
def test_an_offset_of_a_row_that_went_to_another_partition_is_not_returned(bench: Bench, known: bool) -> None:
    """Between its key word and its offset word: that offset is another partition's. ``known``: the reader has been
    at the row before."""
    writer, reader = bench.writer, bench.reader()
    writer.set_applied(0, 3, 100)
    if known:
        assert reader.applied(0, 3) == 100

    def hand_over() -> None:
        writer.drop_partition(0, 3)
        writer.set_applied(0, 4, 9_000)

    watch(reader, 1, hand_over)
    assert reader.applied(0, 3) is None
    assert reader.applied(0, 4) == 9_000


def test_a_row_that_is_given_up_while_it_is_read_has_no_offset(bench: Bench) -> None:
    writer, reader = bench.writer, bench.reader()
    writer.set_applied(0, 3, 100)
    watch(reader, 1, lambda: writer.drop_partition(0, 3))
    assert reader.applied(0, 3) is None


def test_an_offset_that_moves_on_meanwhile_is_the_new_one(bench: Bench) -> None:
    writer, reader = bench.writer, bench.reader()
    writer.set_applied(0, 3, 100)
    watch(reader, 1, lambda: writer.set_applied(0, 3, 101))
    assert reader.applied(0, 3) == 101


def test_a_partition_that_comes_back_in_another_row_is_found(bench: Bench) -> None:
    writer, reader = bench.writer, bench.reader()
    writer.set_applied(0, 3, 100)
    assert reader.applied(0, 3) == 100
    writer.drop_partition(0, 3)
    writer.set_applied(0, 4, 7)
    writer.set_applied(0, 3, 102)
    assert (reader.applied(0, 3), reader.applied(0, 4)) == (102, 7)
