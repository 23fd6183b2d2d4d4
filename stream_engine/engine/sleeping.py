"""Which sessions nobody feeds or asks any more: found without a look at the others."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stream_engine.ingest.dormancy import Dormancy
from stream_engine.session.session import Session
from stream_engine.state.publication import Publication
from stream_engine.state.scheduler import Scheduler

SLICE = 64
"""Sessions that are looked at between two steps."""


@dataclass(frozen=True, slots=True)
class _Touched:
    """When, on the monotonic clock, and how often other processes had read the session's slots by then."""

    at: float
    reads: int


class Sleeping:
    """Has sessions put to sleep that are quiet for ``after_s`` (0: never), and woken when they are asked."""

    def __init__(
        self,
        after_s: float,
        sessions: Mapping[str, Session],
        dormancy: Dormancy,
        scheduler: Scheduler,
        publication: Publication,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._after_s = after_s
        self._sessions = sessions
        self._dormancy = dormancy
        self._scheduler = scheduler
        self._publication = publication
        self.clock = clock
        self._quiet: OrderedDict[str, _Touched] = OrderedDict()

    def touch(self, session: Session) -> None:
        """It is fed, or asked."""
        self._dormancy.stays(session.id)
        if self._after_s and session.source is not None:
            self._seen(session)

    def forget(self, session_id: str) -> None:
        self._dormancy.stays(session_id)
        self._quiet.pop(session_id, None)

    def wake(self, session_id: str) -> bool:
        """It is asked and not here: its window is brought; False where it does not sleep."""
        return self._dormancy.wake(session_id)

    def look(self) -> None:
        """Time has passed: the next of those that were quiet for so long. One that may not sleep now is looked at
        again after as long a time."""
        for woken in self._dormancy.take_woken():
            self.touch(woken)
        due = self.clock() - self._after_s
        for _ in range(SLICE):
            session_id, touched = next(iter(self._quiet.items()), (None, None))
            if session_id is None or touched is None or touched.at > due or not self._dormancy.has_room:
                return
            session = self._sessions[session_id]
            self._seen(session)
            if self._quiet[session_id].reads == touched.reads and self._may_sleep(session):
                self._dormancy.put_to_sleep(session)

    def _seen(self, session: Session) -> None:
        reads = sum(self._publication.reads(session, key) for key in session.ready)
        self._quiet[session.id] = _Touched(self.clock(), reads)
        self._quiet.move_to_end(session.id)

    def _may_sleep(self, session: Session) -> bool:
        asked = any(work.query.session == session.id for work in self._scheduler.queries)
        return session.may_sleep and session.id not in self._scheduler.commits and not asked
