"""What is written to Kafka and confirmed: dead letters, windows, answers."""
