"""Which ad-hoc questions of a session are asked so often that they ride along as branches. Ids only.

A question's heat is the number of times that it was asked, each counted half for every half-life that has passed
since. The rules below keep one that is asked at a steady rate from flapping: its heat moves by one between two
asks, and every pair of limits is further apart than that.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

PROMOTE_AT = 2.5
"""Heat that promotes a question where a place is free: three asks in quick succession."""
KEEP_ABOVE = 1.0
"""A promoted question with less has cooled: after three asks, 1.6 half-lives of silence."""
OVERTAKE = 1.5
"""One that finds no free place takes the coldest one's with more than so many times its heat, plus one."""
CANDIDATES = 64
"""Questions that a session counts; beyond that the coldest is forgotten."""
FORGET_BELOW = 0.1


class Stage(Enum):
    """``COUNTED -> PROMOTED -> COUNTED``, until it is forgotten. Only ``QuestionHeat`` moves one."""

    COUNTED = "counted"
    PROMOTED = "promoted"


@dataclass(slots=True)
class _Question:
    heat: float
    at: float
    stage: Stage = Stage.COUNTED


@dataclass(frozen=True, slots=True)
class HeatChange:
    """What an ask or the passing of time changed."""

    promoted: tuple[str, ...] = ()
    demoted: tuple[str, ...] = ()


class QuestionHeat:
    """The questions of one session, of which ``places`` may be promoted at a time. Times: seconds, never back."""

    def __init__(self, places: int, half_life_s: float) -> None:
        self._places = places
        self._half_life_s = half_life_s
        self._questions: dict[str, _Question] = {}

    @property
    def promoted(self) -> tuple[str, ...]:
        """In order of first ask."""
        return tuple(text for text, counted in self._questions.items() if counted.stage is Stage.PROMOTED)

    @property
    def empty(self) -> bool:
        return not self._questions

    def heat(self, question: str, now: float) -> float:
        counted = self._questions.get(question)
        return 0.0 if counted is None else counted.heat * 0.5 ** ((now - counted.at) / self._half_life_s)

    def asked(self, question: str, now: float, times: int = 1) -> HeatChange:
        """Count ``times`` asks. Promotes the question where it has become hot enough for a place."""
        heat = self.heat(question, now) + times
        counted = self._questions.get(question)
        if counted is None:
            self._make_room(now)
            counted = self._questions[question] = _Question(heat, now)
        counted.heat, counted.at = heat, now
        if counted.stage is Stage.PROMOTED or heat < PROMOTE_AT:
            return HeatChange()
        promoted = self.promoted
        demoted: tuple[str, ...] = ()
        if len(promoted) >= self._places:
            coldest = min(promoted, key=lambda text: self.heat(text, now), default=None)
            if coldest is None or heat <= OVERTAKE * self.heat(coldest, now) + 1:
                return HeatChange()
            self._questions[coldest].stage = Stage.COUNTED
            demoted = (coldest,)
        counted.stage = Stage.PROMOTED
        return HeatChange((question,), demoted)

    def cool(self, now: float) -> HeatChange:
        """Demote what has cooled, forget what is cold."""
        demoted = tuple(text for text in self.promoted if self.heat(text, now) < KEEP_ABOVE)
        for text in demoted:
            self._questions[text].stage = Stage.COUNTED
        for text in [text for text in self._questions if self.heat(text, now) < FORGET_BELOW]:
            del self._questions[text]
        return HeatChange(demoted=demoted)

    def discard(self, questions: Collection[str]) -> None:
        """These are no ad-hoc questions any more: somebody registered them."""
        for text in questions:
            self._questions.pop(text, None)

    def _make_room(self, now: float) -> None:
        counted = [text for text, known in self._questions.items() if known.stage is Stage.COUNTED]
        if counted and len(self._questions) >= CANDIDATES:
            del self._questions[min(counted, key=lambda text: self.heat(text, now))]
