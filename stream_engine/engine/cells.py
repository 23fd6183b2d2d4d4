"""The cells of sessions: who has which, what is copied between them, and who gives up its own."""

from __future__ import annotations

from collections.abc import Mapping

from stream_engine.decision.entry import common_prefix
from stream_engine.messages.counters import EngineCounters
from stream_engine.model.forward.runner import Runner
from stream_engine.session.cell_budget import CellBudget
from stream_engine.session.session import Session, SessionState
from stream_engine.state.partitions import PartitionTable


class Cells:
    """The budget says where a session's cells lie, the runner holds them."""

    def __init__(
        self,
        budget: CellBudget,
        runner: Runner,
        sessions: Mapping[str, Session],
        partitions: PartitionTable,
        counters: EngineCounters,
    ) -> None:
        self.budget = budget
        self._runner = runner
        self._sessions = sessions
        self._partitions = partitions
        self._counters = counters

    def evict(self, session_id: str) -> None:
        """The session's cells go to another one: tokens only from now on. What is ready stays so until its next
        change."""
        session = self._sessions[session_id]
        session.lose_cells()
        served = self._partitions.serves(session.source)
        session.move_to(SessionState.EVICTED if served else SessionState.REBUILDING)
        self._counters.evictions_total += 1

    def copy(self, source: int, target: int, count: int) -> None:
        self._runner.copy(source, target, count)

    def continue_branch(self, session: Session, tokens: tuple[int, ...]) -> int:
        """Put the cells that a resident branch has of ``tokens`` at the session's live end, where the log goes on
        with them. Returns how many they are."""
        base = self.budget.base_of(session.id)
        if base is None or not session.current:
            return 0
        reused, source = 0, 0
        for branch in session.branches:
            common = common_prefix(branch.tokens, tokens)
            if common > reused:
                reused, source = common, branch.cell
        if reused and source != session.resident:
            self._runner.copy(base + source, base + session.resident, reused)
        return reused
