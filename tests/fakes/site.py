"""The public fake of a site, by the name that our own tests know."""

from drakit.testing.sites import FakeSite, Grant, GrantKey, key_of

__all__ = ["FakeSite", "Grant", "GrantKey", "key_of"]
