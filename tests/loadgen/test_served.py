"""What is asked, and how long a session's history is, come from the model that the service runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from loadgen.served import served_profile
from stream_engine.client.failure import Failure
from stream_engine.config.engine import EngineSettings
from stream_engine.model.profile import EMBEDDED, PROFILE_FILE, QUESTIONS_FILE, TOKENIZER_FILE


@pytest.fixture
def desk(tmp_path: Path) -> str:
    """A model folder of one's own: other words, a longer region."""
    profile = json.loads((EMBEDDED / PROFILE_FILE).read_text()) | {"name": "desk", "region_bars": 80}
    (tmp_path / PROFILE_FILE).write_text(json.dumps(profile))
    (tmp_path / QUESTIONS_FILE).write_text("[trend]\nWhither?\n")
    shutil.copy(EMBEDDED / TOKENIZER_FILE, tmp_path)
    return str(tmp_path)


def test_the_profile_is_the_served_models(desk: str) -> None:
    profile = served_profile("desk", EngineSettings(model=desk))
    assert (profile.region_bars, profile.questions["trend"]) == (80, ("Whither?",))
    assert served_profile("embedded", EngineSettings()).region_bars == 64


@pytest.mark.parametrize("served", ["embedded", "another"])
def test_settings_of_another_service_are_refused(desk: str, served: str) -> None:
    with pytest.raises(Failure, match=rf"runs '{served}', the settings name 'desk'.*STREAM_ENGINE_ENGINE_MODEL"):
        served_profile(served, EngineSettings(model=desk))


def test_a_model_that_is_not_here_is_told_with_its_setting() -> None:
    with pytest.raises(Failure, match=r"engine\.model = 'nowhere'"):
        served_profile("nowhere", EngineSettings(model="nowhere"))
