"""GPU health: events and recovery actions, the Xid table, faults as taints, and the thread that watches the GPUs."""
