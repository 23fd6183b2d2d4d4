"""Which decision point may answer a question: its class, and the entry it would read."""

from __future__ import annotations

from functools import lru_cache

from stream_engine.decision.entry import entry_key
from stream_engine.decision.route import Route, RoutedBy
from stream_engine.model.profile import AnswerClass, Profile, normalise_question
from stream_engine.questions.classifier import packaged
from stream_engine.questions.core import core

REMEMBERED = 4096
"""Questions whose route is kept: people and programs ask the same ones again."""


class Router:
    """Routes by the profile's listed wordings, then by the classifier, which only ever gives a class that the
    profile has, with the same answer words."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._listed: dict[str, AnswerClass] = {}
        self._cores: dict[tuple[str, ...], AnswerClass | None] = {}
        for answer_class in profile.classes:
            for wording in profile.questions.get(answer_class.name, ()):
                self._listed[normalise_question(wording)] = answer_class
                words = core(wording) or ()
                same = self._cores.get(words, answer_class) is answer_class
                self._cores[words] = answer_class if same else None
        self._classifier = packaged()
        taught = dict(self._classifier.classes)
        self._classified = {
            answer_class.name: answer_class
            for answer_class in profile.classes
            if set(taught.get(answer_class.name, ())) == set(answer_class.words)
        }
        self._find = lru_cache(REMEMBERED)(self._look_up)

    def route(self, question: str, session: str = "") -> Route:
        """``session`` is the id that is asked: its name in the question means the session itself."""
        return self._find(question, session)

    def _look_up(self, question: str, session: str) -> Route:
        key = entry_key(question)
        listed = self._listed.get(normalise_question(question))
        if listed is not None:
            return Route(key, listed, RoutedBy.LISTED)
        words = core(question, session, self._profile.window_bars)
        if not words:
            return Route(key, None)
        listed = self._cores.get(words)
        if listed is not None:
            return Route(key, listed, RoutedBy.LISTED)
        name = self._classifier.classify(words).question_class
        found = self._classified.get(name) if name is not None else None
        return Route(key, found, RoutedBy.CLASSIFIER if found is not None else RoutedBy.NONE)

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
