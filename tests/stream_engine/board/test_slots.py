from __future__ import annotations

import random
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from stream_engine.board import layout
from stream_engine.board.layout import BoardError, SlotRecord
from stream_engine.board.reader import ReadySlot
from stream_engine.board.writer import BoardWriter
from stream_engine.decision.reading import Miss
from stream_engine.decision.ready import Evidence, ReadyDistribution, StateFlag
from tests.support.board_bench import Bench


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
            flags=StateFlag.INCOMPLETE,
        ),
        token_hash=(1 << 64) - version,
        ready_time_ms=1_700_000_000_001,
    )


def hit(result: ReadySlot | Miss) -> ReadySlot:
    assert isinstance(result, ReadySlot), result
    return result


def sequence_word(slot: ReadySlot, writer: BoardWriter) -> int:
    """Word number of the sequence word of the bank that was read."""
    geometry = writer._geometry
    start = geometry.slot_base + (slot.cell // 2) * geometry.slot_bytes + layout.SLOT_HEAD_BYTES
    return (start + (slot.cell & 1) * layout.BANK_BYTES) // 8


def test_what_is_published_is_read_field_by_field(bench: Bench) -> None:
    handle = bench.writer.open_session("AAPL")
    bench.writer.publish(handle, [record(), record("is it up?", 7)])
    for entry, version in (("", 1), ("is it up?", 7)):
        slot = hit(bench.reader().read("AAPL", entry))
        expected = record(entry, version)
        assert (slot.ready, slot.evidence) == (expected.ready, expected.evidence)
        assert (slot.token_hash, slot.ready_time_ms) == (expected.token_hash, expected.ready_time_ms)
        assert slot.boot_id == bench.writer.boot_id


def test_session_and_entry_are_kept_apart(bench: Bench) -> None:
    bench.writer.publish(bench.writer.open_session("a"), [record("bc")])
    reader = bench.reader()
    assert reader.read("ab", "c") is Miss.ABSENT
    assert reader.read("a", "") is Miss.ABSENT
    assert reader.read("a", "\ud800") is Miss.ABSENT  # JSON may carry what UTF-8 may not


def test_a_publish_replaces_every_slot_of_the_session(bench: Bench) -> None:
    handle = bench.writer.open_session("AAPL")
    other = bench.writer.open_session("MSFT")
    bench.writer.publish(handle, [record("", 1), record("q", 1)])
    bench.writer.publish(other, [record("", 50)])
    bench.writer.publish(handle, [record("", 2)])
    reader = bench.reader()
    assert hit(reader.read("AAPL", "")).evidence.session_version == 2
    assert reader.read("AAPL", "q") is Miss.INVALID
    assert hit(reader.read("MSFT", "")).evidence.session_version == 50


def test_the_live_slots_are_served_until_the_epoch_word_is_stored(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All slots of a session go from one version to the next in one write, and none is missing before it."""
    handle = bench.writer.open_session("AAPL")
    bench.writer.publish(handle, [record("", 1), record("q", 1)])
    reader = bench.reader()
    seen: list[tuple[int, int]] = []
    flip = BoardWriter._flip

    def versions() -> tuple[int, int]:
        first, second = hit(reader.read("AAPL", "")), hit(reader.read("AAPL", "q"))
        return first.evidence.session_version, second.evidence.session_version

    def watched(*arguments: object) -> None:
        seen.append(versions())
        flip(*arguments)  # type: ignore[arg-type]
        seen.append(versions())

    monkeypatch.setattr(BoardWriter, "_flip", watched)
    for version in (2, 3):
        bench.writer.publish(handle, [record("", version), record("q", version)])
    assert seen == [(1, 1), (2, 2), (2, 2), (3, 3)]


def test_invalidate_and_add(bench: Bench) -> None:
    handle = bench.writer.open_session("AAPL")
    reader = bench.reader()
    bench.writer.publish(handle, [record()])
    for version in (2, 3, 4):
        bench.writer.invalidate(handle)
        assert reader.read("AAPL", "") is Miss.INVALID
        bench.writer.add(handle, [record("", version)])
        assert hit(reader.read("AAPL", "")).evidence.session_version == version
    bench.writer.add(handle, [record("late", 4)])
    assert hit(reader.read("AAPL", "")).evidence.session_version == 4
    assert hit(reader.read("AAPL", "late")).evidence.session_version == 4


def test_two_invalidations_do_not_bring_back_the_bank_of_before(bench: Bench) -> None:
    handle = bench.writer.open_session("AAPL")
    reader = bench.reader()
    bench.writer.publish(handle, [record()])
    bench.writer.publish(handle, [record()])
    for _ in range(4):
        bench.writer.invalidate(handle)
        assert reader.read("AAPL", "") is Miss.INVALID


def test_a_failed_publish_leaves_nothing_valid(bench: Bench) -> None:
    handle = bench.writer.open_session("AAPL")
    bench.writer.publish(handle, [record("", 1), record("q", 1)])
    broken = replace(record("q", 2), token_hash=-1)
    with pytest.raises(struct.error):  # a hash has no sign; the interpreters say it in words of their own
        bench.writer.publish(handle, [record("", 2), broken])
    reader = bench.reader()
    for _ in range(3):
        assert reader.read("AAPL", "") is Miss.INVALID
        assert reader.read("AAPL", "q") is Miss.INVALID
        bench.writer.invalidate(handle)
    bench.writer.publish(handle, [record("", 3)])
    assert hit(reader.read("AAPL", "")).evidence.session_version == 3
    counters = bench.writer.counters()
    assert counters.completed == 4
    assert (counters.hits, counters.wasted) == (0, 3)


def test_a_closed_session_is_gone_and_its_index_never_revives_a_slot(bench: Bench) -> None:
    writer, reader = bench.create(max_sessions=1), bench.reader()
    epochs: list[int] = []
    for version in range(1, 6):
        handle = writer.open_session("AAPL")
        assert reader.read("AAPL", "") is Miss.ABSENT
        writer.publish(handle, [record("", version)])
        slot = hit(reader.read("AAPL", ""))
        epochs.append(slot.session_epoch)
        writer.close_session(handle)
        assert reader.read("AAPL", "") is Miss.ABSENT
        with pytest.raises(BoardError, match="not open"):
            writer.publish(handle, [record()])
    assert epochs == sorted(set(epochs))


def test_a_session_opens_once(bench: Bench) -> None:
    bench.writer.open_session("AAPL")
    with pytest.raises(BoardError, match="open already"):
        bench.writer.open_session("AAPL")


def test_full_tables_are_counted_misses(bench: Bench) -> None:
    writer, reader = bench.create(max_sessions=2, slots=3), bench.reader()
    first, second = writer.open_session("s0"), writer.open_session("s1")
    writer.publish(first, [record(str(entry)) for entry in range(5)])
    assert [isinstance(reader.read("s0", str(entry)), ReadySlot) for entry in range(5)] == [True] * 3 + [False] * 2
    assert reader.read("s0", "4") is Miss.FULL
    assert writer.counters().full == 2
    homeless = writer.open_session("s2")
    writer.publish(homeless, [record()])
    writer.add(homeless, [record()])
    writer.invalidate(homeless)
    writer.consume(homeless, "")
    assert writer.counters().full == 4
    writer.close_session(homeless)
    writer.remove(first, "0")
    assert reader.read("s0", "0") is Miss.ABSENT
    writer.publish(second, [record()])
    assert isinstance(reader.read("s1", ""), ReadySlot)
    assert writer.counters().used_slots == 3


def test_the_hash_table_against_a_dictionary(bench: Bench) -> None:
    """Random opens, publishes, removals and closes; every key is found where it must be and nowhere else."""
    writer, reader = bench.create(max_sessions=6, slots=20), bench.reader()
    chance = random.Random(5)
    names, entries = [f"s{n}" for n in range(6)], [str(n) for n in range(6)]
    handles, valid = {}, dict[tuple[str, str], int]()
    for version in range(1, 600):
        name = chance.choice(names)
        if name not in handles:
            handles[name] = writer.open_session(name)
        action = chance.random()
        if action < 0.6:
            chosen = chance.sample(entries, chance.randint(0, 6))
            valid = {key: old for key, old in valid.items() if key[0] != name}
            before = writer.counters().full
            writer.publish(handles[name], [record(entry, version) for entry in chosen])
            found = [entry for entry in chosen if isinstance(reader.read(name, entry), ReadySlot)]
            assert len(chosen) - len(found) == writer.counters().full - before
            valid.update({(name, entry): version for entry in found})
        elif action < 0.85:
            entry = chance.choice(entries)
            writer.remove(handles[name], entry)
            valid.pop((name, entry), None)
        else:
            writer.close_session(handles.pop(name))
            valid = {key: old for key, old in valid.items() if key[0] != name}
        for key in [(n, e) for n in names for e in entries]:
            result = reader.read(*key)
            assert (result.evidence.session_version if isinstance(result, ReadySlot) else None) == valid.get(key)
    counters = writer.counters()
    for handle in handles.values():
        writer.close_session(handle)
    assert writer.counters().used_slots == 0
    assert counters.completed > 500
    assert set(writer._keys) == {layout.EMPTY_KEY, layout.TOMBSTONE_KEY} or set(writer._keys) == {layout.EMPTY_KEY}


def test_hits_and_wasted_are_counted_once_per_pre_position(bench: Bench) -> None:
    writer, workers = bench.writer, [bench.reader(0), bench.reader(1)]
    handle = writer.open_session("AAPL")
    writer.publish(handle, [record("", 1), record("q", 1)])
    for reader in workers:
        for _ in range(3):
            reader.consume(hit(reader.read("AAPL", "")))
    counters = writer.counters()
    assert (counters.completed, counters.hits, counters.wasted) == (2, 0, 0)  # pending: neither
    writer.publish(handle, [record("", 2), record("q", 2)])
    workers[1].consume(hit(workers[1].read("AAPL", "q")))  # the new one, in the other bank
    writer.invalidate(handle)
    writer.invalidate(handle)
    for _ in range(2):
        counters = writer.counters()
        assert (counters.completed, counters.hits, counters.wasted) == (4, 2, 2)
    writer.add(handle, [record("", 3)])
    writer.consume(handle, "")
    writer.consume(handle, "no such entry")
    writer.add(handle, [record("", 3)])
    writer.close_session(handle)
    counters = writer.counters()
    assert (counters.completed, counters.hits, counters.wasted) == (6, 3, 3)


def test_an_ended_pre_position_cannot_be_consumed_by_the_engine(bench: Bench) -> None:
    handle = bench.writer.open_session("AAPL")
    bench.writer.publish(handle, [record()])
    bench.writer.invalidate(handle)
    bench.writer.consume(handle, "")
    bench.writer.invalidate(handle)
    bench.writer.consume(handle, "")
    assert (bench.writer.counters().hits, bench.writer.counters().wasted) == (0, 1)


def test_a_read_just_before_the_flip_may_be_reported_just_after_it(bench: Bench) -> None:
    handle, reader = bench.writer.open_session("AAPL"), bench.reader()
    bench.writer.publish(handle, [record("", 1)])
    slot = hit(reader.read("AAPL", ""))
    bench.writer.publish(handle, [record("", 2)])
    reader.consume(slot)
    assert bench.writer.counters().hits == 1


def test_a_slot_of_another_life_of_the_engine_is_not_consumed(bench: Bench) -> None:
    handle, reader = bench.writer.open_session("AAPL"), bench.reader()
    bench.writer.publish(handle, [record()])
    old = hit(reader.read("AAPL", ""))
    bench.writer.close()
    writer = bench.create()
    handle = writer.open_session("AAPL")
    writer.publish(handle, [record()])
    assert hit(reader.read("AAPL", "")).generation == old.generation
    reader.consume(old)
    writer.invalidate(handle)
    assert (writer.counters().hits, writer.counters().wasted) == (0, 1)


def test_a_slot_being_written_is_torn_and_its_other_bank_is_not(bench: Bench) -> None:
    handle, reader = bench.writer.open_session("AAPL"), bench.reader()
    bench.writer.publish(handle, [record("", 1)])
    word = sequence_word(hit(reader.read("AAPL", "")), bench.writer)
    bench.writer._words[word] += 1
    assert reader.read("AAPL", "") is Miss.TORN
    bench.writer.publish(handle, [record("", 2)])
    assert hit(reader.read("AAPL", "")).evidence.session_version == 2


def test_every_flipped_byte_of_a_slot_is_noticed(bench: Bench) -> None:
    handle, reader = bench.writer.open_session("AAPL"), bench.reader()
    bench.writer.publish(handle, [record()])
    first = (sequence_word(hit(reader.read("AAPL", "")), bench.writer) + 1) * 8
    for position in range(first, first + layout.PAYLOAD.size + layout.CHECKSUM.size):
        bench.writer._memory[position] ^= 0x10
        assert reader.read("AAPL", "") is Miss.TORN
        bench.writer._memory[position] ^= 0x10
    hit(reader.read("AAPL", ""))


def test_a_flip_during_the_copy_is_noticed(bench: Bench) -> None:
    """The epoch word is read after the copy: a session that moved meanwhile is answered from its new state."""
    handle, reader = bench.writer.open_session("AAPL"), bench.reader()
    bench.writer.publish(handle, [record("", 1)])
    hit(reader.read("AAPL", ""))
    mapping = reader._mapping
    assert mapping is not None

    class MovingMemory:
        """Lets the writer commit at the moment of the reader's slice copy of the bank."""

        def __init__(self, commits: int) -> None:
            self.commits = commits

        def __getitem__(self, where: slice) -> bytes:
            data = memory[where]
            if len(data) > layout.KEY_BYTES and self.commits:
                self.commits -= 1
                bench.writer.publish(handle, [record("", 100 - self.commits)])
            return data

    memory = mapping.memory
    mapping.memory = MovingMemory(1)  # type: ignore[assignment]
    assert hit(reader.read("AAPL", "")).evidence.session_version == 100
    mapping.memory = MovingMemory(3)  # type: ignore[assignment]
    assert reader.read("AAPL", "") is Miss.TORN


def test_reads_are_counted_by_entry_over_workers_and_versions(bench: Bench) -> None:
    writer, workers = bench.writer, [bench.reader(0), bench.reader(1)]
    handle = writer.open_session("AAPL")
    assert writer.reads(handle, "q") == 0
    for version in (1, 2, 3):
        writer.publish(handle, [record("", version), record("q", version)])
        for reader, times in zip(workers, (3, 2), strict=True):
            for _ in range(times):
                reader.consume(hit(reader.read("AAPL", "q")))
        writer.consume(handle, "q")  # the engine's own are not an API worker's
        assert writer.reads(handle, "q") == 5 * version
    assert writer.reads(handle, "") == 0
    writer.invalidate(handle)
    assert writer.reads(handle, "q") == 15
    writer.remove(handle, "q")
    writer.add(handle, [record("q", 4)])
    assert writer.reads(handle, "q") == 0
    counters = writer.counters()
    assert (counters.completed, counters.hits, counters.wasted) == (7, 3, 3)


def test_a_count_of_reads_stops_at_what_its_word_holds() -> None:
    full = layout.read_once_more(5 << layout.READ_BITS | layout.READ_MASK, 5)
    assert (layout.reads_of(full, 5), layout.reads_of(full, 4)) == (layout.READ_MASK, 0)
    assert layout.reads_of(layout.read_once_more(full, 6), 6) == 1
