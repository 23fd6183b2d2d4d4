"""Standing queries at work: evaluated when their entry is decoded, told of when that did not come to be."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from stream_engine.answering.answers import build_evaluation, build_missed
from stream_engine.decision.entry import Entry, EntryKind
from stream_engine.messages import Event, StandingQuery
from stream_engine.messages.counters import EngineCounters
from stream_engine.session.cell_budget import CellBudget
from stream_engine.session.session import Session
from stream_engine.standing.registered_queries import RegisteredQueries
from stream_engine.state.live_gate import LiveGate


class StandingEvaluation:
    """``emit`` is given the events that subscribers asked for."""

    def __init__(
        self,
        standing: RegisteredQueries,
        budget: CellBudget,
        gate: LiveGate,
        counters: EngineCounters,
        emit: Callable[[Event], None],
    ) -> None:
        self._standing = standing
        self._budget = budget
        self._gate = gate
        self._counters = counters
        self._emit = emit

    def decoded(self, session: Session, entries: Iterable[Entry]) -> None:
        """Decision points are ready: the standing queries among them are evaluated. What a pattern asks of every
        session makes none more used than the others."""
        asked = [entry for entry in entries if entry.kind is EntryKind.STANDING]
        if not asked:
            return
        if any(entry.demands_cells for entry in asked):
            self._budget.touch(session.id)
        questions = {entry.key for entry in asked}
        for query in self._standing.matching(session.id):
            if query.question in questions:
                self.evaluate(query, session)

    def evaluate(self, query: StandingQuery, session: Session) -> None:
        """By what is ready at its decision point."""
        evaluation = build_evaluation(query, session, session.ready[query.question], self._gate.now.certain)
        event = self._standing.evaluated(evaluation, query.on)
        if event is not None:
            self._emit(event)

    def put_off(self, session: Session, entries: Iterable[Entry]) -> None:
        """The present version is evaluated later."""
        keys = {entry.key for entry in entries if entry.kind is EntryKind.STANDING}
        for query in self._standing.matching(session.id) if keys else ():
            if query.question in keys:
                self._standing.due(session.id, query.id)

    def missed(self, session: Session, keys: Collection[str], reason: str) -> None:
        """The present version is not evaluated for these questions: whoever asked for every commit is told."""
        for query in self._standing.matching(session.id) if keys else ():
            if query.on == "commit" and query.question in keys:
                self._counters.evaluations_missed_total += 1
                self._emit(build_missed(query, session, reason))
