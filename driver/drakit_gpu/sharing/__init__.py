"""Several users of one GPU: shares and their capacity, time slices and compute modes, MPS, and restoring them after a reset."""
