"""Settings of the process that runs the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stream_engine.config.rules import require


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The model and the budget of the process that runs it."""

    model: str = "embedded"
    """"embedded", a name of `models list`, a model directory, a GGUF file, or a hub id."""
    adapter: str = ""
    """LoRA adapter for the model: a name (`stream-engine models list`) or a folder."""
    calibration: str = ""
    """File of the gate's calibration. Empty: the one beside the model, where there is one; "none": the
    profile's tau."""
    device: str = "cpu"
    """torch's name of the device that runs the model."""
    dtype: str = "float32"
    """torch's name of the number type of weights and cells."""
    quantization: Literal["none", "int8", "nf4"] = "none"
    """Weights in 8 or 4 bits (bitsandbytes)."""
    threads: int = 0
    """CPU threads of the forward pass; 0 leaves one core to the other processes."""
    preposition: Literal["fused", "idle", "off"] = "fused"
    """When decision points are decoded: in the pass of the commit, in one of its own in the idle time after it
    (the paper's Algorithm 1), or never."""
    max_sessions: int = 64
    """Sessions with resident KV cells; further ones fall back to tokens only, least recently used first. What is
    ready of them is computed in idle time."""
    total_cells: int = 0
    """Cell budget (one cell = one token's KV over all layers); 0 sizes it for ``max_sessions``."""
    step_tokens: int = 512
    """Bound on the tokens of one step, hence on how long a waiting query waits."""
    commit_every: int = 4
    """A waiting commit joins every k-th query step, so that neither starves."""
    max_deferrals: int = 8
    """A rider may be left out of at most this many commits in a row."""
    promoted_questions: int = 2
    """Most frequent ad-hoc questions of a session that ride along with its commits; 0: none."""
    promotion_half_life_s: float = 300.0
    """After which an earlier question counts half."""
    quiet_records: int = 20_000
    """A session whose last window in the compacted topic is this many records of its partition old gets a
    new one, so that it does not make a rebuild long."""
    credits: int = 4096
    """Records that may be in flight between a consumer and the engine."""
    max_queries: int = 256
    """Queries in hand: those that wait for a step or for their freshness bounds. One more is refused (429)."""
    stuck_after_s: float = 10.0
    """Not ready when a work item is older than this."""
    check_integrity: bool = False
    """Check cells = tokens = boundary whenever idle (always on in the tests)."""

    def __post_init__(self) -> None:
        for name in ("max_sessions", "step_tokens", "commit_every", "quiet_records", "credits", "max_queries"):
            require(getattr(self, name) > 0, f"engine.{name}", "positive", getattr(self, name))
        for name in ("threads", "total_cells", "max_deferrals", "promoted_questions"):
            require(getattr(self, name) >= 0, f"engine.{name}", "zero or positive", getattr(self, name))
        for name in ("promotion_half_life_s", "stuck_after_s"):
            require(getattr(self, name) > 0, f"engine.{name}", "positive", getattr(self, name))
