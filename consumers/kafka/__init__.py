"""The Kafka client: connections, the group's partitions and offsets, topics, producers."""
