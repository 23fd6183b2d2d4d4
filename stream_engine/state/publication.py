"""What the engine tells other processes through the ready board."""

from __future__ import annotations

import time
from collections.abc import Mapping
from hashlib import blake2b

import numpy as np

from stream_engine.board.layout import BoardMeta, SlotRecord
from stream_engine.board.writer import BoardCounters, BoardWriter, SessionHandle
from stream_engine.decision.entry import Entry
from stream_engine.decision.gate import Gate
from stream_engine.decision.ready import ReadyDistribution
from stream_engine.model.profile import Profile
from stream_engine.session.evidence import evidence_of
from stream_engine.session.session import Session, Source
from stream_engine.state.partitions import Partition


def token_hash(tokens: list[int], entry: tuple[int, ...] = ()) -> int:
    """64 bits of a hash of the token sequence up to the decision point: what ``valid`` is about."""
    sequence = np.array([*tokens, *entry], dtype=np.int32).tobytes()
    return int.from_bytes(blake2b(sequence, digest_size=8).digest(), "little")


class Publication:
    """Keeps the board in step with the sessions. Without a board (an engine used in-process) it does nothing."""

    def __init__(self, board: BoardWriter | None, profile: Profile, gate: Gate) -> None:
        self._board = board
        self._profile = profile
        self._gate = gate
        self._topics: list[str] = []
        self._handles: dict[str, SessionHandle] = {}

    def committed(self, session: Session, entries: Mapping[str, Entry]) -> None:
        """The live state moved: the session's ready distributions replace all earlier ones, in one write."""
        if self._board is not None:
            self._board.publish(self._handle(session), self._slots(session, entries, session.ready))

    def added(self, session: Session, entries: Mapping[str, Entry], keys: list[str]) -> None:
        """Pre-positions of the present state were completed later, in idle time."""
        if self._board is not None:
            ready = {key: session.ready[key] for key in keys}
            self._board.add(self._handle(session), self._slots(session, entries, ready))

    def invalidated(self, session: Session) -> None:
        if self._board is not None and session.id in self._handles:
            self._board.invalidate(self._handles[session.id])

    def removed(self, session: Session, key: str) -> None:
        """A standing query is gone."""
        if self._board is not None and session.id in self._handles:
            self._board.remove(self._handles[session.id], key)

    def consumed(self, session: Session, key: str) -> None:
        """The engine itself read a ready distribution for a query routed to it."""
        if self._board is not None and session.id in self._handles:
            self._board.consume(self._handles[session.id], key)

    def reads(self, session: Session, key: str) -> int:
        """How often API processes have read this entry since it is on the board."""
        handle = self._handles.get(session.id)
        return self._board.reads(handle, key) if self._board is not None and handle is not None else 0

    def valid(self, session: Session) -> dict[str, tuple[int, int]]:
        """What readers may be served of the session: by entry, its session version and token hash."""
        if self._board is None or session.id not in self._handles:
            return {}
        return self._board.valid(self._handles[session.id])

    def closed(self, session: Session) -> None:
        handle = self._handles.pop(session.id, None)
        if self._board is not None and handle is not None:
            self._board.close_session(handle)

    def applied(self, partition: Partition) -> None:
        if self._board is not None:
            source = partition.source
            self._board.set_applied(self._topic_index(source), source.partition, partition.applied)

    def dropped(self, source: Source) -> None:
        if self._board is not None:
            self._board.drop_partition(self._topic_index(source), source.partition)

    def use_gate(self, gate: Gate) -> None:
        """Risk control has moved it. META is replaced in one store, and readers look at it for every answer."""
        self._gate = gate
        if self._board is not None:
            self._board.set_meta(board_meta(self._profile, gate, tuple(self._topics)))

    def heartbeat(self) -> None:
        if self._board is not None:
            self._board.heartbeat()

    def counters(self) -> BoardCounters | None:
        return self._board.counters() if self._board is not None else None

    def close(self) -> None:
        if self._board is not None:
            self._board.close()

    def _handle(self, session: Session) -> SessionHandle:
        assert self._board is not None
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
            SlotRecord(key, distribution, evidence, token_hash(session.tokens, entries[key].tokens), now_ms)
            for key, distribution in ready.items()
        ]

    def _topic_index(self, source: Source) -> int:
        if source.topic not in self._topics:
            self._topics.append(source.topic)
            assert self._board is not None
            self._board.set_meta(board_meta(self._profile, self._gate, tuple(self._topics)))
        return self._topics.index(source.topic)


def board_meta(profile: Profile, gate: Gate, topics: tuple[str, ...] = ()) -> BoardMeta:
    """What readers need to turn slots into answers."""
    return BoardMeta(
        topics=topics,
        model=profile.name,
        profile_digest=profile.digest(),
        calibration_digest=gate.calibration,
        window_bars=profile.window_bars,
        classes=dict(gate.classes),
        answers=dict(gate.answers),
        generic_class=profile.generic_class.name,
        noise=gate.noise,
        confidence=dict(gate.confidence),
    )
