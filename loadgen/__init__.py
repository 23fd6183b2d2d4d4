"""Load on a running service, and what a client measures: rates, latencies by path, hit rate. No torch."""
