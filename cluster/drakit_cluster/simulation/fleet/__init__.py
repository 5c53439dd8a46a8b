"""Fleets: groups of equal nodes, and what a policy changes in their slices."""
