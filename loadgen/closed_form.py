"""The paper's model of a session trace, as formulas."""

from __future__ import annotations


def hit_rate(rho: float) -> float:
    """Share of pre-positions that a query reads before the next update, for Poisson queries at ``rho`` times the
    rate of Poisson updates: the next event of the two is a query (Eq. 8; Fig. 6)."""
    return rho / (1 + rho)


def expected_latency(hit: float, fires: float, fast: float, fall: float, cold: float) -> float:
    """Latency of a query under pre-positioning (Eq. 9), in the unit of its parts. ``hit`` is h, ``fires`` g, the
    probability that the gate fires given a hit."""
    return hit * (fires * fast + (1 - fires) * fall) + (1 - hit) * cold
