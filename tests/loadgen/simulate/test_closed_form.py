"""The formulas against the paper's own numbers, and against what the paper says of their shape."""

from __future__ import annotations

import dataclasses

import pytest

from loadgen.simulate.closed_form import (
    cold_ms,
    expected_latency,
    expected_ms,
    fall_ms,
    fast_ms,
    fits_idle,
    hit_rate,
    pays,
    preposition_ms,
    served_latency,
    speedup,
    wasted_rate,
)
from loadgen.simulate.costs import PAPER

RHOS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)


def test_latencies_at_the_papers_entry() -> None:
    """0.843 ms x 18 + 39.12 ms, 0.664 ms, 14.47 ms: Figures 4 and 5."""
    assert PAPER.entry_tokens == 18
    assert cold_ms(PAPER, 18) == pytest.approx(54.294)
    assert fast_ms(PAPER) == 0.664
    assert speedup(PAPER, 18) == pytest.approx(81.768, abs=5e-4)
    assert preposition_ms(PAPER, 18) == pytest.approx(15.174)
    assert fall_ms(PAPER, 18, 0) == pytest.approx(53.59)


def test_the_papers_measured_first_tokens_are_near() -> None:
    """HW-5: 53.1 ms cold and 53.0 ms falling through, of whole requests."""
    assert cold_ms(PAPER, 18) == pytest.approx(53.1, rel=0.03)
    assert fall_ms(PAPER, 18, 0) == pytest.approx(53.0, rel=0.03)
    assert PAPER.decode_ms / cold_ms(PAPER, 18) == pytest.approx(0.74, abs=0.025)
    assert speedup(PAPER, 18) > 50


def test_a_full_residual_costs_a_restore_more_than_cold() -> None:
    assert fall_ms(PAPER, 18, 18) - cold_ms(PAPER, 18) == pytest.approx(PAPER.restore_ms)


@pytest.mark.parametrize("delta", range(19))
def test_a_fall_through_pays_a_restore_for_the_prefill_it_saves(delta: int) -> None:
    saved = PAPER.restore_ms - PAPER.prefill_ms_per_token * (18 - delta)
    assert fall_ms(PAPER, 18, delta) - cold_ms(PAPER, 18) == pytest.approx(saved)


@pytest.mark.parametrize("delta", [-1, 19])
def test_a_delta_is_part_of_the_entry(delta: int) -> None:
    with pytest.raises(ValueError, match=rf"delta {delta} is not within 0 .. 18"):
        fall_ms(PAPER, 18, delta)


def test_speedup_grows_with_the_entry_by_the_prefill_over_the_scan() -> None:
    steps = [speedup(PAPER, entry + 1) - speedup(PAPER, entry) for entry in (1, 18, 200)]
    assert steps == pytest.approx([0.843 / 0.664] * 3)


@pytest.mark.parametrize(
    ("rho", "hit"), [(0.1, 1 / 11), (0.3, 3 / 13), (1.0, 0.5), (3.0, 0.75), (10.0, 10 / 11), (0.25, 0.2)]
)
def test_hit_rate(rho: float, hit: float) -> None:
    assert hit_rate(rho) == pytest.approx(hit)
    assert wasted_rate(hit_rate(rho)) == pytest.approx(1 - hit)


def test_expected_latency_by_hand() -> None:
    assert served_latency(0.75, 1.0, 5.0) == 2.0
    assert expected_latency(0.5, 0.75, 1.0, 5.0, 9.0) == 0.5 * 2.0 + 0.5 * 9.0
    assert expected_ms(PAPER, 0.5) == pytest.approx(0.5 * (0.9453 * 0.664 + 0.0547 * 53.59) + 0.5 * 54.294)
    assert expected_ms(PAPER, 1.0, 18) == pytest.approx(0.9453 * 0.664 + 0.0547 * 68.764)


def test_expected_latency_falls_with_rho_from_below_cold_to_served() -> None:
    """Figure 6b."""
    values = [expected_ms(PAPER, hit_rate(rho)) for rho in RHOS]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) == len(values)
    served = served_latency(PAPER.gate_fires, fast_ms(PAPER), fall_ms(PAPER, 18, 0))
    assert all(served < value < cold_ms(PAPER, 18) for value in values)
    assert expected_ms(PAPER, 1.0) == served


def test_pre_positioning_pays_where_served_is_below_cold() -> None:
    """Eq. 10, on both sides: a gate that never fires and a full residual cost more than the cold path."""
    assert pays(PAPER)
    assert pays(PAPER, 18)
    never = dataclasses.replace(PAPER, gate_fires=0.0)
    assert pays(never)  # at delta 0, as the prefill saved is 15.174 ms and the restore 14.47 ms
    assert not pays(never, 18)


def test_a_pass_is_free_where_it_fits() -> None:
    assert fits_idle(PAPER, 18, 15.175)
    assert not fits_idle(PAPER, 18, 15.173)
