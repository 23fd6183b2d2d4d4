"""The engine: resident sessions of a language model, decoded ahead, that answer from what is ready."""
