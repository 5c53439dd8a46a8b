"""One driver on one node: what the kubelet asks is carried out, what the hardware offers is published.

What belongs here: the engine, the publisher, recovery, and their assembly (``node.node``, the only module here that knows adapters).
What does not: hardware (``devices``), wire formats (``kubelet``, ``kube``, ``cdi``), files (``journal``).
"""
