"""Judging through the engine: windows apart, every fill, the answers that a client would get."""

from __future__ import annotations

import numpy as np
import pytest

from stream_engine.config.engine import EngineSettings
from stream_engine.data.series import Series
from stream_engine.data.simulate import simulate
from stream_engine.model.profile import EMBEDDED, Profile
from stream_engine.process.build import build_engine
from stream_engine.training.served import HEADER, ServedAnswer, baseline, line, report, serve_series

PROFILE = Profile.load(EMBEDDED)


def test_a_gate_line_counts_what_fires_what_is_right_and_what_differs() -> None:
    served = [
        ServedAnswer(name="x", kind=HEADER, fill=32, word=word, gap=gap, right="up", ceiling="up", full=full)
        for word, gap, full in (("up", 3.0, "up"), ("down", 2.5, "up"), ("", 9.0, "up"), ("up", 2.0, "down"))
    ]
    assert "n     4  coverage 0.5000  right 0.5000" in line(served, 2.0)
    assert line(served, 2.0).endswith("false accepts 1/2")
    assert (
        baseline(served, PROFILE.generic_class) == "up 1.000 down 0.000 flat 0.000  majority 1.000  ceiling 1.000"
    )


@pytest.fixture(scope="module")
def served() -> list[ServedAnswer]:
    engine = build_engine(EngineSettings(threads=1))
    bars = simulate(np.random.default_rng(3), 1, 33 * 12).series(0)
    return serve_series(engine, Series("simulated", "X", bars), 100)


def test_every_commit_is_judged_for_every_class_at_another_fill(served: list[ServedAnswer]) -> None:
    header = [asking for asking in served if asking.kind == HEADER]
    assert [asking.fill for asking in header] == list(range(32, 44))
    assert {asking.kind for asking in served} >= {HEADER, "trend"}
    assert all(answer_class.full in (*PROFILE.generic_class.words, "") for answer_class in header)
    trend = [asking for asking in served if asking.kind == "trend"]
    assert [asking.full for asking in header] == [asking.word for asking in trend]
    assert [asking.right for asking in header] == [asking.right for asking in trend]
    assert np.mean([asking.right == asking.ceiling for asking in header]) >= 0.9


def test_the_report_has_a_table_of_every_class(served: list[ServedAnswer]) -> None:
    text = report(served, PROFILE.classes, dict(PROFILE.tau), PROFILE.window_bars)
    assert "header (trend), over tau:" in text
    assert all(f"{answer_class.name} ({answer_class.name}), over tau:" in text for answer_class in PROFILE.classes)
    assert "56..64 bars" in text
