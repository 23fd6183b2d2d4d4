"""Shadow verification: a share of the gate's fast answers, asked again on the full path in idle time.

The full path of that time is the question's entry on the session as it ended then. The session may have moved
on: as long as the tokens up to that boundary are unchanged, a branch that sees no further gives the very same
distribution. Where their cells went to another session they are computed once more, on the workbench. What is
gone by then (a swap, a correction at or below the boundary) is dropped and counted. Only answers from the
generic distribution are checked: a question's own distribution is its full path's.

A decision point is checked at most once, whatever API process picked it. Model and tokens are fixed, so a second
check of it would find what the first one found, and evidence has to be news. Another wording of the question is
no exception: its full path sees the same tokens, and mostly says the same.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from enum import Enum

from stream_engine.answering.answers import is_complete, word_of
from stream_engine.answering.gate_control import GateControl
from stream_engine.decision.ready import ReadyDistribution
from stream_engine.messages import CalibrationReport, Check
from stream_engine.model.forward.distribution import Distribution
from stream_engine.model.render.rendering import Builder
from stream_engine.risk.checked_points import Point
from stream_engine.session.cell_budget import CellBudget
from stream_engine.session.session import Session
from stream_engine.session.token_hash import token_hash
from stream_engine.state.scheduler import CheckWork, Scheduler

log = logging.getLogger(__name__)

MAX_WAITING = 256
"""Checks that may wait for idle time. An older one is likelier to be gone, so more would only be dropped later."""


class Dropped(Enum):
    """Why a fast answer could not be checked."""

    OFF = "off"
    """This engine checks nothing (``risk.check_share`` is 0)."""
    REPEATED = "repeated"
    """The decision point was checked lately, or is about to be."""
    ENGINE_BEHIND = "engine_behind"
    """Too many checks wait for idle time already."""
    GATE_MOVED = "gate_moved"
    """The gate would not let the answer through any more: it says nothing about the present tau."""
    SESSION_GONE = "session_gone"
    CHANGED = "changed"
    """A window swap, or a correction at or below the boundary."""
    NO_ROOM = "no_room"
    """The question and an answer of full length have no room behind the live end, whatever length it would have
    had; a check takes no cells from anything else."""


class VerificationDesk:
    """Takes checks in and judges their results. Where they are evidence against a class, ``control`` moves its
    gate."""

    def __init__(
        self,
        control: GateControl,
        builder: Builder,
        sessions: Mapping[str, Session],
        budget: CellBudget,
        scheduler: Scheduler,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.control = control
        self._builder = builder
        self._sessions = sessions
        self._budget = budget
        self._scheduler = scheduler
        self._chance = chance

    def sample(self, session: Session, question: str, question_class: str, ready: ReadyDistribution) -> None:
        """The engine itself gave a fast answer: one in so many is checked, as the API processes do."""
        if self._chance() < self.control.monitor.settings.check_share:
            hashed = token_hash(session.tokens, self._builder.generic_entry)
            self.offer(
                Check(
                    session=session.id,
                    question=question,
                    question_class=question_class,
                    session_version=session.version,
                    position=ready.position,
                    token=ready.top1,
                    gap=ready.gap,
                    token_hash=hashed,
                )
            )

    def offer(self, check: Check) -> None:
        """A fast answer to be checked once there is idle time."""
        reason = None
        if not self.control.monitor.settings.check_share:
            reason = Dropped.OFF
        elif self._repeated(check):
            reason = Dropped.REPEATED
        elif self._scheduler.check_count >= MAX_WAITING:
            reason = Dropped.ENGINE_BEHIND
        if reason is not None:
            self._drop(reason)
            return
        boundary = check.position - len(self._builder.generic_entry)
        self._scheduler.add_check(CheckWork(check, boundary, self._builder.query_entry(check.question)))

    def prune(self) -> None:
        """Before a step of background work: the next check is one that can be made now."""
        while (work := self._scheduler.next_check) is not None and (reason := self._obstacle(work)) is not None:
            self._scheduler.check_done(work)
            self._drop(reason)

    def finish(self, work: CheckWork, logits: Distribution) -> None:
        """One more token of the full path's answer is here. It goes on as a query's does ("The trend is up"), a
        step a token; once it is complete the answers are compared: "other" is another one."""
        check = work.check
        generated = (*work.generated, logits.top1)
        if not is_complete(self._builder, generated, check.question_class):
            self._scheduler.continue_check(work, logits.top1)
            return
        self._scheduler.check_done(work)
        word, answered_class = word_of(self._builder, generated, check.question_class)
        given = self._builder.answers[check.token]
        differs = (answered_class, word) != given
        if differs:
            log.info(
                "session %s, version %d: %r was answered %r (gap %.3g), the full path says %r",
                check.session,
                check.session_version,
                check.question,
                given[1],
                check.gap,
                word,
            )
        watched = self.control.monitor.classes[check.question_class]
        watched.points.add(_point(check))
        if watched.record(differs):
            self.control.advance(watched)

    def calibration(self) -> CalibrationReport:
        """What ``GET /v1/calibration`` shows."""
        settings = self.control.monitor.settings
        return CalibrationReport(
            model=self._builder.profile.name,
            generic_class=self._builder.profile.generic_class.name,
            file=self.control.monitor.facts,
            check_share=settings.check_share,
            level=settings.level,
            horizon=settings.horizon,
            classes=tuple(watched.report() for watched in self.control.monitor.classes.values()),
            dropped={reason.value: self.control.monitor.dropped[reason.value] for reason in Dropped},
            waiting=self._scheduler.check_count,
        )

    def _repeated(self, check: Check) -> bool:
        watched = self.control.monitor.classes.get(check.question_class)
        if watched is not None and _point(check) in watched.points:
            return True
        same = (check.question_class, _point(check))
        return any((work.check.question_class, _point(work.check)) == same for work in self._scheduler.checks)

    def _obstacle(self, work: CheckWork) -> Dropped | None:
        check = work.check
        watched = self.control.monitor.classes.get(check.question_class)
        served = self._builder.answers.get(check.token, ("", ""))[0] == check.question_class
        if watched is None or not (
            served and watched.gate.open and check.gap > watched.gate.tau + self.control.noise
        ):
            return Dropped.GATE_MOVED
        session = self._sessions.get(check.session)
        if session is None:
            return Dropped.SESSION_GONE
        boundary = work.boundary
        if not 0 < boundary <= len(session.tokens) or check.token_hash != token_hash(
            session.tokens[:boundary], self._builder.generic_entry
        ):
            return Dropped.CHANGED
        shape = self._budget.shape
        length = len(work.entry) + self._builder.profile.max_answer_tokens - 1
        if boundary + length > shape.bench:
            return Dropped.NO_ROOM
        return None

    def _drop(self, reason: Dropped) -> None:
        self.control.monitor.dropped[reason.value] += 1


def _point(check: Check) -> Point:
    return check.session, check.token_hash
