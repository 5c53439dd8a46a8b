"""Times as the API writes them."""

import datetime


def present() -> datetime.datetime:
    """Return the present in UTC."""
    return datetime.datetime.now(datetime.UTC)


def now() -> str:
    """Return the present in RFC 3339 with whole seconds, as metav1.Time."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def now_micro() -> str:
    """Return the present in RFC 3339 with microseconds, as metav1.MicroTime."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
