"""Writes the parts of docs/ that the code knows best: settings, metrics, commands, routes."""
