"""The step: plan, copy, forward, publish."""
