"""Table 1 of the paper on a GPU: ``python -m loadgen.gpu``."""
