"""Which model families the tree forward is exact for."""

from __future__ import annotations

from typing import Any

# Families whose layers pass unknown keywords on to the attention function, and whose attention is causal, dense
# softmax attention with one head size. Each one has an exactness test.
FAMILIES = frozenset(
    {
        "gemma2",
        "gemma3_text",
        "granite",
        "llama",
        "mistral",
        "olmo2",
        "phi3",
        "qwen2",
        "qwen3",
        "smollm3",
    }
)

# Their angles depend on the longest position in the batch: one long session would turn every other session's keys.
_BATCH_DEPENDENT_ROPE = ("dynamic", "longrope")


class UnsupportedModelError(ValueError):
    """The model can't be served exactly by the tree forward; the message says why."""


def check_family(family: object) -> None:
    """Raise UnsupportedModelError for a family that is not one of ours."""
    if family not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise UnsupportedModelError(f"model family {family!r} is not supported; supported are: {known}")


def check_config(config: Any) -> None:
    """Raise UnsupportedModelError unless a model of this `transformers` configuration is served exactly."""
    check_family(config.model_type)
    for kind in rope_types(config):
        if any(name in kind for name in _BATCH_DEPENDENT_ROPE):
            raise UnsupportedModelError(
                f"RoPE type {kind!r} is not supported: its angles depend on the longest position in the step, "
                "so one session would change another's answers"
            )
    if getattr(config, "use_bidirectional_attention", None):
        raise UnsupportedModelError(
            "bidirectional attention is not supported: a later token would change resident ones"
        )
    if not getattr(config, "is_causal", True):
        raise UnsupportedModelError("a model with is_causal = false is not supported")


def rope_types(config: Any) -> frozenset[str]:
    """RoPE types of a configuration, one a layer type where they differ."""
    parameters = getattr(config, "rope_parameters", None) or {}
    groups = [value for value in parameters.values() if isinstance(value, dict)] or [parameters]
    return frozenset(str(group.get("rope_type", "default")) for group in groups)
