"""ResourceSlices: what a driver offers, kept equal to what the API server stores.

``publisher`` serves one pool of a node and decides when to look again, ``cluster_publisher`` all pools of a driver that belong to no node, while it
holds the Lease. ``feature_probe`` finds out which fields the server stores.
"""
