"""Standing queries in their topic: read whole, written, confirmed."""
