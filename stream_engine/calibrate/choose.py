"""From pairs to a gate: the curve of each class on each sample, the tau that is chosen, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from stream_engine.calibrate.confidence import calibration_error, fit_confidence
from stream_engine.calibrate.selection import (
    Grid,
    Point,
    certify,
    grid_of,
    smallest_certifiable,
    smallest_within,
    sweep,
)
from stream_engine.decision.calibration import ClassCalibration, Knots, MeasuredGate
from stream_engine.model.profile import AnswerClass, Profile
from stream_engine.util.intervals import wilson

PILOT, SIMULATED = "pilot", "simulated"
RECORDED, EARLIER, LATER = "recorded", "earlier half", "later half"
CALIBRATING = (SIMULATED, RECORDED, EARLIER)
"""Samples that take part in the choice; the pilot only fixes the grid, and the later half is only reported."""

BY_CONSTRUCTION = "own distribution only: no false accept is possible"


@dataclass(frozen=True, slots=True)
class Demands:
    """What tau has to meet: the budget ``r_max`` of the false-accept rate, at level ``delta`` where it is
    certified, and, where ``right`` is above 0, that share of fired answers right on the calibrating windows."""

    r_max: float
    delta: float
    right: float = 0.0


@dataclass(frozen=True, slots=True)
class Chosen:
    """One class: its entry in the file, its grid, and the calibration error of its confidence by sample (where it
    was not fitted on that sample)."""

    calibration: ClassCalibration
    grid: Grid
    calibration_error: Mapping[str, float]


def choose(pairs: pl.DataFrame, profile: Profile, demands: Demands) -> dict[str, Chosen]:
    """The gate of every class that has pairs."""
    chosen = {}
    for answer_class in profile.classes:
        mine = pairs.filter(pl.col("class") == answer_class.name)
        if not mine.is_empty():
            chosen[answer_class.name] = (
                _generic(mine, demands) if answer_class.generic else _exact(mine, answer_class, profile)
            )
    return chosen


def samples_of(pairs: pl.DataFrame) -> list[str]:
    """Those that are reported: all but the pilot, in order of appearance."""
    return [name for name in pairs["sample"].unique(maintain_order=True).to_list() if name != PILOT]


def points_of(pairs: pl.DataFrame, taus: Sequence[float]) -> list[Point]:
    """The false-accept curve (Eq. 13, Eq. 14) of one class's pairs."""
    return sweep(pairs["gap"].to_numpy(), pairs["in_set"].to_numpy(), pairs["differs"].to_numpy(), taus)


def fired(pairs: pl.DataFrame, tau: float) -> pl.DataFrame:
    """The pairs at which the gate fires (Eq. 12)."""
    return pairs.filter(pl.col("in_set") & (pl.col("gap") > tau))


def share_right(pairs: pl.DataFrame) -> tuple[int, int]:
    """Right fast answers, and those that have a truth."""
    judged = pairs["right"].drop_nulls()
    return int(judged.sum()), len(judged)


def _generic(pairs: pl.DataFrame, demands: Demands) -> Chosen:
    """The class that the generic header answers: its fast answers may differ from the full path's."""
    pilot = pairs.filter(pl.col("sample") == PILOT)
    grid = grid_of(pilot.filter(pl.col("in_set"))["gap"])
    curves = {name: points_of(pairs.filter(pl.col("sample") == name), grid.taus) for name in samples_of(pairs)}
    calibrating = [name for name in CALIBRATING if name in curves]
    served = pairs.filter(pl.col("sample").is_in(calibrating))
    certified = certify(curves[calibrating[0]], grid, demands.r_max, demands.delta)
    allowed = [
        tau
        for at, tau in enumerate(grid.taus)
        if all(_within(curves[name][at], demands.r_max) for name in calibrating)
        and _is_right(fired(served, tau), demands.right)
        and (certified is None or tau >= certified.tau)
    ]
    tau = min(allowed, default=grid.taus[-1])
    # What lies above the sequence's start was not tested.
    sure = bool(allowed) and certified is not None and tau <= grid.start
    measured = tuple(
        _measured(name, pairs.filter(pl.col("sample") == name), tau, demands, grid, name not in calibrating)
        for name in curves
    )
    knots = _confidence(pairs, calibrating)
    how = _how(calibrating, demands, sure) if allowed else "no tau meets the demands: the fast path stays closed"
    within = smallest_within(points_of(served, grid.taus), demands.r_max)
    entry = ClassCalibration(
        tau=tau,
        chosen=how,
        certified=sure,
        measured=measured,
        confidence=knots,
        open=bool(allowed),
        smallest=within.tau if within else None,
        provable=certified.tau if certified else None,
    )
    errors = {
        name: _calibration_error(knots, pairs.filter(pl.col("sample") == name))
        for name in curves
        if name not in calibrating
    }
    return Chosen(entry, grid, errors)


def _exact(pairs: pl.DataFrame, answer_class: AnswerClass, profile: Profile) -> Chosen:
    """A class that is answered fast only from a question's own distribution: only the set test applies."""
    grid = grid_of(pairs.filter(pl.col("in_set"))["gap"])
    measured = []
    for name in samples_of(pairs):
        mine = pairs.filter(pl.col("sample") == name)
        served = mine.filter(pl.col("in_set"))
        right, judged = share_right(served)
        measured.append(
            MeasuredGate(
                sample=name,
                windows=len(mine),
                fired=len(served),
                false_accepts=0,
                coverage=len(served) / len(mine),
                rate=0.0,
                rate_low=0.0,
                rate_high=0.0,
                budget=0.0,
                right=right / judged if judged else 0.0,
            )
        )
    entry = ClassCalibration(profile.tau[answer_class.name], BY_CONSTRUCTION, True, tuple(measured))
    return Chosen(entry, grid, {})


def _measured(
    name: str, pairs: pl.DataFrame, tau: float, demands: Demands, grid: Grid, held_out: bool
) -> MeasuredGate:
    (point,) = points_of(pairs, [tau])
    low, high = point.rate_interval
    right, judged = share_right(fired(pairs, tau))
    # A tau that was chosen among those of the grid on this very sample is due a correction for their number.
    level = demands.delta if held_out else demands.delta / len(grid.taus)
    return MeasuredGate(
        sample=name,
        windows=point.windows,
        fired=point.fired,
        false_accepts=point.errors,
        coverage=point.coverage,
        rate=point.rate,
        rate_low=low,
        rate_high=high,
        budget=smallest_certifiable(point.fired, point.errors, level),
        right=right / judged if judged else 0.0,
    )


def _within(point: Point, r_max: float) -> bool:
    return point.fired > 0 and point.rate <= r_max


def _is_right(pairs: pl.DataFrame, share: float) -> bool:
    right, judged = share_right(pairs)
    return right >= share * judged


def _how(calibrating: Sequence[str], demands: Demands, sure: bool) -> str:
    how = f"smallest tau within the budget on: {', '.join(calibrating)}"
    if demands.right:
        how = f"{how}; and right in {demands.right:g} of fired answers"
    return f"{how}; certified on: {calibrating[0]}" if sure else f"{how}; not certified"


def _confidence(pairs: pl.DataFrame, calibrating: Sequence[str]) -> Knots:
    """The most careful of the calibrating samples' curves: on recorded series the model may agree less."""
    curves = []
    for name in calibrating:
        served = pairs.filter(pl.col("in_set") & (pl.col("sample") == name))
        curves.append(fit_confidence(served["gap"].to_numpy(), ~served["differs"].to_numpy()))
    return lower_envelope([curve for curve in curves if curve])


def lower_envelope(curves: Sequence[Knots]) -> Knots:
    """The smallest of several rising step curves, as one."""
    steps: list[tuple[float, float]] = []
    at = [0] * len(curves)
    for gap in sorted({gap for curve in curves for gap, _ in curve}):
        for number, curve in enumerate(curves):
            while at[number] + 1 < len(curve) and curve[at[number] + 1][0] <= gap:
                at[number] += 1
        chance = min(curve[position][1] for curve, position in zip(curves, at, strict=True))
        if not steps or chance > steps[-1][1]:
            steps.append((gap, chance))
    return tuple(steps)


def _calibration_error(knots: Knots, pairs: pl.DataFrame) -> float:
    served = pairs.filter(pl.col("in_set"))
    return calibration_error(knots, served["gap"].to_numpy(), np.logical_not(served["differs"].to_numpy()))


def curve_of(pairs: pl.DataFrame, chosen: Mapping[str, Chosen]) -> pl.DataFrame:
    """The data of the plots: coverage, false accepts and their causes, and accuracy, by class, sample and tau."""
    rows = []
    for name, choice in chosen.items():
        for sample in samples_of(pairs):
            mine = pairs.filter((pl.col("class") == name) & (pl.col("sample") == sample))
            for point in points_of(mine, choice.grid.taus):
                served = fired(mine, point.tau)
                right, judged = share_right(served)
                rows.append(
                    {
                        "class": name,
                        "sample": sample,
                        "tau": point.tau,
                        "windows": point.windows,
                        "fired": point.fired,
                        "coverage": point.coverage,
                        "coverage_low": point.coverage_interval[0],
                        "coverage_high": point.coverage_interval[1],
                        "false_accepts": point.errors,
                        "unsure": int((served["cause"] == "unsure").sum()),
                        "divergence": int((served["cause"] == "divergence").sum()),
                        "rate": point.rate,
                        "rate_low": point.rate_interval[0],
                        "rate_high": point.rate_interval[1],
                        "judged": judged,
                        "right": right / judged if judged else None,
                        "right_low": wilson(right, judged)[0],
                        "right_high": wilson(right, judged)[1],
                    }
                )
    return pl.DataFrame(rows, infer_schema_length=None)
