"""MIG: the possible partitions of a GPU and their counters, and the creation, deletion and ownership of instances."""
