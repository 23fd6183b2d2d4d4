"""The gate's threshold, measured on recorded and simulated windows."""
