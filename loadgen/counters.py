"""The service's own counters, read from ``/metrics`` before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stream_engine.client.metrics import samples

GATE_OUTCOMES = ("fired", "below_gate", "gap", "noise", "not_in_set", "other_class", "closed", "warming_up")
"""Outcomes of a query that read a valid ready distribution; the others found none."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts of one moment, or of the time between two."""

    commits: int
    completed: int
    """Pre-positions written to the board."""
    hits: int
    wasted: int
    skipped: int
    """Pre-positions left out for want of cells."""
    fired: int
    read: int
    """Queries that read a valid ready distribution on the board, whether or not the gate fired."""

    @classmethod
    def parse(cls, text: str) -> Counters:
        """From the Prometheus text format; 0 where a counter is absent."""
        plain: dict[str, float] = {}
        outcomes: dict[str, float] = {}
        for sample in samples(text):
            if sample.name == "query_api_fast_path_total":
                outcomes[sample.labels["outcome"]] = sample.value
            elif not sample.labels:
                plain[sample.name] = sample.value
        return cls(
            commits=_count(plain, "stream_engine_commits_total"),
            completed=_count(plain, "stream_engine_preposition_slots_total"),
            hits=_count(plain, "stream_engine_preposition_hits_total"),
            wasted=_count(plain, "stream_engine_preposition_wasted_total"),
            skipped=_count(plain, "stream_engine_prepositions_skipped_total"),
            fired=_count(outcomes, "fired"),
            read=sum(_count(outcomes, name) for name in GATE_OUTCOMES),
        )

    def since(self, before: Counters) -> Counters:
        """What was counted between ``before`` and this."""
        return Counters(*(getattr(self, name) - getattr(before, name) for name in self.__dataclass_fields__))


def _count(values: Mapping[str, float], name: str) -> int:
    return int(values.get(name, 0))
