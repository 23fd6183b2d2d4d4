"""Standing queries: what is registered, and what was answered last."""
