"""Which decision points a session has, besides the queries that are asked now."""

from __future__ import annotations

from stream_engine.answering.promotion import PromotedQuestions
from stream_engine.config.engine import EngineSettings
from stream_engine.decision.entry import Entry, envelope_entry, generic_entry
from stream_engine.model.render.rendering import Builder
from stream_engine.session.session import Session
from stream_engine.standing.registered_queries import RegisteredQueries


class SessionEntries:
    """Header, standing queries, tool envelope, promoted questions."""

    def __init__(
        self, settings: EngineSettings, builder: Builder, standing: RegisteredQueries, promoted: PromotedQuestions
    ) -> None:
        self._generic = () if settings.preposition == "off" else (generic_entry(builder),)
        self._envelope = (envelope_entry(builder),)
        self._standing = standing
        self._promoted = promoted

    def of(self, session: Session) -> tuple[Entry, ...]:
        envelope = self._envelope if session.awaiting_tool else ()
        return (
            *self._generic,
            *self._standing.entries(session.id),
            *envelope,
            *self._promoted.entries(session.id),
        )
