"""Training of the embedded model, of adapters and of the question classifier."""
