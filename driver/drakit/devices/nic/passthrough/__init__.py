"""Whole interfaces: given to one claim, moved into its pod and returned to the host."""
