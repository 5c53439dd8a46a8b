"""Names that the server generates, names for people, and times as the API writes them."""

import datetime
import secrets

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object

MAX_GENERATED_BASE = 58
SUFFIX_LENGTH = 5
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' alphabet for random names: no vowels, no digits that look like letters."""


def generate(base: str) -> str:
    """Return ``base``, cut at 58 characters, and five random characters."""
    suffix = "".join(secrets.choice(_ALPHABET) for _ in range(SUFFIX_LENGTH))
    return base[:MAX_GENERATED_BASE] + suffix


def label(obj: Object) -> str:
    """Return namespace and name of an object; before the server names it, its generateName and a star."""
    metadata = json_types.mapping(obj, "metadata")
    namespace, base = json_types.text(metadata, "namespace"), json_types.text(metadata, "generateName")
    name = json_types.text(metadata, "name") or (f"{base}*" if base else "")
    return f"{namespace}/{name}" if namespace else name


def present() -> datetime.datetime:
    """Return the current time in UTC."""
    return datetime.datetime.now(datetime.UTC)


def now() -> str:
    """Return the current time in RFC 3339 with whole seconds, as metav1.Time."""
    return text_of(present())


def text_of(moment: datetime.datetime) -> str:
    """Return a moment as metav1.Time."""
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def now_micro() -> str:
    """Return the current time in RFC 3339 with microseconds, as metav1.MicroTime."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
