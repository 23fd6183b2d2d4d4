"""The networks that a step runs on: families, loading, the runner itself."""
