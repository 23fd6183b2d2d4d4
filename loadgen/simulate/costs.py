"""What the steps cost: the paper's constants, or those that a benchmark measured and wrote to a JSON file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

Positive = Annotated[float, msgspec.Meta(ge=1e-9, le=1e9)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Times in milliseconds (section 2.2), ``entry_tokens`` is L_entry, ``gate_fires`` g of Eq. 9."""

    prefill_ms_per_token: Positive
    decode_ms: Positive
    scan_ms: Positive
    restore_ms: Annotated[float, msgspec.Meta(ge=0, le=1e9)]
    entry_tokens: Count
    gate_fires: Share


PAPER = Costs(
    prefill_ms_per_token=0.843,
    decode_ms=39.12,
    scan_ms=0.664,
    restore_ms=14.47,
    entry_tokens=18,
    gate_fires=0.9453,
)
"""Table 1 and Figure 5: one H100, a 70B-class model at 4 bits; g is the coverage at tau = 2 (121 of 128)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredHits:
    """Completed pre-positions of a live trace at one rho, and how many of them a query read (HW-4)."""

    rho: Positive
    prepositions: Count
    hits: Annotated[int, msgspec.Meta(ge=0)]

    def __post_init__(self) -> None:
        if self.hits > self.prepositions:
            raise ValueError(f"hits {self.hits} of {self.prepositions} prepositions")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCold:
    """Median first token of the cold path at one length of the entry (HW-5)."""

    entry_tokens: Count
    first_token_ms: Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The part of a benchmark's JSON file that the simulator reads; other fields of the file are left alone.

    ``machine`` names the machine in words. ``hit_rates`` and ``cold`` are drawn over the closed form.
    """

    costs: Costs
    machine: str = ""
    hit_rates: tuple[MeasuredHits, ...] = ()
    cold: tuple[MeasuredCold, ...] = ()


def read_measured(file: Path) -> Measured:
    """Raises ValueError, with the field's place, for what is no such file, and OSError."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Measured)
    except msgspec.DecodeError as error:  # of which a ValidationError is one
        raise ValueError(f"{file}: {error}") from error
