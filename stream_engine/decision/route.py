"""The route of a question: its class, and the decision points that may answer it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from stream_engine.model.profile import AnswerClass


class RoutedBy(Enum):
    """How a question came to its class, or to none."""

    LISTED = "listed"
    """A wording that the model was made with."""
    CLASSIFIER = "classifier"
    NONE = "none"


EXACT = "exact"
"""In answers, in place of these: from the text's own distribution, that of a standing query or a promoted one."""


@dataclass(frozen=True, slots=True)
class Route:
    """``key`` is the exact question, the board key of a standing query or of a promoted one; ``question_class`` is
    None where no class of the model answers such a question, or where the profile that says so is not here."""

    key: str
    question_class: AnswerClass | None
    by: RoutedBy = RoutedBy.NONE

    @property
    def generic(self) -> bool:
        """The generic header's distribution answers it, subject to the gate."""
        return self.question_class is not None and self.question_class.generic

    @property
    def class_name(self) -> str | None:
        return self.question_class.name if self.question_class is not None else None
