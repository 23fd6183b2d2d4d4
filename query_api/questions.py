"""Routing of a question before any lookup, by the profile of the configured model where it is on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from query_api.errors import invalid
from stream_engine.decision.entry import entry_key
from stream_engine.decision.route import Route
from stream_engine.model.hub.files import ModelNotFound, find_model
from stream_engine.model.profile import Profile
from stream_engine.questions.router import Router

LOOK_AGAIN_S = 5.0


class QuestionRouter:
    """The engine's router, or none: an API process needs no model folder, and then leaves it to the engine."""

    def __init__(self, find_profile: Callable[[], Profile | None]) -> None:
        self.digest: str | None = None
        self._router: Router | None = None
        self._find_profile = find_profile
        self._look()

    @classmethod
    def of_model(cls, model: str, adapter: str = "") -> QuestionRouter:
        """The router of a configured model, where its files are on this machine; nothing is fetched."""

        def find_profile() -> Profile | None:
            try:
                return find_model(model, adapter, fetch=False).read_profile()
            except ModelNotFound:
                return None

        return cls(find_profile)

    def _look(self) -> None:
        profile = self._find_profile()
        if profile is not None:
            self.digest, self._router = profile.digest(), Router(profile)

    async def find(self) -> None:
        """Until the model is here: an engine that starts beside this process may fetch or unpack it meanwhile."""
        while self._router is None:
            await asyncio.sleep(LOOK_AGAIN_S)
            with suppress(OSError, ValueError):  # read while it was being copied: it is looked at again
                await asyncio.to_thread(self._look)

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
