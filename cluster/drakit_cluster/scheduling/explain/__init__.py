"""Explanations of the scheduler's decisions: why claims do not fit, and what would happen to the claims of some files."""
