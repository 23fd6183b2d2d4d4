"""The engine's side of the ready board. One thread owns a writer; nothing here is locked."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4
from zlib import crc32

import msgspec

from stream_engine.board import layout
from stream_engine.board.layout import BoardError, BoardMeta, Geometry, SlotRecord
from stream_engine.util.atomic_file import draft_of
from stream_engine.util.ownership import require_ours

MAX_PARTITIONS = 1024


@dataclass(frozen=True, slots=True)
class SessionHandle:
    """A session's place on the board, from ``open_session`` to ``close_session``. ``index`` is -1 when the
    session table was full: writes to such a handle only count."""

    index: int
    serial: int
    session_id: str


@dataclass(frozen=True, slots=True)
class BoardCounters:
    """Since the board was created. ``completed`` pre-positions were written; each ends as one of ``hits`` or
    ``wasted`` (Eq. 8) and is neither while it is still live. ``full`` counts writes that found no room."""

    completed: int
    hits: int
    wasted: int
    full: int
    used_slots: int


@dataclass(slots=True)
class _Place:
    epoch: int
    entries: dict[str, int] = field(default_factory=dict)
    """Entry key to slot number."""


class BoardWriter:
    """Creates the board and changes it. The file is made under another name and renamed, so that a reader
    finds a whole board or none, and is never truncated.

    Its mode is 0660: API workers write the consumed words, so they run as the owner or in the file's group.
    """

    def __init__(self, path: Path, memory: mmap.mmap, geometry: Geometry, clock: Callable[[], int]) -> None:
        self._path = path
        self._memory = memory
        self._words = memoryview(memory).cast("Q")
        self._geometry = geometry
        self._clock = clock
        self._inode: tuple[int, int] = (0, 0)
        self._sessions: dict[SessionHandle, _Place] = {}
        self._open_ids: set[str] = set()
        self._serial = 0
        self._epochs = [0] * geometry.max_sessions
        self._free_sessions = list(range(geometry.max_sessions - 1, -1, -1))
        self._keys = [layout.EMPTY_KEY] * geometry.table_slots
        self._generations = [0] * geometry.table_slots
        self._unsettled: dict[int, int] = {}  # cell (slot * 2 + bank) -> generation
        self._ended: set[int] = set()  # unsettled cells that no reader can reach any more
        self._settled_reads: dict[int, int] = {}  # slot -> reads by API workers in generations that have ended
        self._partition_rows: dict[int, int] = {}
        self._free_rows = list(range(geometry.max_partitions - 1, -1, -1))
        self._meta_version = 0
        self._used = self._completed = self._hits = self._wasted = self._full = 0
        self.boot_id = uuid4().bytes

    @classmethod
    def create(
        cls,
        path: Path,
        meta: BoardMeta,
        max_sessions: int,
        slots: int,
        max_workers: int,
        lease_s: float,
        *,
        max_partitions: int = MAX_PARTITIONS,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> BoardWriter:
        """A new board at ``path``, in place of any older one. ``clock`` is in nanoseconds and must be shared
        by all processes of the host (CLOCK_MONOTONIC is).

        Raises BoardError for sizes that make no board, NotOurs where another user's file is there, OSError where
        the file system has no room: the whole file is reserved now, because running out later would kill the
        process with SIGBUS.
        """
        if not lease_s > 0:
            raise BoardError(f"lease_s = {lease_s}: must be positive")
        geometry = Geometry(max_sessions, slots, max_workers, max_partitions)
        path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(path):
            require_ours(path, path.lstat())
        with draft_of(path) as unfinished:
            descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o660)
            try:
                os.fchmod(descriptor, 0o660)  # whatever the umask
                os.posix_fallocate(descriptor, 0, geometry.file_bytes)
                writer = cls(path, mmap.mmap(descriptor, geometry.file_bytes), geometry, clock)
                writer._write_header(int(lease_s * 1e9))
                writer.set_meta(meta)
                writer.heartbeat()
                status = os.fstat(descriptor)
                writer._inode = (status.st_dev, status.st_ino)
            finally:
                os.close(descriptor)
        return writer

    def _write_header(self, lease_ns: int) -> None:
        words, geometry = self._words, self._geometry
        self._memory[: len(layout.MAGIC)] = layout.MAGIC
        words[layout.W_LAYOUT] = layout.LAYOUT_VERSION
        self._memory[layout.W_BOOT * 8 : layout.W_BOOT * 8 + 16] = self.boot_id
        words[layout.W_PID] = os.getpid()
        words[layout.W_CREATED_NS] = time.time_ns()
        words[layout.W_LEASE_NS] = lease_ns
        words[layout.W_SESSIONS] = geometry.max_sessions
        words[layout.W_SLOT_LIMIT] = geometry.slot_limit
        words[layout.W_WORKERS] = geometry.max_workers
        words[layout.W_PARTITIONS] = geometry.max_partitions

    def heartbeat(self) -> None:
        """Renews the lease; called between steps by the thread that owns the sessions, and by no other."""
        self._words[layout.W_HEARTBEAT_NS] = self._clock()

    def set_meta(self, meta: BoardMeta) -> None:
        """Replaces META: the other bank is written, then the version word names it.

        Raises BoardError where it does not fit.
        """
        blob = msgspec.json.encode(meta)
        if len(blob) > layout.META_CAPACITY:
            raise BoardError(f"meta has {len(blob)} bytes: the board holds {layout.META_CAPACITY}")
        version = self._meta_version + 1
        start = layout.meta_offset(version)
        data = layout.META_HEAD.pack(len(blob), crc32(blob)) + blob
        self._memory[start : start + len(data)] = data
        self._words[layout.W_META_VERSION] = self._meta_version = version

    # --- partitions ----------------------------------------------------------------------------------

    def set_applied(self, topic_index: int, partition: int, next_offset: int) -> None:
        """The partition is owned here, and every offset below ``next_offset`` is applied."""
        key = layout.partition_key(topic_index, partition)
        row = self._partition_rows.get(key)
        if row is not None:
            self._words[self._row_word(row) + 1] = next_offset
            return
        if not self._free_rows:
            self._full += 1
            return
        row = self._partition_rows[key] = self._free_rows.pop()
        self._words[self._row_word(row) + 1] = next_offset
        self._words[self._row_word(row)] = key  # last: from here on readers find the row

    def drop_partition(self, topic_index: int, partition: int) -> None:
        """The partition is no longer owned here; nothing happens where it was not."""
        row = self._partition_rows.pop(layout.partition_key(topic_index, partition), None)
        if row is not None:
            self._words[self._row_word(row)] = 0
            self._free_rows.append(row)

    def _row_word(self, row: int) -> int:
        return (self._geometry.partition_base + row * layout.PARTITION_ROW_BYTES) // 8

    # --- sessions ------------------------------------------------------------------------------------

    def open_session(self, session_id: str) -> SessionHandle:
        """A place for a session. Where the table is full the handle takes writes and only counts them.

        Raises BoardError where the session is open already.
        """
        if session_id in self._open_ids:
            raise BoardError(f"session {session_id!r} is open already")
        index = self._free_sessions.pop() if self._free_sessions else -1
        self._serial += 1
        handle = SessionHandle(index, self._serial, session_id)
        self._open_ids.add(session_id)
        self._sessions[handle] = place = _Place(self._epochs[index] if index >= 0 else 0)
        if index >= 0:
            self._flip(handle, place, place.epoch + 1)  # epoch 0, that of zeroed memory, is never live
        return handle

    def close_session(self, handle: SessionHandle) -> None:
        """The session is gone. Its index will be used again, with epochs that only grow."""
        self.invalidate(handle)
        place = self._sessions.pop(handle)
        self._open_ids.remove(handle.session_id)
        for slot in place.entries.values():
            self._release_slot(slot)
        if handle.index >= 0:
            self._epochs[handle.index] = place.epoch
            self._free_sessions.append(handle.index)

    def publish(self, handle: SessionHandle, slots: Sequence[SlotRecord]) -> None:
        """The live state moves: the new slots replace all earlier ones of the session in one store.

        On an error nothing of the session stays valid.
        """
        place = self._session(handle)
        epoch = place.epoch + 1
        try:
            for record in slots:
                self._write(handle, place, record, epoch)
        except BaseException:
            self._flip(handle, place, epoch + 1)  # past the epoch that some slots may carry by now
            raise
        self._flip(handle, place, epoch)

    def invalidate(self, handle: SessionHandle) -> None:
        """The live state moves and nothing is ready for it yet (idle mode, rollback, eviction)."""
        place = self._session(handle)
        self._flip(handle, place, place.epoch + 1)

    def add(self, handle: SessionHandle, slots: Sequence[SlotRecord]) -> None:
        """More decision points of the state that is live already."""
        place = self._session(handle)
        for record in slots:
            self._write(handle, place, record, place.epoch)

    def remove(self, handle: SessionHandle, entry_key: str) -> None:
        """The entry is no longer asked for: frees its slot. Nothing happens where it has none."""
        slot = self._session(handle).entries.pop(entry_key, None)
        if slot is not None:
            self._release_slot(slot)

    def consume(self, handle: SessionHandle, entry_key: str) -> None:
        """The engine itself answered a query from this entry's live slot."""
        place = self._session(handle)
        slot = place.entries.get(entry_key)
        if slot is not None:
            cell = slot * 2 + (place.epoch & 1)
            generation = self._unsettled.get(cell)
            if generation is not None and cell not in self._ended:
                at = self._geometry.consumed_word(cell) + self._geometry.max_workers
                self._words[at] = layout.read_once_more(self._words[at], generation)

    def reads(self, handle: SessionHandle, entry_key: str) -> int:
        """How often API workers have read this entry since it has its slot; 0 where it has none."""
        slot = self._session(handle).entries.get(entry_key)
        if slot is None:
            return 0
        live = sum(sum(self._reads_of(cell)[:-1]) for cell in (slot * 2, slot * 2 + 1) if cell in self._unsettled)
        return self._settled_reads.get(slot, 0) + live

    def valid(self, handle: SessionHandle) -> dict[str, tuple[int, int]]:
        """The session's slots that a reader would serve now: by entry key, session version and token hash."""
        place, found = self._session(handle), {}
        for entry_key, slot in place.entries.items():
            start = self._bank(slot, place.epoch) + layout.SEQUENCE_BYTES
            payload = layout.PAYLOAD.unpack_from(self._memory, start)
            key = layout.slot_key(handle.session_id, entry_key)  # a bank may hold what another key left there
            if (payload[0], payload[1], payload[4]) == (key, place.epoch, handle.index):
                found[entry_key] = (payload[3], payload[-1])
        return found

    def counters(self) -> BoardCounters:
        """Settles every pre-position that has ended, then counts."""
        for cell in tuple(self._ended):
            self._settle(cell)
        return BoardCounters(
            completed=self._completed, hits=self._hits, wasted=self._wasted, full=self._full, used_slots=self._used
        )

    def close(self) -> None:
        """Marks the board dead, so that readers refuse at once, and removes the file if it is still ours."""
        self._words[layout.W_HEARTBEAT_NS] = layout.HEARTBEAT_DEAD
        try:
            status = self._path.stat()
        except FileNotFoundError:
            status = None
        if status is not None and (status.st_dev, status.st_ino) == self._inode:
            self._path.unlink(missing_ok=True)
        self._words.release()
        self._memory.close()

    # --- inside --------------------------------------------------------------------------------------

    def _session(self, handle: SessionHandle) -> _Place:
        place = self._sessions.get(handle)
        if place is None:
            raise BoardError(f"session {handle.session_id!r} is not open under this handle")
        return place

    def _flip(self, handle: SessionHandle, place: _Place, epoch: int) -> None:
        """The commit point: one aligned 8-byte store."""
        old = place.epoch
        place.epoch = epoch
        if handle.index >= 0:
            self._words[self._geometry.epoch_base // 8 + handle.index] = epoch
        for slot in place.entries.values():
            # With a flip by two (after an error) the cells of the epoch between end as well.
            for ended in range(old, epoch):
                cell = slot * 2 + (ended & 1)
                if cell in self._unsettled:
                    self._ended.add(cell)

    def _write(self, handle: SessionHandle, place: _Place, record: SlotRecord, epoch: int) -> None:
        """Writes one bank under its sequence lock."""
        key = layout.slot_key(handle.session_id, record.entry_key)
        slot = place.entries.get(record.entry_key)
        if slot is None:
            slot = self._claim_slot(key, handle.index) if handle.index >= 0 else None
            if slot is None:
                self._full += 1
                return
            place.entries[record.entry_key] = slot
        ready, evidence = record.ready, record.evidence
        generation = self._generations[slot] + 1
        payload = layout.PAYLOAD.pack(
            key, epoch, generation, evidence.session_version,
            handle.index, ready.position, ready.top1, ready.top2,
            ready.gap, ready.top1_logit, ready.log_partition, ready.fast_set_mass,
            evidence.topic_index, evidence.partition, evidence.offset, evidence.event_time_us,
            evidence.record_time_ms, record.ready_time_ms,
            evidence.bars, evidence.flags, record.token_hash,
        )  # fmt: skip
        cell = slot * 2 + (epoch & 1)
        self._settle(cell)
        start = self._bank(slot, epoch)
        sequence = self._words[start // 8]
        self._words[start // 8] = sequence + 1
        body = start + layout.SEQUENCE_BYTES
        self._memory[body : start + layout.BANK_BYTES] = payload + layout.CHECKSUM.pack(crc32(payload))
        self._words[start // 8] = sequence + 2
        self._generations[slot] = generation
        self._unsettled[cell] = generation
        self._completed += 1

    def _bank(self, slot: int, epoch: int) -> int:
        """Where a slot's bank for that epoch begins."""
        start = self._geometry.slot_base + slot * self._geometry.slot_bytes + layout.SLOT_HEAD_BYTES
        return start + (epoch & 1) * layout.BANK_BYTES

    def _settle(self, cell: int) -> None:
        """Counts a cell's pre-position as hit or wasted, once.

        It is looked up as late as possible (when its bank is used again, or the counters are read), so that a
        reader which found it valid just before the flip has had time to say so.
        """
        if cell not in self._unsettled:
            return
        reads = self._reads_of(cell)
        del self._unsettled[cell]
        self._ended.discard(cell)
        if any(reads):
            self._hits += 1
            self._settled_reads[cell // 2] = self._settled_reads.get(cell // 2, 0) + sum(reads[:-1])
        else:
            self._wasted += 1

    def _reads_of(self, cell: int) -> list[int]:
        """Reads of an unsettled cell's pre-position, by each API worker and last by the engine itself."""
        generation, first = self._unsettled[cell], self._geometry.consumed_word(cell)
        words = self._words[first : first + self._geometry.consumers].tolist()
        return [layout.reads_of(word, generation) for word in words]

    def _claim_slot(self, key: bytes, session_index: int) -> int | None:
        """A free slot on the key's probe path, or None where the board is full."""
        if self._used >= self._geometry.slot_limit:
            return None
        mask = self._geometry.table_slots - 1
        slot = layout.home_slot(key, mask)
        while self._keys[slot] not in (layout.EMPTY_KEY, layout.TOMBSTONE_KEY):
            slot = (slot + 1) & mask
        start = self._geometry.slot_base + slot * self._geometry.slot_bytes
        self._words[start // 8 + 2] = session_index
        self._store_key(slot, key)
        self._used += 1
        self._words[layout.W_USED_SLOTS] = self._used
        return slot

    def _release_slot(self, slot: int) -> None:
        """Leaves a tombstone, so that probing goes on past it, or nothing where probing would end anyway."""
        self._settle(slot * 2)
        self._settle(slot * 2 + 1)
        self._settled_reads.pop(slot, None)
        self._store_key(slot, layout.TOMBSTONE_KEY)
        self._used -= 1
        self._words[layout.W_USED_SLOTS] = self._used
        mask = self._geometry.table_slots - 1
        if self._keys[(slot + 1) & mask] == layout.EMPTY_KEY:
            while self._keys[slot] == layout.TOMBSTONE_KEY:
                self._store_key(slot, layout.EMPTY_KEY)
                slot = (slot - 1) & mask

    def _store_key(self, slot: int, key: bytes) -> None:
        # Two words, not one: a reader that sees half of a key takes it for another key, which is a miss.
        self._keys[slot] = key
        start = self._geometry.slot_base + slot * self._geometry.slot_bytes
        self._memory[start : start + layout.KEY_BYTES] = key
