from __future__ import annotations

import math

import pytest

from stream_engine.decision.ready import ReadyDistribution


def distribution(logits: list[float]) -> ReadyDistribution:
    order = sorted(range(len(logits)), key=logits.__getitem__, reverse=True)
    partition = math.log(sum(math.exp(x) for x in logits))
    top, second = logits[order[0]], logits[order[1]]
    return ReadyDistribution(order[0], order[1], top - second, top, partition, 0.5, 7)


def test_confidence_is_the_probability_of_the_top_token() -> None:
    logits = [0.3, 2.0, -1.0, 1.5]
    expected = math.exp(2.0) / sum(math.exp(x) for x in logits)
    assert distribution(logits).confidence == pytest.approx(expected)


def test_all_of_a_distribution_is_kept_at_its_position() -> None:
    found = distribution([0.3, 2.0, -1.0, 1.5])
    assert ReadyDistribution.at(7, found) == found


def test_confidence_never_passes_one_by_rounding() -> None:
    assert ReadyDistribution(0, 1, 40.0, 50.000001, 50.0, 1.0, 1).confidence == 1.0
