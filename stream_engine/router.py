"""Which decision point may answer a question: its class, and the entry it would read."""

from __future__ import annotations

from dataclasses import dataclass

from stream_engine.entry import entry_key
from stream_engine.model.profile import AnswerClass, Profile, normalise_question


@dataclass(frozen=True, slots=True)
class Route:
    """``key`` is the exact question, the board key of a standing query; ``question_class`` is None where the
    model does not answer such a question."""

    key: str
    question_class: AnswerClass | None

    @property
    def generic(self) -> bool:
        """The generic header's distribution answers it, subject to the gate."""
        return self.question_class is not None and self.question_class.generic


class Router:
    """Routes by the profile's listed wordings, after normalisation."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._classes = {
            normalise_question(wording): answer_class
            for answer_class in profile.classes
            for wording in profile.questions.get(answer_class.name, ())
        }

    def route(self, question: str) -> Route:
        return Route(entry_key(question), self._classes.get(normalise_question(question)))

    @property
    def answers_anything(self) -> bool:
        """The model takes a question of no class as it is, on the full path; others refuse it."""
        return self._profile.answers_anything

    def refusal(self) -> str:
        """What can be asked instead, with an example of each class."""
        examples = [
            f"{answer_class.name} ({'/'.join(answer_class.words)}), such as {wordings[0]!r}"
            for answer_class in self._profile.classes
            if (wordings := self._profile.questions.get(answer_class.name, ()))
        ]
        return f"the model {self._profile.name!r} does not answer this question; it answers: {'; '.join(examples)}"
