"""What the engine tells other processes of its sessions: on the ready board, or to nobody."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Protocol

from stream_engine.board.layout import SlotRecord
from stream_engine.board.meta import board_meta
from stream_engine.board.writer import BoardWriter, SessionHandle
from stream_engine.decision.entry import Entry
from stream_engine.decision.ready import ReadyDistribution
from stream_engine.model.profile import Profile
from stream_engine.session.evidence import evidence_of
from stream_engine.session.session import Session, Source
from stream_engine.session.token_hash import token_hash
from stream_engine.state.live_gate import LiveGate
from stream_engine.state.partitions import Partition


class Publication(Protocol):
    """Where ready distributions are made known: only those of a session's present state can be read from there."""

    def committed(self, session: Session, entries: Mapping[str, Entry]) -> None:
        """The live state moved: the session's ready distributions replace all earlier ones, in one write."""

    def added(self, session: Session, entries: Mapping[str, Entry], keys: list[str]) -> None:
        """Pre-positions of the present state were completed later, in idle time."""

    def invalidated(self, session: Session) -> None:
        """Nothing of the session may be served until its next commit."""

    def removed(self, session: Session, key: str) -> None:
        """A standing query is gone, or a question no longer promoted."""

    def consumed(self, session: Session, key: str) -> None:
        """The engine itself read a ready distribution for a query routed to it."""

    def reads(self, session: Session, key: str) -> int:
        """How often other processes have read this entry since it is published."""
        ...

    def valid(self, session: Session) -> dict[str, tuple[int, int]]:
        """What readers may be served of the session: by entry, its session version and token hash."""
        ...

    def closed(self, session: Session) -> None:
        """The session is gone."""

    def applied(self, partition: Partition) -> None:
        """The partition's applied offset moved."""

    def dropped(self, source: Source) -> None:
        """The partition was given up."""

    def gate_moved(self) -> None:
        """Risk control has moved the live gate: every answer from now on obeys it."""

    def heartbeat(self) -> None:
        """The engine's thread is alive."""

    def counters(self) -> dict[str, float]:
        """By the metric's name."""
        ...

    def close(self) -> None:
        """Nothing may be read any more."""


class Unpublished:
    """An engine that is used in its own process only: nobody else reads."""

    def committed(self, session: Session, entries: Mapping[str, Entry]) -> None: ...

    def added(self, session: Session, entries: Mapping[str, Entry], keys: list[str]) -> None: ...

    def invalidated(self, session: Session) -> None: ...

    def removed(self, session: Session, key: str) -> None: ...

    def consumed(self, session: Session, key: str) -> None: ...

    def reads(self, session: Session, key: str) -> int:
        return 0

    def valid(self, session: Session) -> dict[str, tuple[int, int]]:
        return {}

    def closed(self, session: Session) -> None: ...

    def applied(self, partition: Partition) -> None: ...

    def dropped(self, source: Source) -> None: ...

    def gate_moved(self) -> None: ...

    def heartbeat(self) -> None: ...

    def counters(self) -> dict[str, float]:
        return {}

    def close(self) -> None: ...


class BoardPublication:
    """Keeps the ready board in step with the sessions."""

    def __init__(self, board: BoardWriter, profile: Profile, gate: LiveGate) -> None:
        self._board = board
        self._profile = profile
        self._gate = gate
        self._topics: list[str] = []
        self._handles: dict[str, SessionHandle] = {}

    def committed(self, session: Session, entries: Mapping[str, Entry]) -> None:
        self._board.publish(self._handle(session), self._slots(session, entries, session.ready))

    def added(self, session: Session, entries: Mapping[str, Entry], keys: list[str]) -> None:
        ready = {key: session.ready[key] for key in keys}
        self._board.add(self._handle(session), self._slots(session, entries, ready))

    def invalidated(self, session: Session) -> None:
        if session.id in self._handles:
            self._board.invalidate(self._handles[session.id])

    def removed(self, session: Session, key: str) -> None:
        if session.id in self._handles:
            self._board.remove(self._handles[session.id], key)

    def consumed(self, session: Session, key: str) -> None:
        if session.id in self._handles:
            self._board.consume(self._handles[session.id], key)

    def reads(self, session: Session, key: str) -> int:
        handle = self._handles.get(session.id)
        return self._board.reads(handle, key) if handle is not None else 0

    def valid(self, session: Session) -> dict[str, tuple[int, int]]:
        handle = self._handles.get(session.id)
        return self._board.valid(handle) if handle is not None else {}

    def closed(self, session: Session) -> None:
        handle = self._handles.pop(session.id, None)
        if handle is not None:
            self._board.close_session(handle)

    def applied(self, partition: Partition) -> None:
        source = partition.source
        self._board.set_applied(self._topic_index(source), source.partition, partition.applied)

    def dropped(self, source: Source) -> None:
        self._board.drop_partition(self._topic_index(source), source.partition)

    def gate_moved(self) -> None:
        """META is replaced in one store, and readers look at it for every answer."""
        self._tell_meta()

    def heartbeat(self) -> None:
        self._board.heartbeat()

    def counters(self) -> dict[str, float]:
        counts = self._board.counters()
        return {
            "preposition_slots_total": counts.completed,
            "preposition_hits_total": counts.hits,
            "preposition_wasted_total": counts.wasted,
            "board_full_total": counts.full,
        }

    def close(self) -> None:
        """The board is marked dead: readers refuse its slots at once."""
        self._board.close()

    def _handle(self, session: Session) -> SessionHandle:
        handle = self._handles.get(session.id)
        if handle is None:
            handle = self._handles[session.id] = self._board.open_session(session.id)
        return handle

    def _slots(
        self, session: Session, entries: Mapping[str, Entry], ready: Mapping[str, ReadyDistribution]
    ) -> list[SlotRecord]:
        evidence = evidence_of(session, self._topic_index(session.source) if session.source else -1)
        now_ms = time.time_ns() // 1_000_000
        return [
            SlotRecord(
                entry_key=key,
                ready=distribution,
                evidence=evidence,
                token_hash=token_hash(session.tokens, entries[key].tokens),
                ready_time_ms=now_ms,
            )
            for key, distribution in ready.items()
        ]

    def _topic_index(self, source: Source) -> int:
        if source.topic not in self._topics:
            self._topics.append(source.topic)
            self._tell_meta()
        return self._topics.index(source.topic)

    def _tell_meta(self) -> None:
        self._board.set_meta(board_meta(self._profile, self._gate.now, tuple(self._topics)))
