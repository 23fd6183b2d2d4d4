"""The promoted questions of all sessions: their entries, and their slots on the board."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from stream_engine.config.engine import EngineSettings
from stream_engine.decision.entry import Entry, EntryKind, entry_key
from stream_engine.decision.ready import ReadyDistribution
from stream_engine.messages.counters import EngineCounters
from stream_engine.model.render.rendering import Builder
from stream_engine.questions.heat import HeatChange, QuestionHeat
from stream_engine.session.session import Session
from stream_engine.standing.registered_queries import RegisteredQueries
from stream_engine.state.publication import Publication
from stream_engine.state.scheduler import Lane, Scheduler

LOOKS_A_HALF_LIFE = 8
SLICE = 64
"""Sessions whose questions are looked at between two steps."""


@dataclass(slots=True)
class _Questions:
    """Of one session. ``reads`` is the count of a promoted slot's reads that the heat holds already; ``seen`` when
    they were counted last."""

    heat: QuestionHeat
    seen: float
    entries: dict[str, Entry] = field(default_factory=dict)
    reads: dict[str, int] = field(default_factory=dict)


class PromotedQuestions:
    """Counts questions that reach the engine, and the API processes' reads of promoted slots. What a session's
    ``standing`` queries ask is no ad-hoc question."""

    def __init__(
        self,
        settings: EngineSettings,
        builder: Builder,
        publication: Publication,
        standing: RegisteredQueries,
        scheduler: Scheduler,
        counters: EngineCounters,
    ) -> None:
        self._builder = builder
        self._publication = publication
        self._standing = standing
        self._scheduler = scheduler
        self._counters = counters
        self._half_life_s = settings.promotion_half_life_s
        self._places = 0 if settings.preposition == "off" else settings.promoted_questions
        self._sessions: OrderedDict[str, _Questions] = OrderedDict()  # the one looked at longest ago first
        self.count = 0
        """Questions promoted at the moment, over all sessions."""

    def entries(self, session: str) -> tuple[Entry, ...]:
        """The session's promoted questions as decision points."""
        known = self._sessions.get(session)
        if known is None:
            return ()
        standing = self._standing.keys(session)  # a pattern that has just come may ask the same
        return tuple(entry for entry in known.entries.values() if entry.key not in standing)

    def asked(self, session: Session, question: str, class_name: str | None) -> bool:
        """The engine was asked a question that the generic header did not answer. True when that promoted it.

        One of no class is answered in free text: its first token alone is no answer."""
        key = entry_key(question)
        if not self._places or class_name is None or key in self._standing.keys(session.id):
            return False
        known = self._sessions.get(session.id)
        if known is None:
            known = self._sessions[session.id] = _Questions(
                QuestionHeat(self._places, self._half_life_s), time.monotonic()
            )
        self._count_reads(known, session)  # else the asked one would overtake one that is read more
        change = known.heat.asked(key, time.monotonic())
        self._demote(known, session, change)
        for promoted in change.promoted:
            tokens = self._builder.query_entry(promoted)
            known.entries[promoted] = Entry(promoted, EntryKind.PROMOTED, tokens, class_name)
            self.count += 1
            self._counters.questions_promoted_total += 1
        return bool(change.promoted)

    def missed(self, session: Session, question: str, class_name: str | None) -> None:
        """No ready distribution answered the question. Where that promotes it, it is decoded in idle time."""
        if self.asked(session, question, class_name):
            self._scheduler.add(Lane.LONE, session.id)

    def decoded(self, session: Session, question: str, ready: ReadyDistribution) -> None:
        """The full path has decoded this question on the session's present state: where it is promoted, that is
        its ready distribution, and no pass of its own is needed."""
        key = entry_key(question)
        known = self._sessions.get(session.id)
        if known is not None and key in known.entries and key not in session.ready and session.serving:
            session.decoded(key, ready)
            self._publication.added(session, known.entries, [key])

    def look(self, sessions: Mapping[str, Session]) -> None:
        """Now and then, a slice at a time: count what was read, let the others cool."""
        now = time.monotonic()
        for _ in range(SLICE):
            session_id, known = next(iter(self._sessions.items()), (None, None))
            if session_id is None or known is None or now < known.seen + self._half_life_s / LOOKS_A_HALF_LIFE:
                return
            known.seen = now
            self._sessions.move_to_end(session_id)
            self._count_reads(known, sessions[session_id])
            self._demote(known, sessions[session_id], known.heat.cool(now))
            if known.heat.empty:
                del self._sessions[session_id]

    def registered(self, session: str) -> None:
        """The session's standing queries have changed: what one of them asks is theirs now."""
        known = self._sessions.get(session)
        if known is not None:
            standing = self._standing.keys(session)
            known.heat.discard(standing)
            for key in known.entries.keys() & standing:
                self._remove(known, key)

    def forget_session(self, session: str) -> None:
        known = self._sessions.pop(session, None)
        if known is not None:
            self.count -= len(known.entries)

    def _remove(self, known: _Questions, key: str) -> None:
        del known.entries[key]
        known.reads.pop(key, None)
        self.count -= 1

    def _count_reads(self, known: _Questions, session: Session) -> None:
        for key in known.entries:
            reads = self._publication.reads(session, key)
            new = reads - known.reads.get(key, 0)
            known.reads[key] = reads
            if new > 0:
                known.heat.asked(key, time.monotonic(), new)
                self._counters.promoted_reads_total += new

    def _demote(self, known: _Questions, session: Session, change: HeatChange) -> None:
        for key in change.demoted:
            self._remove(known, key)
            session.forget(key)
            self._publication.removed(session, key)
            self._counters.questions_demoted_total += 1
