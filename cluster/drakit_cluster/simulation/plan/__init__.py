"""Capacity plans: how many nodes to buy, or which claims to move."""
