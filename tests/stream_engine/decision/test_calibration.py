"""The calibration file: what it is bound to, and the curve that it carries."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest

from stream_engine.decision.calibration import (
    CALIBRATION_FILE,
    Calibration,
    CalibrationError,
    ClassCalibration,
    Identity,
    agreement,
    mismatch,
)
from stream_engine.model.hub.weights import weights_sha256

KNOTS = ((0.0, 0.5), (1.0, 0.9), (4.0, 0.99))

IDENTITY = Identity(
    model="tiny",
    weights_sha256="a" * 64,
    profile_digest="b" * 32,
    prompt="<|user|>...<|assistant|>",
    fast_answers={"trend": {"up": (7,), "down": (8,)}},
    window_bars=32,
    region_bars=64,
    dtype="float32",
    quantization="none",
)


def calibration(tau: float = 1.5) -> Calibration:
    classes = {"trend": ClassCalibration(tau, "certified", True, (), KNOTS)}
    return Calibration(
        identity=IDENTITY, r_max=0.02, delta=0.05, created="2026-01-02T03:04:05Z", series=(), classes=classes
    )


def test_a_file_reads_back_as_it_was_written(tmp_path: Path) -> None:
    written = calibration()
    written.save(tmp_path / CALIBRATION_FILE)
    read = Calibration.load(tmp_path / CALIBRATION_FILE)
    assert read == written
    assert read.digest() == written.digest() != calibration(1.75).digest()
    assert [path.name for path in tmp_path.iterdir()] == [CALIBRATION_FILE]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"version": 2}, "version 2"),
        ({"delta": 1.5}, "delta"),
        ({"classes": {"trend": {"tau": -1.0, "chosen": "", "certified": False}}}, "tau of class 'trend'"),
        ({"classes": {"trend": {"tau": 1, "chosen": "", "certified": 0}}}, "certified"),
        ({"surprise": 1}, "surprise"),
        (
            {"classes": {"trend": {"tau": 1, "chosen": "", "certified": False, "confidence": [[2, 1], [1, 1]]}}},
            "no curve",
        ),
    ],
)
def test_a_file_that_is_not_consistent_is_refused(tmp_path: Path, change: dict[str, object], named: str) -> None:
    content = msgspec.json.decode(msgspec.json.encode(calibration()))
    path = tmp_path / CALIBRATION_FILE
    path.write_bytes(msgspec.json.encode(content | change))
    with pytest.raises(CalibrationError, match=named) as error:
        Calibration.load(path)
    assert str(path) in str(error.value)


def test_a_file_that_is_absent_or_cut_off_is_named(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match=r"nowhere\.json: No such file"):
        Calibration.load(tmp_path / "nowhere.json")
    (tmp_path / "cut.json").write_text("{")
    with pytest.raises(CalibrationError, match=r"cut\.json"):
        Calibration.load(tmp_path / "cut.json")


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        ({"weights_sha256": "c" * 64}, "weights_sha256 is cccccccccccc, calibrated was aaaaaaaaaaaa"),
        ({"dtype": "bfloat16"}, "dtype is 'bfloat16', calibrated was 'float32'"),
        ({"window_bars": 48}, "window_bars is 48, calibrated was 32"),
        ({"fast_answers": {"trend": {"up": (7, 9), "down": (8,)}}}, r"up \[7, 9\], down \[8\], calibrated was"),
    ],
)
def test_what_differs_is_named(change: dict[str, object], phrase: str) -> None:
    assert mismatch(IDENTITY, IDENTITY) == ()
    (found,) = mismatch(IDENTITY, msgspec.structs.replace(IDENTITY, **change))
    assert phrase.replace("\\", "") in found


def test_confidence_is_a_rising_step_curve() -> None:
    gaps = [0.0, 0.99, 1.0, 3.9, 4.0, 1e9]
    assert [agreement(KNOTS, gap) for gap in gaps] == [0.5, 0.5, 0.9, 0.9, 0.99, 0.99]
    assert agreement(((2.0, 0.8),), 1.0) == 0.8
    assert agreement((), 1.0) is None
    assert agreement(KNOTS, math.nan) is None


def test_weights_are_told_apart_by_name_content_and_configuration(tmp_path: Path) -> None:
    found = [weights_sha256(tmp_path)]
    for name, content in (
        ("model.safetensors", "one"),
        ("model.safetensors", "two"),
        ("adapter.safetensors", ""),
        ("config.json", '{"rms_norm_eps": 1e-5}'),
        ("adapter_config.json", '{"lora_alpha": 16}'),
        ("adapter_config.json", '{"lora_alpha": 32}'),
    ):
        (tmp_path / name).write_text(content)
        found.append(weights_sha256(tmp_path))
    assert len(set(found)) == len(found)
    (tmp_path / "MODEL_CARD.md").write_text("a word about it")
    assert weights_sha256(tmp_path) == found[-1]
