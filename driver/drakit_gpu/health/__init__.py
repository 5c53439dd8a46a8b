"""GPU health: events and recovery actions, the Xid table, faults as taints, and the monitor."""
