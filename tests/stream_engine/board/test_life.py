"""The board's life as readers see it: lease, replacement, META, applied offsets, permissions."""

from __future__ import annotations

import stat
from pathlib import Path

import msgspec
import pytest

from stream_engine.board import layout
from stream_engine.board.layout import BoardError, SlotRecord
from stream_engine.board.reader import BoardReader, ReadySlot
from stream_engine.board.writer import BoardWriter
from stream_engine.decision.gate import ClassGate
from stream_engine.decision.reading import Miss
from stream_engine.decision.ready import Evidence, ReadyDistribution
from stream_engine.util.ownership import NotOurs
from tests.support.board_bench import LEASE_S, META, Bench
from tests.support.clock import Clock
from tests.support.strangers_file import give_to_a_stranger


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "ready.board")


def record(entry_key: str = "", version: int = 1) -> SlotRecord:
    return SlotRecord(
        entry_key,
        ReadyDistribution(11, 12, 3.5, 9.25, 9.5, 0.75, 100 + version),
        Evidence(
            session_version=version,
            topic_index=0,
            partition=3,
            offset=version - 1,
            event_time_us=1_700_000_000_000_000,
            record_time_ms=-5,
            bars=32,
        ),
        token_hash=(1 << 64) - version,
        ready_time_ms=1_700_000_000_001,
    )


def hit(result: ReadySlot | Miss) -> ReadySlot:
    assert isinstance(result, ReadySlot), result
    return result


def test_no_answer_after_the_lease_until_the_heartbeat_is_back(bench: Bench) -> None:
    handle, reader = bench.writer.open_session("AAPL"), bench.reader()
    bench.writer.publish(handle, [record()])
    bench.writer.set_applied(0, 0, 5)
    bench.clock.forward(LEASE_S)
    hit(reader.read("AAPL", ""))
    bench.clock.forward(1e-9)
    assert reader.read("AAPL", "") is Miss.LEASE
    assert (reader.alive(), reader.meta, reader.applied(0, 0), reader.boot_id) == (False, None, None, None)
    bench.writer.heartbeat()
    hit(reader.read("AAPL", ""))
    assert reader.alive()


def test_a_heartbeat_ahead_of_the_clock_is_of_another_machine_boot(bench: Bench) -> None:
    reader = bench.reader()
    assert reader.alive()
    bench.clock.forward(-100)
    assert not reader.alive()


def test_close_is_seen_at_once_and_leaves_no_file(bench: Bench) -> None:
    handle, reader = bench.writer.open_session("AAPL"), bench.reader()
    bench.writer.publish(handle, [record()])
    hit(reader.read("AAPL", ""))
    bench.writer.close()
    assert reader.read("AAPL", "") is Miss.LEASE
    assert list(bench.path.parent.iterdir()) == []
    assert bench.reader().read("AAPL", "") is Miss.NO_BOARD


def test_a_new_engine_replaces_the_board_and_readers_follow(bench: Bench) -> None:
    reader, old = bench.reader(), bench.writer
    old.publish(old.open_session("AAPL"), [record("", 1)])
    hit(reader.read("AAPL", ""))
    new = bench.create()
    new.publish(new.open_session("AAPL"), [record("", 2)])
    assert hit(reader.read("AAPL", "")).evidence.session_version == 1  # not looked at on every read
    bench.clock.forward(0.06)
    old.heartbeat()  # a zombie's heartbeat does not hold its readers
    assert hit(reader.read("AAPL", "")).evidence.session_version == 2
    old.close()
    assert bench.path.exists()
    assert reader.boot_id == new.boot_id


def test_after_a_crash_readers_follow_without_delay(bench: Bench) -> None:
    reader = bench.reader()
    bench.clock.forward(LEASE_S + 1)
    assert not reader.alive()
    new = bench.create()
    assert reader.boot_id == new.boot_id


def test_a_reader_may_come_before_the_engine(tmp_path: Path) -> None:
    path = tmp_path / "deeper" / "ready.board"
    clock = Clock()
    reader = BoardReader.open(path, 0, clock=clock.monotonic_ns)
    assert reader.read("AAPL", "") is Miss.NO_BOARD
    assert reader.meta is None
    writer = BoardWriter.create(path, META, 1, 1, 1, LEASE_S, clock=clock.monotonic_ns)
    assert reader.read("AAPL", "") is Miss.ABSENT
    assert reader.meta == META
    writer.close()


@pytest.mark.parametrize("damage", ["short", "magic", "version", "size"])
def test_another_file_is_refused(bench: Bench, damage: str) -> None:
    data = bytearray(bench.path.read_bytes())
    if damage == "short":
        del data[50:]
    elif damage == "size":
        data += bytes(8)
    else:
        data[0 if damage == "magic" else 8] ^= 0xFF
    other = bench.path.with_name("other")
    other.write_bytes(data)
    other.rename(bench.path)
    assert bench.reader().read("AAPL", "") is Miss.LAYOUT


def test_meta_is_one_object_until_it_changes(bench: Bench) -> None:
    reader = bench.reader()
    first = reader.meta
    assert first == META
    assert reader.meta is first
    closed = msgspec.structs.replace(META, classes={"trend": ClassGate(3.0, False)})
    for meta in (closed, META, closed):
        bench.writer.set_meta(meta)
        assert reader.meta == meta


def test_a_meta_that_does_not_fit_is_refused_and_leaves_the_old_one(bench: Bench) -> None:
    huge = msgspec.structs.replace(META, model="x" * layout.META_CAPACITY)
    with pytest.raises(BoardError, match="meta has"):
        bench.writer.set_meta(huge)
    assert bench.reader().meta == META


def test_applied_offsets(bench: Bench) -> None:
    reader, writer = bench.reader(), bench.writer
    assert reader.applied(0, 0) is None
    writer.set_applied(0, 0, 10)
    writer.set_applied(1, 0, 20)
    writer.set_applied(0, 7, 30)  # no third row on this board: counted
    assert [reader.applied(0, 0), reader.applied(1, 0), reader.applied(0, 7)] == [10, 20, None]
    assert writer.counters().full == 1
    writer.set_applied(0, 0, 11)
    writer.drop_partition(1, 0)
    writer.drop_partition(1, 0)
    writer.set_applied(0, 7, 31)  # takes the row that was freed
    assert [reader.applied(0, 0), reader.applied(1, 0), reader.applied(0, 7)] == [11, None, 31]
    assert [reader.applied(-1, 0), reader.applied(0, -1), reader.applied(0, 1 << 40)] == [None] * 3


def test_group_may_write_others_may_not_read(bench: Bench) -> None:
    assert stat.S_IMODE(bench.path.stat().st_mode) == 0o660
    assert [entry.name for entry in bench.path.parent.iterdir()] == [bench.path.name]


def test_sizes_and_workers_out_of_range_are_refused(bench: Bench, tmp_path: Path) -> None:
    with pytest.raises(BoardError, match="slot_limit"):
        BoardWriter.create(tmp_path / "x", META, 1, 0, 1, LEASE_S)
    with pytest.raises(BoardError, match="lease_s"):
        BoardWriter.create(tmp_path / "x", META, 1, 1, 1, 0.0)
    with pytest.raises(BoardError, match="counts 2 workers"):
        bench.reader(2)
    with pytest.raises(BoardError, match="negative"):
        bench.reader(-1)
    assert not (tmp_path / "x").exists()


def test_a_strangers_board_is_neither_read_nor_replaced(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = bench.writer.open_session("AAPL")
    bench.writer.publish(handle, [record()])
    reader = bench.reader()
    hit(reader.read("AAPL", ""))
    successor = Bench(bench.path)  # somebody's who may write to the folder
    successor.writer.publish(successor.writer.open_session("AAPL"), [record()])
    give_to_a_stranger(bench.path, monkeypatch)
    theirs = bench.path.stat().st_ino
    bench.clock.forward(LEASE_S + 1)
    with pytest.raises(NotOurs, match="belongs to another user"):
        reader.read("AAPL", "")
    with pytest.raises(NotOurs, match="name another place"):
        Bench(bench.path)
    assert bench.path.stat().st_ino == theirs


def test_a_pushed_session_is_of_no_topic_and_an_absent_board_knows_none(bench: Bench, tmp_path: Path) -> None:
    reader = bench.reader()
    assert reader.meta is not None
    assert (reader.topic(0), reader.topic(-1)) == ("market.bars", None)
    absent = BoardReader.open(tmp_path / "none", 0)
    assert (absent.topic(0), absent.topic(-1)) == (None, None)


@pytest.mark.parametrize(
    ("topic_index", "partition", "taken"),
    [
        (0, 0, True),
        (2**32 - 2, 2**32 - 1, True),
        (2**32 - 1, 0, False),
        (2**32, 0, False),
        (0, 2**32, False),
        (-1, 0, False),
        (0, -1, False),
    ],
)
def test_a_partition_has_a_key_of_its_own_or_none(topic_index: int, partition: int, taken: bool) -> None:
    if not taken:
        with pytest.raises(BoardError, match="not 32-bit"):
            layout.partition_key(topic_index, partition)
        return
    key = layout.partition_key(topic_index, partition)
    assert 0 < key < 2**64
    assert (key >> 32, key & 0xFFFF_FFFF) == (topic_index + 1, partition)
