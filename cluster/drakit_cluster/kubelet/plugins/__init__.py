"""The drivers of the node: registration, connections, health, and the deletion of slices of unusable drivers."""
