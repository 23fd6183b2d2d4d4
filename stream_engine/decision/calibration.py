"""A calibration: the gate's thresholds of one model, what they were measured on, and how far they can be trusted.

The file lies beside the model as ``calibration.json`` and names all that a threshold depends on: a change of
weights, prompt, answer words, window or precision makes it another model's, and the engine refuses to start on it.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

import msgspec

from stream_engine.util.atomic_file import write_atomically

CALIBRATION_FILE = "calibration.json"

Knots = tuple[tuple[float, float], ...]
"""Steps of a rising curve: from each gap (logits, ascending) on, that probability (0 to 1)."""


class CalibrationError(ValueError):
    """The file cannot be used as a calibration; the message says why."""


class Identity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a gap depends on. ``fast_answers`` maps class -> word -> the token ids that stand for it;
    ``prompt`` is the readable text around the data."""

    model: str
    weights_sha256: str
    profile_digest: str
    prompt: str
    fast_answers: dict[str, dict[str, tuple[int, ...]]]
    window_bars: int
    region_bars: int
    dtype: str
    quantization: str

    def digest(self) -> str:
        """Hash of all of it (hex, 32 digits)."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:32]


class SeriesFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One series that windows were taken from: hash of its bars, number of windows, span in event time (RFC 3339;
    None for simulated series)."""

    name: str
    sha256: str
    windows: int
    first: str | None = None
    last: str | None = None


class MeasuredGate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The gate of one class at its tau on one sample.

    ``false_accepts`` are fast answers that differ from the full path's, ``rate`` their share of those that
    fired, with a 95 % Wilson interval; ``budget`` is the smallest false-accept rate that this sample can certify
    at the file's ``delta``; ``right`` is the share of fired answers that the numeric truth agrees with.
    """

    sample: str
    windows: int
    fired: int
    false_accepts: int
    coverage: float
    rate: float
    rate_low: float
    rate_high: float
    budget: float
    right: float


class ClassCalibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One class: its threshold (logits), how it was chosen, the figures, and the probability of agreeing with the
    full path over the gap (no steps where the generic header does not answer the class).

    ``certified`` says that P(true rate > r_max) <= delta holds for windows like those of the certifying sample.
    ``smallest`` is the smallest tau with a measured rate within the budget, the paper's choice; ``provable`` the
    smallest that can be certified; each None where there is none. ``open`` is False where no tau met the demands.
    """

    tau: float
    chosen: str
    certified: bool
    measured: tuple[MeasuredGate, ...] = ()
    confidence: Knots = ()
    open: bool = True
    smallest: float | None = None
    provable: float | None = None


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file; ``created`` is RFC 3339."""

    identity: Identity
    r_max: float
    delta: float
    created: str
    series: tuple[SeriesFacts, ...]
    classes: dict[str, ClassCalibration]
    version: int = 1

    def __post_init__(self) -> None:
        if self.version != 1:
            raise ValueError(f"version {self.version} of the file's form is not known here")
        if not (0 < self.r_max < 1 and 0 < self.delta < 1):
            raise ValueError("r_max and delta must lie between 0 and 1")
        for name, entry in self.classes.items():
            if not (math.isfinite(entry.tau) and entry.tau >= 0):
                raise ValueError(f"tau of class {name!r} is {entry.tau!r}")
            gaps = [gap for gap, _ in entry.confidence]
            if gaps != sorted(gaps) or not all(0 <= chance <= 1 for _, chance in entry.confidence):
                raise ValueError(f"confidence of class {name!r} is no curve of probabilities over the gap")

    @classmethod
    def load(cls, path: Path) -> Calibration:
        """Raises CalibrationError that names the file, where it cannot be read or is not consistent."""
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except OSError as error:
            raise CalibrationError(f"{path}: {error.strerror}") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CalibrationError(f"{path}: {error}") from error

    def save(self, path: Path) -> None:
        """A reader sees the old file or the new one. Raises OSError."""
        write_atomically(path, msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")

    def digest(self) -> str:
        """Hash of the whole content (hex, 32 digits)."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:32]


def mismatch(calibration: Identity, found: Identity) -> tuple[str, ...]:
    """What of ``found``, the model as it is served, is not as it was calibrated: one phrase each."""
    return tuple(
        f"{name} is {_short(getattr(found, name))}, calibrated was {_short(getattr(calibration, name))}"
        for name in Identity.__struct_fields__
        if getattr(calibration, name) != getattr(found, name)
    )


def agreement(knots: Knots, gap: float) -> float | None:
    """Calibrated probability (0 to 1) that a fast answer with this gap is the full path's; None without steps."""
    if not knots or not math.isfinite(gap):
        return None
    at = bisect_right(knots, (gap, math.inf)) - 1
    return knots[max(at, 0)][1]


def _short(value: object) -> str:
    if isinstance(value, str) and len(value) == 64:
        return value[:12]
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_words(words)}" for name, words in value.items())
    return repr(value)


def _words(words: dict[str, Sequence[int]]) -> str:
    return ", ".join(f"{word} {list(tokens)}" for word, tokens in words.items())
