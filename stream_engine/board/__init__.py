"""The ready board: ready distributions in one memory-mapped file, so that an API process answers alone."""
