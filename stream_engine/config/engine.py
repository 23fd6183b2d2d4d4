"""Settings of the process that runs the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stream_engine.config.rules import ConfigError, require
from stream_engine.util.memory import MemorySize


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
    kv_memory: str = "25%"
    """Memory for the sessions' keys and values: a size ("4GiB", "500MB"), or a share of the memory of the model's
    device, on a CPU of what the machine or the control group has. Sessions that have no room in it fall back to
    tokens only, least recently used first; what is ready of them is computed in idle time."""
    entry_cells: int = 32
    """Tokens that each session has room for behind its largest region: for questions, headers and turns. An entry
    that needs more borrows it from a pool."""
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
    sleep_after_s: float = 0.0
    """A session that nobody has fed or asked for so long sleeps: a row in the engine, its window in the windows
    topic, until a record or a question wakes it. 0: none does."""
    credits: int = 4096
    """Records that may be in flight between a consumer and the engine."""
    max_queries: int = 256
    """Queries in hand: those that wait for a step or for their freshness bounds. One more is refused (429)."""
    stuck_after_s: float = 10.0
    """Not ready when a work item is older than this."""
    check_integrity: bool = False
    """Check cells = tokens = boundary whenever idle (always on in the tests)."""

    def __post_init__(self) -> None:
        for name in ("step_tokens", "commit_every", "quiet_records", "credits", "max_queries"):
            require(getattr(self, name) > 0, f"engine.{name}", "positive", getattr(self, name))
        for name in ("threads", "entry_cells", "max_deferrals", "promoted_questions"):
            require(getattr(self, name) >= 0, f"engine.{name}", "zero or positive", getattr(self, name))
        try:
            MemorySize.parse(self.kv_memory)
        except ValueError as error:
            raise ConfigError(f"engine.kv_memory: {error}") from error
        require(self.sleep_after_s >= 0, "engine.sleep_after_s", "zero or positive", self.sleep_after_s)
        for name in ("promotion_half_life_s", "stuck_after_s"):
            require(getattr(self, name) > 0, f"engine.{name}", "positive", getattr(self, name))
