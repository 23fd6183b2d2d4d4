"""Calibrations as tests need them: of a model that nobody has."""

from __future__ import annotations

from typing import Any

from stream_engine.decision.calibration import Calibration, ClassCalibration, Identity

IDENTITY = Identity(
    model="m",
    weights_sha256="0" * 64,
    profile_digest="",
    prompt="",
    fast_answers={},
    window_bars=32,
    region_bars=64,
    dtype="float32",
    quantization="none",
)


def calibration(classes: dict[str, ClassCalibration], **changes: Any) -> Calibration:
    """One of ``IDENTITY`` without series."""
    values: dict[str, Any] = {
        "identity": IDENTITY, "r_max": 0.05, "delta": 0.1, "created": "2026-01-02T00:00:00Z", "series": (),
    }  # fmt: skip
    return Calibration(classes=classes, **(values | changes))
