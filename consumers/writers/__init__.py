"""What is written to Kafka and confirmed: one spool for dead letters, windows and answers."""
