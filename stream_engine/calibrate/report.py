"""What a calibration says, for people: tables of the gate, of false accepts' causes and of accuracy."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from rich.console import RenderableType
from rich.table import Table

from stream_engine.calibrate.choose import fired, samples_of, share_right
from stream_engine.calibrate.pairs import UNSURE_GAP
from stream_engine.calibrate.run import CalibrationRun
from stream_engine.decision.calibration import ClassCalibration
from stream_engine.util.intervals import wilson


def report(outcome: CalibrationRun) -> Iterator[RenderableType]:
    """Tables and sentences, in reading order."""
    calibration, generic = outcome.calibration, outcome.generic
    entry = calibration.classes[generic]
    yield _fast_set(outcome)
    yield _gate(entry, generic, calibration.delta)
    yield from _promises(outcome, entry)
    yield _causes(outcome, generic)
    yield _accuracy(outcome)


def _fast_set(outcome: CalibrationRun) -> Table:
    table = _table(f"Fast-answer set: {_count(outcome)} tokens", "class", "word", "tokens")
    for kind, words in outcome.forms.items():
        for at, (word, forms) in enumerate(words.items()):
            table.add_row("" if at else kind, word, ", ".join(f"{form.text!r} ({form.token})" for form in forms))
    return table


def _table(title: str, *columns: str) -> Table:
    return Table(*columns, title=title, title_justify="left", title_style="bold")


def _count(outcome: CalibrationRun) -> int:
    return sum(len(forms) for words in outcome.forms.values() for forms in words.values())


def _gate(entry: ClassCalibration, generic: str, delta: float) -> Table:
    title = f"{generic}, from the generic header: tau = {entry.tau:g}{'' if entry.open else ' (closed)'}"
    table = _table(title, "sample", "windows", "coverage", "differ", "rate, 95 %", f"budget at {delta:g}")
    for measured in entry.measured:
        table.add_row(
            measured.sample,
            str(measured.windows),
            f"{measured.coverage:.4f}",
            f"{measured.false_accepts} of {measured.fired}",
            f"{measured.rate:.4f}\n{measured.rate_low:.4f}-{measured.rate_high:.4f}",
            f"{measured.budget:.4f}",
        )
    return table


def _promises(outcome: CalibrationRun, entry: ClassCalibration) -> Iterator[str]:
    calibration = outcome.calibration
    smallest, provable = ("none" if tau is None else f"{tau:g}" for tau in (entry.smallest, entry.provable))
    yield (
        f"smallest tau with a measured rate <= {calibration.r_max:g}: {smallest}; smallest that is certified: "
        f"{provable}. tau: {entry.chosen}."
    )
    if entry.certified:
        yield (
            "Guarantee: for windows exchangeable with those of the certifying sample, asked in the listed "
            "wordings, the probability that the true false-accept rate exceeds "
            f"{calibration.r_max:g} is at most {calibration.delta:g}."
        )
    else:
        yield f"No guarantee: the certifying sample does not show a rate <= {calibration.r_max:g} at this tau."
    yield (
        f"budget: the smallest rate that a sample can certify at level {calibration.delta:g}; where the sample "
        "took part in the choice of tau, after a correction for the number of taus."
    )
    for chosen in outcome.chosen.values():
        for sample, error in chosen.calibration_error.items():
            yield f"Calibration error of confidence on {sample}: {error:.4f}."


def _causes(outcome: CalibrationRun, generic: str) -> Table:
    """False accepts at tau, split by whether the full path is itself unsure."""
    entry = outcome.calibration.classes[generic]
    title = f"False accepts: full path itself unsure (its gap < {UNSURE_GAP:g}), or pre-commitment divergence"
    table = _table(title, "sample", "false accepts", "unsure", "divergence")
    for sample in samples_of(outcome.pairs):
        mine = outcome.pairs.filter((pl.col("class") == generic) & (pl.col("sample") == sample))
        causes = fired(mine, entry.tau)["cause"].drop_nulls()
        counts = [int((causes == cause).sum()) for cause in ("unsure", "divergence")]
        table.add_row(sample, str(len(causes)), *map(str, counts))
    return table


def _accuracy(outcome: CalibrationRun) -> Table:
    """Right answers against the numeric truth, by class and sample: all, at tau, and at 95 % coverage."""
    title = "Right against the numeric truth: all windows, those past tau, the 95 % with the largest gaps"
    table = _table(title, "class", "sample", "n", "all", "coverage", "past tau", "at 0.95")
    for name, entry in outcome.calibration.classes.items():
        for sample in samples_of(outcome.pairs):
            mine = outcome.pairs.filter((pl.col("class") == name) & (pl.col("sample") == sample))
            served = fired(mine, entry.tau)
            table.add_row(
                name,
                sample,
                str(len(mine)),
                _share(*share_right(mine)),
                f"{len(served) / len(mine):.4f}" if len(mine) else "-",
                _with_interval(*share_right(served)),
                _share(*share_right(_surest(mine, 0.95))),
            )
    return table


def _surest(pairs: pl.DataFrame, share: float) -> pl.DataFrame:
    """That share of the pairs, with the largest gaps."""
    return pairs.sort("gap", descending=True).head(round(share * len(pairs)))


def _share(right: int, judged: int) -> str:
    return f"{right / judged:.4f}" if judged else "-"


def _with_interval(right: int, judged: int) -> str:
    low, high = wilson(right, judged)
    return f"{_share(right, judged)}\n{low:.3f}-{high:.3f}" if judged else "-"
