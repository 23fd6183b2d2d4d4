"""Kafka to the engine and back: records in, offsets committed; dead letters, windows and answers out."""
