"""Agentic sessions: pushed sessions whose log goes on in turns (user, assistant, tool call, tool result)."""

from __future__ import annotations

from stream_engine.answering.evaluations import StandingEvaluation
from stream_engine.answering.full_path import FullPath
from stream_engine.engine.cells import Cells
from stream_engine.session.session import Session
from stream_engine.state.publication import Publication
from stream_engine.state.scheduler import Lane, Scheduler
from stream_engine.state.session_table import SessionTable


class TurnRefused(ValueError):
    """A turn that cannot be taken. Nothing of it was: the session is as it was before."""


class Turns:
    """Takes turns in."""

    def __init__(
        self,
        sessions: SessionTable,
        cells: Cells,
        scheduler: Scheduler,
        publication: Publication,
        full_path: FullPath,
        evaluations: StandingEvaluation,
    ) -> None:
        self._sessions = sessions
        self._builder = sessions.builder
        self._cells = cells
        self._scheduler = scheduler
        self._publication = publication
        self._full_path = full_path
        self._evaluations = evaluations

    def append(self, session_id: str, tokens: tuple[int, ...]) -> Session:
        """Extend a pushed session by durable tokens; it is opened where it does not exist. Raises TurnRefused."""
        session = self._sessions.get(session_id)
        if session is not None and session.source is not None:
            fed = f"{session.source.topic}/{session.source.partition}"
            raise TurnRefused(f"session {session_id!r} is fed by {fed}: its version counts offsets, not turns")
        self._refuse_without_room(session_id, self._builder.prefix if session is None else session.tokens, tokens)
        session = session or self._sessions.open(session_id)
        self._extend(session, tokens)
        return session

    def await_tool(self, session_id: str) -> None:
        """A tool call was emitted: its result's envelope is decoded while the session waits (section 3.5), where
        it has cells. Raises TurnRefused where there is no such session."""
        self._known(session_id).await_tool()
        self._scheduler.add(Lane.LONE, session_id)

    def resume_tool(self, session_id: str, payload: str) -> int:
        """The tool has answered. The turn resumes on its delta: envelope cells that are resident become
        durable, the payload is appended, and the next turn's header rides along. Returns the reused tokens.

        Raises TurnRefused; the session waits on then."""
        session = self._known(session_id)
        tokens = self._builder.tool_envelope + self._builder.tool_payload(payload)
        self._refuse_without_room(session_id, session.tokens, tokens)
        reused = self._cells.continue_branch(session, tokens)
        session.tool_answered()
        self._extend(session, tokens, reused)
        return reused

    def _extend(self, session: Session, tokens: tuple[int, ...], computed: int = 0) -> None:
        """A turn is live as soon as it is taken: no answer of before it is given any more, here or by a reader of
        the board."""
        self._evaluations.missed(session, session.owed, "overtaken")
        session.append_turn(tokens, computed)
        self._publication.invalidated(session)
        self._full_path.restart(session.id)
        self._scheduler.add_commit(session.id)

    def _known(self, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise TurnRefused(f"no session {session_id!r}: no turn of it was taken yet")
        return session

    def _refuse_without_room(
        self, session_id: str, log: list[int] | tuple[int, ...], tokens: tuple[int, ...]
    ) -> None:
        """As a region does, turns lie in the session's own slab: what can be borrowed serves questions only."""
        room = self._cells.budget.shape.headroom(len(log))
        if len(tokens) > room:
            raise TurnRefused(
                f"session {session_id!r}: a turn of {len(tokens)} tokens has no room: {max(0, room)} of its "
                "cells are left. Send a shorter one, begin a new session, or raise engine.entry_cells"
            )
