"""Simulation: what a fleet of nodes would do with a workload, decided by the allocator of the local cluster, without a cluster."""
