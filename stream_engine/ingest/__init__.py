"""Batches of Kafka records into sessions: their order, their partitions, the acknowledgements they earn."""
