"""A storm: random schedules of faults around a real driver process, on real sockets, and what must be true when it is over."""
