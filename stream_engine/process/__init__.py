"""The engine process: from settings to an engine, messages in, replies and events out."""
