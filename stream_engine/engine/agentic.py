"""Agentic sessions: pushed sessions whose log goes on in turns (user, assistant, tool call, tool result)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stream_engine.answering.query_desk import QueryDesk
from stream_engine.decision.entry import common_prefix
from stream_engine.model.forward.runner import Runner
from stream_engine.model.render.rendering import Builder
from stream_engine.session.cell_budget import CellBudget
from stream_engine.session.session import Session
from stream_engine.state.publication import Publication
from stream_engine.state.scheduler import Lane, Scheduler


class TurnRefused(ValueError):
    """A turn that cannot be taken. Nothing of it was: the session is as it was before."""


class Turns:
    """Takes turns in. ``open_session`` creates a pushed session; ``overtaken`` is told of one whose version goes
    by with the turn."""

    def __init__(
        self,
        builder: Builder,
        runner: Runner,
        sessions: Mapping[str, Session],
        budget: CellBudget,
        scheduler: Scheduler,
        queries: QueryDesk,
        publication: Publication,
        open_session: Callable[[str], Session],
        overtaken: Callable[[Session], None],
    ) -> None:
        self._builder = builder
        self._runner = runner
        self._sessions = sessions
        self._budget = budget
        self._scheduler = scheduler
        self._queries = queries
        self._publication = publication
        self._open_session = open_session
        self._overtaken = overtaken

    def append(self, session_id: str, tokens: tuple[int, ...]) -> Session:
        """Extend a pushed session by durable tokens; it is opened where it does not exist. Raises TurnRefused."""
        session = self._sessions.get(session_id)
        if session is not None and session.source is not None:
            fed = f"{session.source.topic}/{session.source.partition}"
            raise TurnRefused(f"session {session_id!r} is fed by {fed}: its version counts offsets, not turns")
        self._refuse_without_room(session_id, self._builder.prefix if session is None else session.tokens, tokens)
        session = session or self._open_session(session_id)
        self._extend(session, tokens)
        return session

    def await_tool(self, session_id: str) -> None:
        """A tool call was emitted: its result's envelope is decoded while the session waits (section 3.5), where
        it has cells. Raises TurnRefused where there is no such session."""
        self._known(session_id).awaiting_tool = True
        self._scheduler.add(Lane.LONE, session_id)

    def resume_tool(self, session_id: str, payload: str) -> int:
        """The tool has answered. The turn resumes on its delta: envelope cells that are resident become
        durable, the payload is appended, and the next turn's header rides along. Returns the reused tokens.

        Raises TurnRefused; the session waits on then."""
        session = self._known(session_id)
        tokens = self._builder.tool_envelope + self._builder.tool_payload(payload)
        self._refuse_without_room(session_id, session.tokens, tokens)
        reused = 0
        base = self._budget.base_of(session_id)
        if base is not None and session.current:
            source = 0
            for branch in session.branches:
                common = common_prefix(branch.tokens, tokens)
                if common > reused:
                    reused, source = common, branch.cell
            if reused and source != session.resident:
                self._runner.copy(base + source, base + session.resident, reused)
        session.awaiting_tool = False
        self._extend(session, tokens, reused)
        return reused

    def _extend(self, session: Session, tokens: tuple[int, ...], computed: int = 0) -> None:
        """A turn is live as soon as it is taken: no answer of before it is given any more, here or by a reader of
        the board."""
        self._overtaken(session)
        session.append_turn(tokens, computed)
        self._publication.invalidated(session)
        self._queries.restart(session.id)
        self._scheduler.add_commit(session.id)

    def _known(self, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise TurnRefused(f"no session {session_id!r}: no turn of it was taken yet")
        return session

    def _refuse_without_room(
        self, session_id: str, log: list[int] | tuple[int, ...], tokens: tuple[int, ...]
    ) -> None:
        """As a region does, turns leave the second slab's cells alone: they serve questions where no room is
        left beside them."""
        room = self._budget.shape.headroom(len(log))
        if len(tokens) > room:
            raise TurnRefused(
                f"session {session_id!r}: a turn of {len(tokens)} tokens has no room: {max(0, room)} of its share "
                "of the cell budget are left. Send a shorter one, begin a new session, or raise engine.total_cells"
            )
