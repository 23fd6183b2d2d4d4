"""How the running service's model is spoken to."""

from __future__ import annotations

from stream_engine.client.failure import SETTINGS_WRONG, Failure
from stream_engine.config.engine import EngineSettings
from stream_engine.model.hub.files import ModelNotFound, find_model
from stream_engine.model.profile import Profile


def served_profile(served: str, settings: EngineSettings) -> Profile:
    """The profile of the model that a service calls ``served``, whose settings these are. What is asked, and how
    many bars a region has, follow from it. Raises a Failure where it is another one, or not on this machine."""
    try:
        profile = find_model(settings.model, settings.adapter, fetch=False).read_profile()
    except (ModelNotFound, OSError, ValueError) as error:
        raise Failure(f"engine.model = {settings.model!r}: {error}", SETTINGS_WRONG) from error
    if profile.name != served:
        raise Failure(
            f"the service runs {served!r}, the settings name {profile.name!r}: give the service's own with "
            "--config, or STREAM_ENGINE_ENGINE_MODEL and STREAM_ENGINE_ENGINE_ADAPTER",
            SETTINGS_WRONG,
        )
    return profile
