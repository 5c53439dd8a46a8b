"""Fakes that tests pass through ports; each keeps the contract of the real thing and is proven by the same suite."""
