"""Routing of a question before any lookup: which entry would answer it, and may this model answer it at all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from query_api.errors import ApiError, invalid
from stream_engine.model.profile import EMBEDDED, PROFILE_FILE, AnswerClass, Profile, normalise_question

ROUTES_KEPT = 4096
EXAMPLES = 3
"""Wordings of each class that a refusal shows."""


@dataclass(frozen=True, slots=True)
class Route:
    """``entry_key`` is the board's key of a standing query with this wording; ``question_class`` is None where
    the wording is of no listed class; ``generic`` says that the generic header answers this class."""

    entry_key: str
    question_class: str | None
    generic: bool


class QuestionRouter:
    """Routes by the profile's listed wordings. Without a profile (a general model) every question is open."""

    def __init__(self, profile: Profile | None) -> None:
        self._profile = profile
        self.digest = None if profile is None else profile.digest()
        # Looking a wording up normalises every listed one: too slow for each request, and questions repeat.
        self.route = lru_cache(maxsize=ROUTES_KEPT)(self._route)

    @classmethod
    def of_model(cls, model: str) -> QuestionRouter:
        """The router of a configured model: its folder's profile, where it has one that is here."""
        folder = EMBEDDED if model == "embedded" else Path(model).expanduser()
        return cls(Profile.load(folder) if (folder / PROFILE_FILE).is_file() else None)

    def require_supported(self, route: Route) -> None:
        """Raises the 422 that names what can be asked, for a wording that a class-bound model does not answer."""
        profile = self._profile
        if profile is None or not profile.classes or route.question_class is not None:
            return
        raise unsupported_question(profile)

    def _route(self, question: str) -> Route:
        found = None if self._profile is None else self._profile.class_of_question(question)
        key = normalise_question(question)
        return Route(key, None, False) if found is None else Route(key, found.name, found.generic)


def unsupported_question(profile: Profile) -> ApiError:
    """422 with the classes that the model answers, their words and example wordings."""
    offered = "; ".join(_offer(profile, one) for one in profile.classes)
    return invalid(
        f"model {profile.name!r} does not answer this question. It answers {offered}",
        param="question",
        code="question_not_supported",
    )


def _offer(profile: Profile, one: AnswerClass) -> str:
    examples = ", ".join(f'"{wording}"' for wording in profile.questions.get(one.name, ())[:EXAMPLES])
    return f"{one.name} ({'/'.join(one.words)}), such as {examples}"
