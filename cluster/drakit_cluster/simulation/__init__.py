"""Simulation of a workload on a fleet of nodes, with the allocator of the local cluster, but without a cluster."""
