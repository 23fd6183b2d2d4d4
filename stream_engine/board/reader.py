"""An API worker's side of the ready board: reads slots without locks, marks the consumed ones."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import msgspec

from stream_engine.board import layout
from stream_engine.board.layout import BoardError, BoardMeta, Geometry
from stream_engine.decision.gate import Gate
from stream_engine.decision.reading import Miss, Policy, Reading
from stream_engine.decision.ready import Evidence, ReadyDistribution, StateFlag
from stream_engine.util.ownership import NotOurs, require_ours

TRIES = 3
RECHECK_NS = 50_000_000
"""How often a living board's path is looked at; one that is not alive is looked at on every read."""

_FLAGS = {int(flag): flag for flag in map(StateFlag, range(4))}  # the enum's own call costs a microsecond
_META_DECODER = msgspec.json.Decoder(BoardMeta)


@dataclass(frozen=True, slots=True)
class ReadySlot(Reading):
    """A decision point of the board. ``cell``, ``generation`` and ``boot_id`` say what was read, for ``consume``;
    ``token_hash`` is 64 bits of a hash of the token sequence up to the decision point."""

    token_hash: int
    ready_time_ms: int
    session_epoch: int
    cell: int
    boot_id: bytes


class _Mapping:
    """One mapped board file. Replaced whole, never closed by hand: a read in progress keeps its own."""

    __slots__ = (
        "boot_id", "epoch_word", "geometry", "inode", "lease_ns", "mask", "memory", "meta", "meta_version",
        "slot_base", "slot_bytes", "words",
    )  # fmt: skip

    def __init__(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if status.st_size < layout.HEADER_BYTES:
            raise BoardError("the file is too short for a board")
        self.memory = mmap.mmap(descriptor, status.st_size)
        # A whole number of words is what the cast needs; a board's size always is one.
        self.words = memoryview(self.memory)[: status.st_size & ~7].cast("Q")
        words = self.words
        if self.memory[: len(layout.MAGIC)] != layout.MAGIC or words[layout.W_LAYOUT] != layout.LAYOUT_VERSION:
            raise BoardError("the file is not a board of this layout version")
        sizes = words[layout.W_SESSIONS : layout.W_PARTITIONS + 1].tolist()
        geometry = Geometry(*sizes)
        if geometry.file_bytes != status.st_size:
            raise BoardError("the file's size is not what its header says")
        self.geometry = geometry
        self.inode = (status.st_dev, status.st_ino)
        self.boot_id: bytes = self.memory[layout.W_BOOT * 8 : layout.W_BOOT * 8 + 16]
        self.lease_ns = words[layout.W_LEASE_NS]
        self.mask = geometry.table_slots - 1
        self.slot_base = geometry.slot_base
        self.slot_bytes = geometry.slot_bytes
        self.epoch_word = geometry.epoch_base // 8
        self.meta: BoardMeta | None = None
        self.meta_version = 0


class BoardReader:
    """Reads the board at a path, whichever engine's it is at the moment.

    The path need not exist yet. A board that replaces the mapped one is found by its inode, which cannot be
    used again while the old file is mapped: at once where the mapped one is dead, within 50 ms otherwise.
    """

    def __init__(self, path: Path, worker: int, clock: Callable[[], int]) -> None:
        self._path = path
        self._worker = worker
        self._clock = clock
        self._mapping: _Mapping | None = None
        self._problem = Miss.NO_BOARD
        self._recheck_at = 0
        self._partition_rows: dict[int, int] = {}
        self._served: tuple[BoardMeta, Policy] | None = None

    @classmethod
    def open(cls, path: Path, worker: int, *, clock: Callable[[], int] = time.monotonic_ns) -> BoardReader:
        """A reader for API worker number ``worker`` (0-based; each worker process needs its own).

        Raises BoardError where the board is there and has no room for that worker, PermissionError where
        this process may not write it (consumed words): it must be the file's owner or in its group.
        """
        if worker < 0:
            raise BoardError(f"worker {worker}: must not be negative")
        reader = cls(path, worker, clock)
        reader._current()
        return reader

    def read(self, session_id: str, entry_key: str) -> ReadySlot | Miss:
        """The valid slot of (session, entry), or why there is none.

        What is returned was the session's live state at some instant during this call.
        """
        mapping = self._current()
        if mapping is None:
            return self._problem
        key = layout.slot_key(session_id, entry_key)
        memory, words = mapping.memory, mapping.words
        slot = layout.home_slot(key, mapping.mask)
        for _ in range(mapping.mask + 1):
            start = mapping.slot_base + slot * mapping.slot_bytes
            found = memory[start : start + layout.KEY_BYTES]
            if found == key:
                break
            if found == layout.EMPTY_KEY:
                return self._absent(mapping)
            slot = (slot + 1) & mapping.mask
        else:
            return self._absent(mapping)
        index = words[start // 8 + 2]
        if index >= mapping.geometry.max_sessions:
            return Miss.INVALID
        epoch_word = mapping.epoch_word + index
        for _ in range(TRIES):
            epoch = words[epoch_word]
            bank = epoch & 1
            head = start + layout.SLOT_HEAD_BYTES + bank * layout.BANK_BYTES
            sequence = words[head // 8]
            if sequence & 1:
                continue
            raw = memory[head + layout.SEQUENCE_BYTES : head + layout.BANK_BYTES]
            if words[head // 8] != sequence:
                continue
            if sequence == 0:
                return Miss.INVALID  # this bank was never written
            payload = raw[: layout.PAYLOAD.size]
            if layout.CHECKSUM.unpack_from(raw, layout.PAYLOAD.size)[0] != crc32(payload):
                continue
            (
                stored_key, stored_epoch, generation, version, stored_index, position, top1, top2,
                gap, top1_logit, log_partition, mass, topic_index, partition, offset, event_time_us,
                record_time_ms, ready_time_ms, bars, flags, token_hash,
            ) = layout.PAYLOAD.unpack(payload)  # fmt: skip
            # The epoch after the copy: the slot was live then, and the query had arrived.
            now_epoch = words[epoch_word]
            if stored_epoch != now_epoch or stored_key != key or stored_index != index:
                if now_epoch != epoch:
                    continue  # flipped meanwhile: the new state may be ready in the other bank
                return Miss.INVALID
            return ReadySlot(
                ready=ReadyDistribution(top1, top2, gap, top1_logit, log_partition, mass, position),
                evidence=Evidence(
                    session_version=version,
                    topic_index=topic_index,
                    partition=partition,
                    offset=offset,
                    event_time_us=event_time_us,
                    record_time_ms=record_time_ms,
                    bars=bars,
                    flags=_FLAGS[flags],
                ),
                generation=generation,
                token_hash=token_hash,
                ready_time_ms=ready_time_ms,
                session_epoch=stored_epoch,
                cell=slot * 2 + bank,
                boot_id=mapping.boot_id,
            )
        return Miss.TORN

    def consume(self, slot: ReadySlot) -> None:
        """A query routed to this slot read it: its pre-position is a hit, whether or not the gate fires."""
        mapping = self._mapping
        if mapping is not None and mapping.boot_id == slot.boot_id:
            at = mapping.geometry.consumed_word(slot.cell) + self._worker
            mapping.words[at] = layout.read_once_more(mapping.words[at], slot.generation)

    def applied(self, topic_index: int, partition: int) -> int | None:
        """The next offset of an owned partition that the engine will apply, None where it is not owned here
        or the board is not alive."""
        mapping = self._current()
        if mapping is None:
            return None
        try:
            key = layout.partition_key(topic_index, partition)
        except BoardError:
            return None  # a caller may ask for any numbers
        words, base = mapping.words, mapping.geometry.partition_base // 8
        row = self._partition_rows.get(key)
        if row is None or words[base + 2 * row] != key:
            keys = words[base : base + 2 * mapping.geometry.max_partitions : 2].tolist()
            if key not in keys:
                return None
            row = self._partition_rows[key] = keys.index(key)
        offset = words[base + 2 * row + 1]
        # Looked at again: the row may have gone to another partition meanwhile.
        return offset if words[base + 2 * row] == key else None

    @property
    def meta(self) -> BoardMeta | None:
        """META as it is now; the same object until it changes. None where the board is not alive."""
        mapping = self._current()
        if mapping is None:
            return None
        for _ in range(TRIES):
            version = mapping.words[layout.W_META_VERSION]
            if version == mapping.meta_version:
                break
            start = layout.meta_offset(version)
            length, checksum = layout.META_HEAD.unpack_from(mapping.memory, start)
            start += layout.META_HEAD.size
            blob = mapping.memory[start : start + min(length, layout.META_CAPACITY)]
            if crc32(blob) == checksum:  # else the bank was reused under us: two rewrites in one read
                mapping.meta = _META_DECODER.decode(blob)
                mapping.meta_version = version
                break
        return mapping.meta

    @property
    def policy(self) -> Policy | None:
        """META as a policy, made anew only when META changes (tau is raised, a class is closed)."""
        meta = self.meta
        if meta is None:
            return None
        if self._served is None or self._served[0] is not meta:
            gate = Gate(
                classes=meta.classes,
                answers=meta.answers,
                noise=meta.noise,
                calibration=meta.calibration_digest,
                confidence=meta.confidence,
            )
            self._served = meta, Policy(gate, meta.model, meta.profile_digest, meta.window_bars)
        return self._served[1]

    def topic(self, index: int) -> str | None:
        """The topic that an evidence's ``topic_index`` stands for; None for a pushed session."""
        mapping = self._mapping
        if index < 0 or mapping is None or mapping.meta is None:
            return None
        return mapping.meta.topics[index]

    @property
    def boot_id(self) -> bytes | None:
        """The living engine's boot id."""
        mapping = self._current()
        return mapping.boot_id if mapping is not None else None

    def alive(self) -> bool:
        """Whether an engine holds the lease on the board at the path."""
        return self._current() is not None

    def _absent(self, mapping: _Mapping) -> Miss:
        full = mapping.words[layout.W_USED_SLOTS] >= mapping.geometry.slot_limit
        return Miss.FULL if full else Miss.ABSENT

    def _current(self) -> _Mapping | None:
        """The mapped board if its engine holds the lease, else None with the reason in ``_problem``."""
        mapping = self._mapping
        if mapping is not None:
            heartbeat = mapping.words[layout.W_HEARTBEAT_NS]
            now = self._clock()  # after the load: a heartbeat of this host is never ahead of it
            if 0 <= now - heartbeat <= mapping.lease_ns and now < self._recheck_at:
                return mapping
        self._remap()
        mapping = self._mapping
        if mapping is None:
            return None
        heartbeat = mapping.words[layout.W_HEARTBEAT_NS]
        if 0 <= self._clock() - heartbeat <= mapping.lease_ns:
            return mapping
        self._problem = Miss.LEASE
        return None

    def _remap(self) -> None:
        """Maps the file that is at the path now, where it is another one than the mapped."""
        self._recheck_at = self._clock() + RECHECK_NS
        try:
            status = os.stat(self._path)
            if self._mapping is not None and self._mapping.inode == (status.st_dev, status.st_ino):
                return
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            self._problem = Miss.NO_BOARD
            return  # a mapped board whose file is gone says by its heartbeat whether it is alive
        try:
            require_ours(self._path, os.fstat(descriptor))
            mapping = _Mapping(descriptor)
        except BoardError:
            self._mapping = None
            self._problem = Miss.LAYOUT
            return
        except NotOurs:
            self._mapping = None
            raise
        finally:
            os.close(descriptor)
        if self._worker >= mapping.geometry.max_workers:
            raise BoardError(
                f"worker {self._worker}: the board counts {mapping.geometry.max_workers} workers; "
                "start the engine with more"
            )
        self._partition_rows.clear()
        self._mapping = mapping
