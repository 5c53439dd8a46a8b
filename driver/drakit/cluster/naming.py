"""Names that the server makes up."""

import secrets

MAX_GENERATED_BASE = 58
SUFFIX_LENGTH = 5
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' alphabet for random names: no vowels, no digits that look like letters."""


def generate(base: str) -> str:
    """Return ``base``, cut at 58 characters, and five random characters."""
    suffix = "".join(secrets.choice(_ALPHABET) for _ in range(SUFFIX_LENGTH))
    return base[:MAX_GENERATED_BASE] + suffix
