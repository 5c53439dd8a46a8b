"""Publish ResourceSlices: keep the slices on the API server equal to the driver's offer.

``publisher`` publishes the pools of a node. ``cluster_publisher`` publishes a driver's cluster pools while it holds the Lease. ``feature_probe``
detects which fields the server stores.
"""
