"""Routing of a question before any lookup, by the profile of the configured model where it is on this machine."""

from __future__ import annotations

from query_api.errors import invalid
from stream_engine.decision.entry import entry_key
from stream_engine.decision.route import Route
from stream_engine.model.hub.files import ModelNotFound, find_model
from stream_engine.model.profile import Profile
from stream_engine.questions.router import Router


class QuestionRouter:
    """The engine's router, or none: an API process needs no model folder, and then leaves it to the engine."""

    def __init__(self, profile: Profile | None) -> None:
        self.digest = None if profile is None else profile.digest()
        self._router = None if profile is None else Router(profile)

    @classmethod
    def of_model(cls, model: str, adapter: str = "") -> QuestionRouter:
        """The router of a configured model, where its files are on this machine; nothing is fetched."""
        try:
            files = find_model(model, adapter, fetch=False)
        except ModelNotFound:
            return cls(None)
        return cls(files.read_profile())

    def route(self, question: str, session: str) -> Route:
        """The route of a question to ``session``. Raises a 422 ApiError for a question of white space."""
        key = entry_key(question)
        if not key:
            raise invalid("a question is more than white space", param="question")
        if self._router is None:
            return Route(key, None)
        return self._router.route(question, session)

    def require_supported(self, route: Route) -> None:
        """Raises the 422 ApiError that names what can be asked, for wordings that the model does not answer."""
        if self._router is not None and route.question_class is None and not self._router.answers_anything:
            raise invalid(self._router.refusal(), param="question", code="question_not_supported")
