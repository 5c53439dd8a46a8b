"""The allocator: the choice of devices for the claims of one pod on one node. Pure: no I/O, no clock."""
