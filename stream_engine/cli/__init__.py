"""The command line: ``stream-engine``."""
