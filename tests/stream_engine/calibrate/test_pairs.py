"""The columns of the pairs: what the fast path and the full path say, and what is true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import polars as pl
import pytest

from stream_engine.calibrate.pairs import SCHEMA, pairs_of
from stream_engine.calibrate.replay import Moment, Replay
from stream_engine.data.series import Series
from stream_engine.data.truth import truths
from stream_engine.model.render.builder import TokenBuilder


@pytest.fixture
def moments(make_bench: Callable[..., Any], series: Series) -> list[Moment]:
    return list(Replay(make_bench().engine).recorded(series, most=12))


@pytest.fixture
def frame(builder: TokenBuilder, moments: list[Moment]) -> pl.DataFrame:
    return pairs_of(builder, [("recorded", moment) for moment in moments])


def test_one_row_for_each_window_and_class_as_documented(builder: TokenBuilder, frame: pl.DataFrame) -> None:
    assert frame.schema == pl.Schema(SCHEMA)
    assert len(frame) == 12 * len(builder.profile.classes)
    assert frame["event_time"].dtype == pl.Datetime("us", "UTC")


def test_the_generic_classes_fast_columns_are_the_headers(
    builder: TokenBuilder, moments: list[Moment], frame: pl.DataFrame
) -> None:
    generic = builder.profile.generic_class
    rows = frame.filter(pl.col("class") == generic.name).rows(named=True)
    for moment, row in zip(moments, rows, strict=True):
        kind, word = builder.answers[moment.header.top1]
        assert row["gap"] == moment.header.gap
        assert row["in_set"] is (kind == generic.name)
        assert row["fast_answer"] == (word if kind == generic.name else "other")
        assert row["full_gap"] == moment.answers[generic.name].gap
        assert row["differs"] is (row["fast_answer"] != row["full_answer"])
        assert (row["cause"] is not None) is row["differs"]
        assert not row["exact"]
    assert any(row["differs"] for row in rows), "the fake model's header and full path are unlike each other"
    assert any(row["full_answer"] == "other" for row in rows), "a word of another class is no answer"


def test_other_classes_repeat_the_full_path_and_never_differ(builder: TokenBuilder, frame: pl.DataFrame) -> None:
    rows = frame.filter(pl.col("class") != builder.profile.generic_class.name)
    assert rows["exact"].all()
    assert not rows["differs"].any()
    assert (rows["gap"] == rows["full_gap"]).all()
    assert (rows["right"] == rows["full_right"]).all()


def test_the_truth_is_the_statistic_of_the_bars_asked_about(
    builder: TokenBuilder, moments: list[Moment], frame: pl.DataFrame
) -> None:
    for moment in moments:
        (right,) = truths(builder.profile.classes, [moment.window])
        rows = frame.filter((pl.col("window") == moment.number) & pl.col("truth").is_not_null())
        assert dict(rows.select("class", "truth").iter_rows()) == right
    assert (frame["right"] == (frame["fast_answer"] == frame["truth"])).all()


def test_no_windows_make_an_empty_frame_of_the_same_form(builder: TokenBuilder) -> None:
    empty = pairs_of(builder, [])
    assert empty.schema == pl.Schema(SCHEMA)
    assert empty.is_empty()


@pytest.mark.parametrize(
    ("full_gap", "cause"), [(0.0, "unsure"), (1.99, "unsure"), (2.0, "divergence"), (2.01, "divergence")]
)
def test_a_full_path_is_unsure_below_two_logits(
    builder: TokenBuilder, moments: list[Moment], full_gap: float, cause: str
) -> None:
    """Its first choice is then less than e^2 times as likely as its second: the paper's reference threshold."""
    name = builder.profile.generic_class.name
    differing = [
        replace(
            moment, answers={name: msgspec.structs.replace(moment.answers[name], answer="other", gap=full_gap)}
        )
        for moment in moments
        if builder.answers[moment.header.top1][0] == name
    ]
    assert differing, "the header says a word of the class"
    causes = pairs_of(builder, [("recorded", moment) for moment in differing])["cause"]
    assert causes.to_list() == [cause] * len(differing)
