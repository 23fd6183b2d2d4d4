"""The labels by hand-made windows, and the formulas against plain numpy."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from stream_engine.data.statistics import labels, right_words, statistics, values
from stream_engine.model.profile import EMBEDDED, Profile

CLASSES = Profile.load(EMBEDDED).classes
NAMES = tuple(statistics(32))
WORDS = {answer_class.name: answer_class.words for answer_class in CLASSES}


def value(name: str, closes: np.ndarray, volumes: np.ndarray | None = None) -> np.ndarray:
    return values(closes, np.ones_like(closes) if volumes is None else volumes, [name])[name]


def word(name: str, closes: np.ndarray, volumes: np.ndarray | None = None) -> str:
    found = labels(closes, np.ones_like(closes) if volumes is None else volumes, [name])[name]
    return WORDS[name][int(found.index)]


def zigzag(drift: float, bars: int = 33) -> np.ndarray:
    """Differences drift + 1, drift - 1, ...: mean `drift`, an even number of them."""
    steps = drift + np.array([1.0, -1.0] * ((bars - 1) // 2))
    return 10.0 + np.concatenate([[0.0], np.cumsum(steps)])


def test_the_profile_names_these_statistics() -> None:
    assert set(WORDS) <= set(NAMES)


def test_formulas_agree_with_numpy() -> None:
    rng = np.random.default_rng(0)
    closes, volumes = rng.normal(size=(3, 5, 32)).cumsum(axis=-1), rng.exponential(size=(3, 5, 32))
    moves = np.diff(closes)
    s = moves.std(axis=-1, ddof=1)
    change = closes[..., -1] - closes[..., 0]
    z_early = (closes[..., 15] - closes[..., 0]) / (s * np.sqrt(15))
    z_late = (closes[..., 31] - closes[..., 16]) / (s * np.sqrt(15))
    low, high = closes.min(axis=-1), closes.max(axis=-1)
    expected = {
        "trend": change / (s * np.sqrt(31)),
        "position": (closes[..., -1] - low) / (high - low),
        "momentum": (z_late - z_early) * np.sign(change),
        "volatility": np.log2(moves[..., 16:].std(axis=-1, ddof=1) / moves[..., :16].std(axis=-1, ddof=1)),
        "last_move": moves[..., -1] / s,
        "volume": np.log2(volumes[..., -8:].mean(axis=-1) / volumes[..., :24].mean(axis=-1)),
    }
    found = values(closes, volumes, NAMES)
    assert list(found) == list(expected)
    for name, answers in expected.items():
        assert found[name] == pytest.approx(answers), name


def test_the_expressions_serve_a_rolling_frame_too() -> None:
    rng = np.random.default_rng(0)
    closes = rng.normal(size=40).cumsum()
    frame = pl.DataFrame({"at": range(40), "close": closes, "volume": np.ones(40)})
    rolled = frame.rolling("at", period="32i").agg(z=statistics(32)["trend"].value)["z"].to_numpy()[31:]
    windows = np.lib.stride_tricks.sliding_window_view(closes, 32)
    assert rolled == pytest.approx(value("trend", windows))


@pytest.mark.parametrize(("drift", "expected"), [(0.2, "up"), (-0.2, "down"), (0.05, "flat"), (0.0, "flat")])
def test_trend_follows_the_drift(drift: float, expected: str) -> None:
    assert word("trend", zigzag(drift)) == expected


def test_labels_are_the_same_at_any_price_level_and_scale() -> None:
    rng = np.random.default_rng(0)
    closes, volumes = rng.normal(size=(50, 32)).cumsum(axis=1), rng.exponential(size=(50, 32))
    expected = labels(closes, volumes, NAMES)
    for moved in (closes - 1000.0, closes * 1e-6, closes * 100.0 + 37.0):
        found = labels(moved, volumes * 1e6, NAMES)
        assert all(np.array_equal(found[name].index, expected[name].index) for name in NAMES)
    mirrored = labels(-closes, volumes, NAMES)
    for name in ("trend", "last_move"):
        assert np.array_equal(mirrored[name].index, np.array([1, 0, 2])[expected[name].index])


def test_windows_without_deviation_have_the_quiet_words() -> None:
    for closes in (np.full(32, 7.0), np.full(32, 0.0), np.full(32, 0.1)):
        quiet = ("flat", "middle", "steady", "steady", "unchanged")
        assert tuple(word(name, closes) for name in NAMES[:5]) == quiet
    line = np.linspace(1.0, 1.1, 32)
    assert [word(name, line) for name in ("trend", "position", "volatility")] == ["flat", "high", "steady"]


@pytest.mark.parametrize(
    ("last", "expected"),
    [(0.0, "low"), (0.9, "low"), (1.0, "middle"), (1.9, "middle"), (2.0, "middle"), (2.1, "high"), (3.0, "high")],
)
def test_position_is_the_third_of_the_range_and_an_edge_lies_between(last: float, expected: str) -> None:
    for scale in (1.0, 0.1, 1.1e-5):
        assert word("position", 5.0 + scale * np.array([0.0, 3.0, 1.0, last])) == expected


def test_momentum_compares_the_halves_along_the_move() -> None:
    speeding = np.concatenate([zigzag(0.0, 17)[:16], zigzag(0.9, 17)[:16]])
    speeding[16:] += speeding[15] - speeding[16]
    assert word("momentum", speeding) == "accelerating"
    assert word("momentum", -speeding) == "accelerating"
    assert word("momentum", speeding[::-1]) == "fading"
    assert value("momentum", speeding[::-1]) == pytest.approx(-value("momentum", speeding))
    assert word("momentum", zigzag(0.2, 33)[:32]) == "steady"


def test_volatility_compares_the_halves_and_stillness_is_the_extreme() -> None:
    still, moving = np.zeros(15), np.array([1.0, -1.0] * 8)
    wilder = np.cumsum(np.concatenate([[0.0], moving * 0.5, moving[:15]]))
    assert word("volatility", wilder) == "rising"
    assert word("volatility", -wilder[::-1]) == "falling"
    assert word("volatility", np.cumsum(np.concatenate([[0.0], moving, still]))) == "falling"
    assert word("volatility", np.cumsum(np.concatenate([[0.0], still, [0.0], moving[:15]]))) == "rising"
    assert value("volatility", np.cumsum(np.concatenate([[0.0], moving, still]))) == -np.inf
    assert word("volatility", zigzag(0.0, 33)[:32]) == "steady"


@pytest.mark.parametrize(
    ("move", "expected"), [(1.0, "up"), (-1.0, "down"), (0.1, "unchanged"), (0.0, "unchanged")]
)
def test_last_move_is_measured_in_deviations(move: float, expected: str) -> None:
    closes = zigzag(0.0, 33)[:31]
    assert word("last_move", np.append(closes, closes[-1] + move)) == expected


def test_volume_compares_the_last_quarter_with_the_rest() -> None:
    closes = zigzag(0.0)[:32]
    busier = np.concatenate([np.ones(24), np.full(8, 1.3)])
    assert word("volume", closes, busier) == "rising"
    assert word("volume", closes, np.concatenate([np.ones(24), np.full(8, 1.2)])) == "steady"
    assert word("volume", closes, np.concatenate([np.ones(24), np.full(8, 0.8)])) == "falling"
    assert word("volume", closes, np.concatenate([np.ones(24), np.zeros(8)])) == "falling"
    assert word("volume", closes, np.concatenate([np.full(24, np.nan), np.ones(8)])) == "rising"
    for none in (np.zeros(32), np.full(32, np.nan)):
        assert word("volume", closes, none) == "steady"


def test_margin_is_the_distance_to_the_nearest_threshold() -> None:
    rng = np.random.default_rng(1)
    closes, volumes = rng.normal(size=(200, 32)).cumsum(axis=1), rng.exponential(size=(200, 32))
    z, found = value("trend", closes), labels(closes, volumes, NAMES)
    assert found["trend"].margin == pytest.approx(np.minimum(np.abs(z - 0.5), np.abs(z + 0.5)))
    assert np.all(found["position"].margin <= 1.0 / 3.0 + 1e-12)


def test_shares_of_a_random_walk() -> None:
    closes = np.random.default_rng(2).normal(size=(20_000, 32)).cumsum(axis=1)
    shares = np.bincount(labels(closes, np.ones_like(closes), ["trend"])["trend"].index) / len(closes)
    assert shares == pytest.approx([0.31, 0.31, 0.38], abs=0.015)


def test_a_window_without_volume_has_no_right_word_for_it() -> None:
    closes = np.random.default_rng(3).normal(size=(3, 32)).cumsum(axis=1)
    volumes = np.array([np.full(32, np.nan), np.zeros(32), np.ones(32)])
    found = right_words(CLASSES, closes, volumes)
    assert ["volume" in words for words in found] == [False, False, "volume" in WORDS]
    assert all("trend" in words for words in found)
