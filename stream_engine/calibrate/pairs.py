"""The pairs of a calibration (HW-3): what the fast path would say at a decision point, and what the full path
says.

One row for each window and class. The generic header answers one class (trend): there the fast answer is that
of the header, which knows nothing of the question, and the full path's is that of data, question, close and
header, so the two may differ. A question of another class is answered fast only from its own distribution, as a
standing or a promoted question: the token sequence is the full path's to the last token, so the fast columns
repeat the full ones, no false accept is possible, and the row measures the answer against the truth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from stream_engine.answering.answers import OTHER
from stream_engine.calibrate.replay import Moment
from stream_engine.data.truth import truths
from stream_engine.model.profile import AnswerClass
from stream_engine.model.render.rendering import Builder

UNSURE_GAP = 2.0
"""A full path whose own gap is below this is itself unsure: its first choice is less than e^2 = 7.4 times as
likely as its second. It is the paper's reference threshold."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the pairs: its type, and what it holds."""

    kind: type[pl.DataType] | pl.DataType
    meaning: str


COLUMNS: dict[str, Column] = {
    "sample": Column(pl.String, "pilot, simulated, recorded, or earlier half, later half of the recorded series"),
    "series": Column(pl.String, "name of the series"),
    "instrument": Column(pl.String, "its symbol"),
    "window": Column(pl.Int64, "number of the window in its series, from 0"),
    "fill": Column(pl.Int64, "bars in the region"),
    "version": Column(pl.Int64, "the session's version"),
    "event_time": Column(pl.Datetime("us", "UTC"), "time of the newest bar"),
    "class": Column(pl.String, "class of the question"),
    "question": Column(pl.String, "its wording: the class's listed ones in turn"),
    "exact": Column(pl.Boolean, "the fast answer is of the question's own distribution, so it is the full path's"),
    "fast_answer": Column(pl.String, "word of the pre-positioned top-1, or other"),
    "in_set": Column(pl.Boolean, "top-1 is a fast answer of this class"),
    "gap": Column(pl.Float64, "pre-positioned top-1 less top-2, in logits (Eq. 11)"),
    "full_answer": Column(pl.String, "word of the full path's answer, or other"),
    "full_gap": Column(pl.Float64, "the full path's own gap, in logits"),
    "differs": Column(pl.Boolean, "the fast answer is not the full path's: a false accept where the gate fires"),
    "cause": Column(pl.String, "of a difference: unsure (full_gap below 2 logits) or divergence; else null"),
    "truth": Column(pl.String, "the right word by the class's statistic; null where the window has none"),
    "right": Column(pl.Boolean, "the fast answer is the truth"),
    "full_right": Column(pl.Boolean, "the full path's answer is the truth"),
}
SCHEMA = {name: column.kind for name, column in COLUMNS.items()}


def pairs_of(builder: Builder, moments: Iterable[tuple[str, Moment]]) -> pl.DataFrame:
    """The rows of moments, each with the name of its sample."""
    seen = list(moments)
    right = truths(builder.profile.classes, [moment.window for _, moment in seen])
    rows = [
        _row(builder, sample, moment, answer_class, truth.get(answer_class.name))
        for (sample, moment), truth in zip(seen, right, strict=True)
        for answer_class in builder.profile.classes
        if answer_class.name in moment.answers
    ]
    frame = pl.DataFrame(rows, schema={name: SCHEMA[name] for name in _GIVEN}, orient="row")
    differs = pl.col("fast_answer") != pl.col("full_answer")
    cause = pl.when(pl.col("full_gap") < UNSURE_GAP).then(pl.lit("unsure")).otherwise(pl.lit("divergence"))
    return frame.with_columns(
        differs=differs,
        cause=pl.when(differs).then(cause),
        right=pl.col("fast_answer") == pl.col("truth"),
        full_right=pl.col("full_answer") == pl.col("truth"),
    ).select(list(SCHEMA))


_GIVEN = [name for name in SCHEMA if name not in {"differs", "cause", "right", "full_right"}]


def _row(
    builder: Builder, sample: str, moment: Moment, answer_class: AnswerClass, truth: str | None
) -> Sequence[Any]:
    """In the order of `_GIVEN`."""
    answer = moment.answers[answer_class.name]
    full = answer.answer if answer.class_ == answer_class.name else OTHER
    fast, gap = full, answer.gap
    if answer_class.generic:
        kind, word = builder.answers.get(moment.header.top1, (OTHER, OTHER))
        fast, gap = word if kind == answer_class.name else OTHER, moment.header.gap
    return (
        sample,
        moment.series,
        moment.symbol,
        moment.number,
        moment.fill,
        moment.version,
        moment.event_time_us,
        answer_class.name,
        answer.question,
        not answer_class.generic,
        fast,
        fast != OTHER,
        gap,
        full,
        answer.gap,
        truth,
    )
