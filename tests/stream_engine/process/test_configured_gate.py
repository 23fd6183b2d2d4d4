"""The gate from calibration or profile, and the memory of the watch over it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from stream_engine.config.engine import EngineSettings
from stream_engine.config.risk import RiskSettings
from stream_engine.config.rules import ConfigError
from stream_engine.decision.calibration import CALIBRATION_FILE, Calibration, ClassCalibration
from stream_engine.model.profile import EMBEDDED
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.process.configured_gate import build_gate, build_monitor, load_calibration
from stream_engine.process.configured_model import model_identity


def test_the_gate_has_every_class_and_every_word(builder: TokenBuilder) -> None:
    gate = build_gate(builder)
    assert set(gate.classes) == {kind.name for kind in builder.profile.classes}
    assert {(answer.question_class, answer.word) for answer in gate.answers.values()} == {
        (kind.name, word) for kind in builder.profile.classes for word in kind.words
    }
    assert gate.noise > 0


@pytest.fixture
def calibrated(tmp_path: Path, builder: TokenBuilder) -> tuple[EngineSettings, Calibration]:
    """A copy of the embedded model without its weights, and a calibration beside it."""
    for path in EMBEDDED.iterdir():
        if path.suffix != ".safetensors" and path.name != CALIBRATION_FILE:
            shutil.copy(path, tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    settings = EngineSettings(model=str(tmp_path))
    calibration = Calibration(
        identity=model_identity(settings, builder),
        r_max=0.02,
        delta=0.05,
        created="2026-01-02T03:04:05Z",
        series=(),
        classes={"trend": ClassCalibration(1.75, "smallest", True, (), ((0.0, 0.5), (2.0, 0.9)))},
    )
    calibration.save(tmp_path / CALIBRATION_FILE)
    return settings, calibration


def test_a_calibration_beside_the_model_sets_the_gate(
    calibrated: tuple[EngineSettings, Calibration], builder: TokenBuilder
) -> None:
    settings, written = calibrated
    found = load_calibration(settings, builder)
    assert found == written
    gate = build_gate(builder, found)
    assert gate.classes["trend"].tau == 1.75
    assert gate.classes["position"].tau == builder.profile.tau["position"], "it is not in the file"
    assert (gate.calibration, gate.confidence) == (written.digest(), {"trend": ((0.0, 0.5), (2.0, 0.9))})
    closed = msgspec.structs.replace(written.classes["trend"], open=False)
    shut = build_gate(builder, msgspec.structs.replace(written, classes={"trend": closed}))
    assert not shut.classes["trend"].open


def test_a_calibration_may_lie_elsewhere_be_absent_or_be_switched_off(
    calibrated: tuple[EngineSettings, Calibration], builder: TokenBuilder, tmp_path: Path
) -> None:
    settings, written = calibrated
    assert load_calibration(replace(settings, calibration="none"), builder) is None
    (tmp_path / CALIBRATION_FILE).rename(tmp_path / "other.json")
    assert load_calibration(settings, builder) is None
    assert load_calibration(replace(settings, calibration=str(tmp_path / "other.json")), builder) == written
    with pytest.raises(ConfigError, match=r"engine\.calibration: .*nowhere\.json: No such file"):
        load_calibration(replace(settings, calibration=str(tmp_path / "nowhere.json")), builder)


def test_a_calibration_of_another_model_is_refused_with_what_differs(
    calibrated: tuple[EngineSettings, Calibration], builder: TokenBuilder, tmp_path: Path
) -> None:
    settings, _ = calibrated
    with pytest.raises(ConfigError, match=r"engine\.calibration = .*dtype is 'bfloat16', calibrated"):
        load_calibration(replace(settings, dtype="bfloat16"), builder)
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    with pytest.raises(ConfigError, match=r"weights_sha256 is [0-9a-f]{12}, calibrated was \w{12}\. ") as error:
        load_calibration(settings, builder)
    assert "engine.calibration = 'none'" in str(error.value)
    assert "dtype" not in str(error.value)


def test_what_the_watch_has_closed_is_remembered_of_that_model_only(
    calibrated: tuple[EngineSettings, Calibration], builder: TokenBuilder, tmp_path: Path
) -> None:
    """Without a calibration, which would refuse another model, as well."""
    settings, gate = replace(calibrated[0], calibration="none"), build_gate(builder)
    risk, board = RiskSettings(state_file=tmp_path / "risk.json"), tmp_path / "board"

    def moved(served: EngineSettings, board: Path = board) -> bool:
        return build_monitor(risk, gate, None, model_identity(served, builder), board).moved

    first = build_monitor(risk, gate, None, model_identity(settings, builder), board)
    first.advance(first.classes["trend"])
    assert moved(settings)
    assert not moved(settings, tmp_path / "another service's board")
    assert not moved(replace(settings, dtype="bfloat16"))
    assert not moved(replace(settings, quantization="int8"))
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    assert not moved(settings)
