"""Settings of the watch on false accepts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from stream_engine.config.rules import SHOWN, require
from stream_engine.util.places import default_state_dir


@dataclass(frozen=True, slots=True)
class RiskSettings:
    """How the risk of the fast path is watched while it serves."""

    check_share: float = 0.02
    """Share of the gate's fast answers that is picked for a check against the full path in idle time, at most one
    a decision point; 0 switches it off."""
    budget: float = 0.0
    """False-accept rate that a class may have: share of the decision points asked about whose fast answer differs
    from the full path's; 0: what the calibration was made for, 0.02 without one."""
    level: float = 0.05
    """Probability of a false alarm within ``horizon`` checks of a class whose rate is within the budget."""
    horizon: int = 5_000
    """Checks that ``level`` is about."""
    tau_step: float = 1.0
    """By how much an alarm raises tau, in logits, before the next one closes the class."""
    state_file: Path = field(
        default_factory=lambda: default_state_dir() / "risk.json",
        metadata={SHOWN: "stream-engine/risk.json in $XDG_STATE_HOME or ~/.local/state"},
    )
    """What risk control has raised or closed, and its evidence, so that a restart changes neither: it must outlive
    the container (a volume in ``compose.yaml``) and the machine's restart. Services may share it."""

    def __post_init__(self) -> None:
        require(0 <= self.check_share <= 1, "risk.check_share", "0..1", self.check_share)
        require(0 <= self.budget < 1, "risk.budget", "less than 1, not negative", self.budget)
        require(0 < self.level < 1, "risk.level", "between 0 and 1", self.level)
        for name in ("horizon", "tau_step"):
            require(0 < getattr(self, name) < math.inf, f"risk.{name}", "positive, finite", getattr(self, name))
