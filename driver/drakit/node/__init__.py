"""One driver on one node: it answers the kubelet's calls and publishes the devices of the node.

This package has the engine, the publisher, recovery, and their assembly (``node.node``, the only module here that knows adapters).
Hardware is in ``devices``, wire formats are in ``kubelet``, ``kube`` and ``cdi``, and files in ``journal``.
"""
