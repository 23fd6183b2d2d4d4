"""What many keys cost an engine: ``python -m loadgen.keys``."""
