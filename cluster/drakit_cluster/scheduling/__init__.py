"""The scheduler: the choice of a node for a pod and of devices for its claims, and the writes of that choice."""
