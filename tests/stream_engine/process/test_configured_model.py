"""The configured model is found, or named."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_engine.config.engine import EngineSettings
from stream_engine.config.rules import ConfigError
from stream_engine.model.profile import EMBEDDED
from stream_engine.process.configured_model import model_directory


def test_models_are_found_or_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert model_directory(EngineSettings()) == EMBEDDED
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "model").mkdir()
    with pytest.raises(ConfigError, match=r"engine\.model = '~/model': .*holds no model: it has no config\.json"):
        model_directory(EngineSettings(model="~/model"))
    (tmp_path / "model" / "config.json").write_text("{}")
    assert model_directory(EngineSettings(model="~/model")) == tmp_path / "model"
    with pytest.raises(ConfigError, match=r"engine\.model = .*nowhere"):
        model_directory(EngineSettings(model="nowhere"))
