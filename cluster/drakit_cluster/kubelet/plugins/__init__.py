"""The drivers of the node: registration, connections, health, and the slices of drivers that are gone."""
