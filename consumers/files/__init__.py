"""Bars out of files, as vendors and tools write them: columns, times, numbers."""
