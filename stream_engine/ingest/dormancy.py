"""Sessions fall asleep and wake: what their partitions know of it, and what the owners of these are told. Ids
only."""

from __future__ import annotations

from collections.abc import Iterator

from stream_engine.messages import Asleep, PutToSleep, Record, Sleeper, Wake, Window
from stream_engine.messages.counters import EngineCounters
from stream_engine.session.session import Session, SessionState, Source
from stream_engine.state.dormant import DormantRow
from stream_engine.state.partitions import OpenBatch, Partition, PartitionState, PartitionTable
from stream_engine.state.session_table import SessionTable

MAX_FALLING = 256
"""Sessions whose windows are being written at a time: a writer has room for a bounded number of messages."""


class Dormancy:
    """A session falls asleep once its window at the present version is confirmed in the windows topic, and wakes
    at that version, from that message."""

    def __init__(self, sessions: SessionTable, partitions: PartitionTable, counters: EngineCounters) -> None:
        self._sessions = sessions
        self._partitions = partitions
        self._counters = counters
        self._falling: dict[str, int] = {}
        self._windows: dict[Source, list[Window]] = {}
        self._wanted: dict[Source, list[str]] = {}
        self._woken: list[str] = []

    @property
    def count(self) -> int:
        """Sessions that sleep."""
        return sum(len(owned.dormant) for owned in self._partitions.all())

    @property
    def waking(self) -> int:
        """Sessions whose windows are on their way."""
        return sum(len(owned.waking) for owned in self._partitions.all())

    @property
    def has_room(self) -> bool:
        """For one more that falls asleep."""
        return len(self._falling) < MAX_FALLING

    # --- to sleep ------------------------------------------------------------------------------------

    def put_to_sleep(self, session: Session) -> None:
        """It sleeps once its window is written, unless it is fed or asked before that."""
        assert session.source is not None, "a pushed session has no window"
        self._falling[session.id] = session.version
        self._windows.setdefault(session.source, []).append(session.stored_window(asleep=True))

    def stays(self, session_id: str) -> None:
        """It was fed, asked or removed: it does not sleep now."""
        self._falling.pop(session_id, None)

    def asleep(self, message: Asleep) -> Iterator[Session]:
        """Rows of those that slept before. Yields the sessions here that sleep from now on; whoever takes one lets
        go of it. One that is here for another reason knows better."""
        owned = self._partitions.get(Source(message.topic, message.partition))
        if owned is None or owned.generation != message.generation:
            return
        gone = set(owned.deleted)  # their windows are still to go
        for sleeper in message.sleepers:
            session = self._sessions.get(sleeper.session)
            row = DormantRow(sleeper.offset + 1, sleeper.at)
            if session is None:
                if sleeper.at >= 0 and not (sleeper.session in owned.waking or sleeper.session in gone):
                    self._index(owned, sleeper.session, row)
            elif self._falling.get(session.id) == row.version:
                del self._falling[session.id]
                if sleeper.at >= 0 and session.source == owned.source and session.version == row.version:
                    owned.dormant.put(session.id, row)
                    self._counters.sessions_slept_total += 1
                    yield session

    def _index(self, owned: Partition, session_id: str, row: DormantRow) -> None:
        known = owned.dormant.get(session_id)
        if known is None and self._partitions.sleeping(session_id) is not None:
            return  # another partition had it first
        if known is None or known.version <= row.version:
            owned.dormant.put(session_id, row)

    # --- awake ---------------------------------------------------------------------------------------

    def wake(self, session_id: str) -> bool:
        """Have its window brought; False where it does not sleep."""
        owned = self._partitions.sleeping(session_id)
        if owned is None:
            return False
        self._want(owned, session_id)
        return True

    def hold(self, owned: Partition, record: Record, batch: OpenBatch) -> bool:
        """Whether the record waits for its session to wake. One that it holds already wakes nobody."""
        row = owned.dormant.get(record.key)
        if row is None or not record.bars or record.offset < max(row.version, owned.applied):
            return False
        batch.unsettled += 1
        self._want(owned, record.key).append((record, batch))
        return True

    def _want(self, owned: Partition, session_id: str) -> list[tuple[Record, OpenBatch]]:
        if session_id not in owned.waking:
            owned.waking[session_id] = []
            self._wanted.setdefault(owned.source, []).append(session_id)
        return owned.waking[session_id]

    def woken(self, owned: Partition, window: Window) -> Iterator[tuple[Record, OpenBatch]]:
        """The window that was asked for: the session is here again at its version. Yields what has waited for it.
        Where its window is lost, those begin it anew."""
        row, held = owned.dormant.remove(window.session), owned.waking.pop(window.session)
        if window.bars and window.offset + 1 >= row.version:
            session = self._sessions.wake(window.session, owned.source, owned.gap_end)
            owned.sessions.add(session.id)
            session.restore(window)
            replaying = owned.state is PartitionState.REPLAYING
            session.move_to(SessionState.REBUILDING if replaying else SessionState.EVICTED)
            self._woken.append(session.id)
            self._counters.sessions_woken_total += 1
        else:
            self._counters.sessions_not_woken_total += 1
        for record, batch in held:
            batch.unsettled -= 1
            yield record, batch

    def take_woken(self) -> list[Session]:
        """Sessions that have come back since the last call."""
        woken, self._woken = self._woken, []
        return [self._sessions[name] for name in woken if name in self._sessions]

    # --- to the owners of the partitions -------------------------------------------------------------

    def messages(self) -> Iterator[PutToSleep | Wake]:
        """What has not been said yet."""
        windows, self._windows = self._windows, {}
        wanted, self._wanted = self._wanted, {}
        for source, written in windows.items():
            if (owned := self._partitions.get(source)) is not None:
                due = tuple(window for window in written if self._falling.get(window.session) == window.offset + 1)
                yield PutToSleep(self._partitions.boot_id, *_head(owned), due)
        for source, names in wanted.items():
            if (owned := self._partitions.get(source)) is not None:
                rows = [(name, owned.dormant[name]) for name in names if name in owned.waking]
                sleepers = tuple(Sleeper(name, row.version - 1, row.at) for name, row in rows)
                yield Wake(self._partitions.boot_id, *_head(owned), sleepers)

    def forget(self, session_id: str) -> Partition | None:
        """A sleeper is deleted: the partition that has fed it; None where there is none of that id."""
        owned = self._partitions.sleeping(session_id)
        if owned is not None:
            owned.dormant.remove(session_id)
            for _, batch in owned.waking.pop(session_id, ()):
                batch.unsettled -= 1
                batch.applied += 1
        return owned

    def check_integrity(self) -> None:
        """Nobody sleeps and is here, or wakes and does not sleep. Raises AssertionError."""
        for owned in self._partitions.all():
            here = owned.dormant.keys() & (self._sessions.keys() | owned.sessions)
            assert not here, f"{owned.source} has sessions that sleep and are here: {sorted(here)[:3]}"
            assert owned.waking.keys() <= owned.dormant.keys(), f"{owned.source} wakes who does not sleep"


def _head(owned: Partition) -> tuple[str, int, int]:
    return owned.source.topic, owned.source.partition, owned.generation
