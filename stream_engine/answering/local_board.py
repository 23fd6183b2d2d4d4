"""The engine's own sessions, read as the ready board is: the other place that the judge is asked about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stream_engine.decision.reading import Miss, Policy, Reading
from stream_engine.model.profile import Profile
from stream_engine.session.evidence import evidence_of
from stream_engine.session.session import Session
from stream_engine.state.live_gate import LiveGate
from stream_engine.state.partitions import PartitionTable
from stream_engine.state.publication import Publication

NO_TOPIC = -1


@dataclass(frozen=True, slots=True)
class LocalReading(Reading):
    """A decision point of a session of this engine."""

    session: Session
    key: str


class LocalBoard:
    """Reads sessions, by the live gate. What is read here counts as a hit of the slot on the shared board, which
    holds the same distribution."""

    def __init__(
        self,
        sessions: Mapping[str, Session],
        partitions: PartitionTable,
        publication: Publication,
        gate: LiveGate,
        profile: Profile,
    ) -> None:
        self._sessions = sessions
        self._partitions = partitions
        self._publication = publication
        self._topics: list[str] = []
        self._gate = gate
        self._model, self._digest, self._window_bars = profile.name, profile.digest(), profile.window_bars

    @property
    def policy(self) -> Policy:
        return Policy(self._gate.now, self._model, self._digest, self._window_bars)

    def read(self, session_id: str, entry_key: str) -> LocalReading | Miss:
        session = self._sessions.get(session_id)
        ready = session.ready.get(entry_key) if session is not None else None
        if session is None or ready is None:
            return Miss.ABSENT
        evidence = evidence_of(session, self._topic_index(session))
        return LocalReading(ready, evidence, session.version, session, entry_key)

    def consume(self, reading: LocalReading) -> None:
        self._publication.consumed(reading.session, reading.key)

    def topic(self, index: int) -> str | None:
        return None if index == NO_TOPIC else self._topics[index]

    def applied(self, topic_index: int, partition: int) -> int | None:
        return self._partitions.applied(partition, self.topic(topic_index))

    def _topic_index(self, session: Session) -> int:
        if session.source is None:
            return NO_TOPIC
        if session.source.topic not in self._topics:
            self._topics.append(session.source.topic)
        return self._topics.index(session.source.topic)
