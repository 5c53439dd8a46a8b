"""``drakit doctor``: looks at everything the driver needs of its node and cluster, changes nothing, and says how to fix what is missing."""
