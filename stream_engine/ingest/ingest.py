"""Records into sessions: assignments, batches, replays, and the acknowledgements they earn. Ids only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stream_engine.ingest.dormancy import Dormancy
from stream_engine.messages import Ack, Asleep, Assign, Batch, Record, Refused, Rejected, Restore, Revoke, Window
from stream_engine.messages.counters import EngineCounters
from stream_engine.session.session import Session, SessionState, Source
from stream_engine.state.partitions import OpenBatch, Partition, PartitionState, PartitionTable
from stream_engine.state.publication import Publication
from stream_engine.state.scheduler import Lane, Scheduler
from stream_engine.state.session_table import SessionTable

ACK_WINDOWS, ACK_BARS = 10_000, 100_000
"""Of one acknowledgement, some 10 MB: the windows of a partition with many sessions may all be due at once."""


@dataclass(frozen=True, slots=True)
class Handover:
    """A partition that was taken or given up, and the sessions that were of its earlier life: they are no longer
    served from here. ``asleep`` are the ids of those of them that slept."""

    partition: Partition
    left: tuple[Session, ...] = ()
    asleep: tuple[str, ...] = ()


class Ingest:
    """The engine's Kafka side. A session that had no window written for ``quiet_records`` records of its partition
    gets one: it must not hold the floor back."""

    def __init__(
        self,
        sessions: SessionTable,
        partitions: PartitionTable,
        scheduler: Scheduler,
        publication: Publication,
        counters: EngineCounters,
        quiet_records: int,
    ) -> None:
        self.partitions = partitions
        self.dormancy = Dormancy(sessions, partitions, counters)
        self._sessions = sessions
        self._scheduler = scheduler
        self._publication = publication
        self._counters = counters
        self._quiet_records = quiet_records

    def assign(self, message: Assign) -> Handover | None:
        """Take a partition; None when a newer generation owns it. Records that wait unapplied from an earlier
        assignment are dropped: they come again."""
        before = self.partitions.get(Source(message.topic, message.partition))
        owned = self.partitions.assign(message)
        if owned is None:
            return None
        owned.gap_end = message.start if message.incomplete else None
        if before is not None and owned is not before:
            return self._left(owned, before)
        if before is not None:
            for name in sorted(before.sessions):
                session = self._sessions[name]
                session.ask_window()
                self.dormancy.stays(name)
                before.floors.note(session)
                # One that waits to go live after its replay does so without records.
                self._scheduler.recall(name, keep=session.state is SessionState.REBUILDING)
        return Handover(owned)

    def revoke(self, message: Revoke) -> Handover | None:
        """Give a partition up; None where it is not owned by that generation or an earlier one."""
        owned = self.partitions.revoke(Source(message.topic, message.partition), message.generation)
        if owned is None:
            return None
        return self._left(owned, owned)

    def _left(self, taken: Partition, before: Partition) -> Handover:
        return Handover(taken, tuple(self._sessions[name] for name in before.sessions), tuple(before.dormant))

    def deleted(self, session: Session) -> None:
        """A session was removed that is fed from here: its window has to go from the compacted topic."""
        owned = self.let_go(session)
        if owned is not None and session.has_window:
            owned.deleted.append(session.id)

    def sleeper_deleted(self, session_id: str) -> bool:
        """False where none of that id sleeps."""
        owned = self.dormancy.forget(session_id)
        if owned is not None:
            owned.deleted.append(session_id)
        return owned is not None

    def let_go(self, session: Session) -> Partition | None:
        """It is no longer here: its partition needs nothing for it. Returns that, where it is owned."""
        owned = self.partitions.get(session.source) if session.source is not None else None
        if owned is not None:
            owned.sessions.discard(session.id)
            owned.floors.forget(session.id)
        return owned

    def asleep(self, message: Asleep) -> Iterator[Session]:
        """Yields the sessions that sleep from now on; whoever takes one lets go of it."""
        return self.dormancy.asleep(message)

    def changed(self, session: Session) -> None:
        """Records were applied to it: its partition may need older ones now, or a window of it."""
        owned = self.partitions.get(session.source) if session.source is not None else None
        if owned is not None:
            owned.floors.note(session)

    def restore(self, message: Restore) -> None:
        """Sessions as their windows say; the records that follow come as a replay or live. A session that is
        here already, or sleeps, knows better. One that is to wake does."""
        owned = self.partitions.get(Source(message.topic, message.partition))
        if owned is None or owned.generation != message.generation:
            return
        gone = set(owned.deleted)  # their windows are still to go
        for window in message.windows:
            self._publication.heartbeat()  # hundreds of windows, or of records, take long on a slow machine
            if window.session in owned.waking:
                self._woken(owned, window)
                continue
            if window.session in self._sessions or window.session in owned.dormant or not window.bars:
                continue
            if window.session in gone:
                continue
            session = self._open(window.session, owned)
            session.move_to(SessionState.REBUILDING)
            session.restore(window)
            if owned.state is PartitionState.LIVE:
                self._scheduler.add_commit(session.id)

    def _woken(self, owned: Partition, window: Window) -> None:
        for record, batch in self.dormancy.woken(owned, window):
            self._queue(owned, batch, record)
        # It is without cells: what is ready of it is computed in idle time.
        if (session := self._sessions.get(window.session)) is not None and session.serving:
            for lane in (Lane.STANDING, Lane.LONE):
                self._scheduler.add(lane, session.id)

    def take(self, batch: Batch) -> Refused | None:
        """Queue a batch's records; a replayed one only refills windows. Settle afterwards."""
        taken = self.partitions.take(batch)
        if isinstance(taken, Refused):
            self._counters.batches_refused_total += 1
            return taken
        self._counters.records_total += batch.consumed
        waiting = OpenBatch(batch.last, 0)
        taken.open.append(waiting)
        for record in batch.records:
            self._publication.heartbeat()
            self._queue(taken, waiting, record)
        self._go_live_when_due(taken)
        return None

    def settle(self) -> list[Ack]:
        """Acknowledgements that are due; the applied offsets on the board move first."""
        acks = []
        for owned in self.partitions.all():
            self._go_live_when_due(owned)
            settled = self.partitions.settle(owned)
            if settled is not None:
                windows = self._windows(owned)
                lowest = owned.floors.lowest()
                floor = lowest.floor if lowest is not None else None
                acks.append(self.partitions.acknowledge(owned, settled, windows, floor))
                self._publication.applied(owned)
        return acks

    def _queue(self, owned: Partition, waiting: OpenBatch, record: Record) -> None:
        if self.dormancy.hold(owned, record, waiting):
            return
        live = record.offset >= owned.live_from
        rejected = owned.rejected.get(record.offset) if live else None
        if rejected is not None:
            # Of an earlier assignment: whether its dead letter was written is not known.
            waiting.rejected.append(rejected)
            if rejected.reason == "second_source":
                return
        session = self._sessions.get(record.key)
        again = record.offset < owned.applied
        told = again and (rejected is not None or not live)
        if not told and (fed := self._other_source(record.key, session, owned)) is not None:
            # Also below the applied offset: the offsets of open bars' records depend on how trades were polled, so
            # a rejection of other polls is remembered by another one.
            waiting.rejected.append(Rejected(record.offset, "second_source", f"{record.key!r} is fed by {fed}"))
            return
        if again:
            self._count_duplicate(waiting, live)
            return
        if not record.bars:
            # Trades of a bar that is still open: the key is theirs from the first one on.
            if session is None and record.key not in owned.dormant:
                owned.claimed.add(record.key)
            waiting.applied += live
            return
        if session is None and (not live or record.key in owned.dormant):
            # What was applied before left a window. This key was deleted since, or belonged to another source, or
            # sleeps as of a newer record.
            self._count_duplicate(waiting, live)
            return
        if session is None:
            session = self._open(record.key, owned)
        work = self._scheduler.commits.get(record.key)
        if work is not None and any(record.offset == taken.offset for taken, _ in work.taken):
            # Delivered again while the commit that holds it is in progress: not applied before that has run.
            waiting.unsettled += 1
            work.taken.append((record, waiting))
        elif record.offset <= session.offset or rejected is not None:
            self._count_duplicate(waiting, live)
        elif not live:
            session.move_to(SessionState.REBUILDING)
            session.apply(record)
            owned.floors.note(session)
            self._counters.replayed_total += 1
        else:
            waiting.unsettled += 1
            self._scheduler.add_commit(session.id).records.append((record, waiting))

    def _other_source(self, key: str, session: Session | None, owned: Partition) -> str | None:
        """What feeds the key where it is not this partition."""
        if session is not None:
            source = session.source
        else:
            claims = (other for other in self.partitions.all() if key in other.claimed or key in other.dormant)
            source = next((other.source for other in claims), owned.source)
        if source is None:
            return "the API"
        return None if source == owned.source else f"{source.topic}/{source.partition}"

    def _go_live_when_due(self, owned: Partition) -> None:
        if owned.state is not PartitionState.REPLAYING or owned.settled < owned.serve_from:
            return
        owned.state = PartitionState.LIVE
        for name in owned.sessions:
            if self._sessions[name].state is SessionState.REBUILDING:
                self._scheduler.add_commit(name)

    def _open(self, key: str, owned: Partition) -> Session:
        session = self._sessions.open(key, owned.source, owned.gap_end)
        owned.claimed.discard(key)
        owned.sessions.add(session.id)
        return session

    def _count_duplicate(self, waiting: OpenBatch, live: bool) -> None:
        waiting.duplicates += live
        self._counters.duplicates_total += 1

    def _windows(self, owned: Partition) -> tuple[Window, ...]:
        """Windows that are due: regions built anew, sessions long quiet, and deletions. What is too much for one
        message comes with a later one: until then its sessions hold the floor back."""
        deleted, owned.deleted = owned.deleted[:ACK_WINDOWS], owned.deleted[ACK_WINDOWS:]
        windows = [
            Window(session=name, offset=owned.applied - 1, timestamp_ms=0, swaps=0, units=None, bars=())
            for name in deleted
        ]
        bars = 0
        # No other while deletions are left: a session that lives again is written after its own.
        due = owned.floors.due(owned.applied - self._quiet_records)
        while bars < ACK_BARS and len(windows) < ACK_WINDOWS and (session := next(due, None)) is not None:
            windows.append(session.window_message())
            bars += len(windows[-1].bars)
        return tuple(windows)
