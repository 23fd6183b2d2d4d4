"""The paper's model as formulas: what each path costs, and what pre-positioning brings (Eqs. 2-10).

Latencies are in milliseconds, of the first token. ``entry`` is L_entry in tokens.
"""

from __future__ import annotations

from loadgen.simulate.costs import Costs


def prefill_ms(costs: Costs, tokens: int) -> float:
    """T_prefill(k): linear in the tokens (HW-1)."""
    return costs.prefill_ms_per_token * tokens


def cold_ms(costs: Costs, entry: int) -> float:
    """L_cold (Eq. 2): the entry is processed when the question comes, and one token decoded."""
    return prefill_ms(costs, entry) + costs.decode_ms


def fast_ms(costs: Costs) -> float:
    """L_fast (Eq. 3): one scan of the ready distribution, whatever the entry's length."""
    return costs.scan_ms


def speedup(costs: Costs, entry: int) -> float:
    """S (Eq. 4): cold over fast."""
    return cold_ms(costs, entry) / fast_ms(costs)


def fall_ms(costs: Costs, entry: int, delta: int) -> float:
    """L_fall (Eq. 5): a restore, ``delta`` tokens beyond the pre-positioned ones, and one decode.

    Raises ValueError for a delta that is not within 0 .. entry."""
    if not 0 <= delta <= entry:
        raise ValueError(f"delta {delta} is not within 0 .. {entry}, the entry's tokens")
    return costs.restore_ms + prefill_ms(costs, delta) + costs.decode_ms


def preposition_ms(costs: Costs, entry: int) -> float:
    """T_pp (Eq. 6): one pass over the entry; its last logits are the ready distribution."""
    return prefill_ms(costs, entry)


def fits_idle(costs: Costs, entry: int, idle_ms: float) -> bool:
    """Whether a pre-position is free of wall-clock time in an idle window of this length (Eq. 7)."""
    return preposition_ms(costs, entry) <= idle_ms


def hit_rate(rho: float) -> float:
    """Share of pre-positions that a query reads before the next update, for Poisson queries at ``rho`` times the
    rate of Poisson updates: the next event of the two is a query (Eq. 8; Fig. 6)."""
    return rho / (1 + rho)


def wasted_rate(hit: float) -> float:
    """w (Eq. 8): pre-positions that an update made worthless unread."""
    return 1 - hit


def served_latency(fires: float, fast: float, fall: float) -> float:
    """Latency of a query that finds a valid ready distribution: the left side of Eq. 10."""
    return fires * fast + (1 - fires) * fall


def expected_latency(hit: float, fires: float, fast: float, fall: float, cold: float) -> float:
    """Latency of a query under pre-positioning (Eq. 9), in the unit of its parts. ``hit`` is h, ``fires`` g, the
    probability that the gate fires given a hit."""
    return hit * served_latency(fires, fast, fall) + wasted_rate(hit) * cold


def expected_ms(costs: Costs, hit: float, delta: int = 0) -> float:
    """Eq. 9 of these costs, at their entry length."""
    entry = costs.entry_tokens
    return expected_latency(
        hit, costs.gate_fires, fast_ms(costs), fall_ms(costs, entry, delta), cold_ms(costs, entry)
    )


def pays(costs: Costs, delta: int = 0) -> bool:
    """Whether pre-positioning lowers the expected latency, at any hit rate above 0 (Eq. 10)."""
    entry = costs.entry_tokens
    served = served_latency(costs.gate_fires, fast_ms(costs), fall_ms(costs, entry, delta))
    return served < cold_ms(costs, entry)
