"""Long runs of a driver's process on a local cluster, with faults all along."""
