"""The allocator: which devices the claims of one pod get on one node. Pure: no I/O, no clock."""
