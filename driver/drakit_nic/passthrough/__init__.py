"""Whole interfaces, which belong to one claim: moved into its pod and returned to the host."""
