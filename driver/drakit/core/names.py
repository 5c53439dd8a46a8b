"""Names as the resource.k8s.io API accepts them.

Each ``check_*`` returns its argument unchanged, or raises InventoryError with ``field``. The rules are those of
resource.k8s.io/v1 as Kubernetes 1.36 validates them.
"""

import functools
import re
from typing import NewType

from drakit.core import errors

ClaimUid = NewType("ClaimUid", str)
ShareId = NewType("ShareId", str)

LABEL_MAX = 63
SUBDOMAIN_MAX = 253
DRIVER_MAX = 63
IDENTIFIER_MAX = 32
_QUALIFIED_MAX = DRIVER_MAX + 1 + IDENTIFIER_MAX
PROBE_POOL = "probe"

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def is_label(text: object) -> bool:
    """Return whether a text is a DNS-1123 label of at most 63 characters."""
    return isinstance(text, str) and len(text) <= LABEL_MAX and _is_label(text)


@functools.lru_cache(maxsize=4096)
def _is_label(text: str) -> bool:
    """Return whether a text has the form of a label. The devices of a node share most names."""
    return _LABEL.fullmatch(text) is not None


def is_subdomain(text: object, *, limit: int = SUBDOMAIN_MAX) -> bool:
    """Return whether a text is a DNS-1123 subdomain of at most ``limit`` characters."""
    return isinstance(text, str) and len(text) <= limit and _SUBDOMAIN.fullmatch(text) is not None


def check_label(text: str, field: str) -> str:
    """Return the name of a device, request, counter set, counter or mixin, if it is valid."""
    given: object = text
    if isinstance(given, str) and is_label(given):
        return given
    suggestion = re.sub(r"[^a-z0-9]+", "-", str(text).lower())[:LABEL_MAX].strip("-")
    raise errors.InventoryError(
        f"{text!r} is not a DNS label (lower-case letters, digits and '-', at most {LABEL_MAX}, first and last alphanumeric)"
        + (f"; {suggestion!r} is one" if suggestion else ""),
        field=field,
    )


def check_driver(text: str, field: str = "driver") -> str:
    """Return a valid driver name: a DNS subdomain of at most 63 characters, for example ``gpu.drakit.dev``."""
    if is_subdomain(text, limit=DRIVER_MAX):
        return text
    raise errors.InventoryError(f"{text!r} is not a driver name (a DNS subdomain of at most {DRIVER_MAX} characters)", field=field)


def check_pool(text: str, field: str = "pool") -> str:
    """Return a valid pool name: DNS subdomains joined by '/', at most 253 characters together."""
    if 0 < len(text) <= SUBDOMAIN_MAX and all(is_subdomain(part) for part in text.split("/")):
        return text
    raise errors.InventoryError(f"{text!r} is not a pool name (DNS subdomains joined by '/')", field=field)


def check_pool_suffix(text: str, field: str) -> str:
    """Return a valid pool suffix, the part after the node's name: a DNS label."""
    if text == PROBE_POOL:
        raise errors.InventoryError(f"{text!r} is reserved for the slices that test which fields the API server stores", field=field)
    return check_label(text, field)


def pool_of_node(node_pool: str, suffix: str | None) -> str:
    """Return the name of one of a node's pools: NODE without a suffix, else NODE/SUFFIX, which no node's name can be."""
    return node_pool if suffix is None else f"{node_pool}/{suffix}"


def suffix_of(pool: str, node_pool: str) -> str | None:
    """Return the suffix of one of a node's pools, None for the node's own; the reverse of ``pool_of_node``."""
    return None if pool == node_pool else pool.removeprefix(f"{node_pool}/")


def is_pool_of_node(pool: str, node_pool: str) -> bool:
    """Return whether a pool belongs to the node whose own pool is ``node_pool``."""
    return pool == node_pool or pool.startswith(f"{node_pool}/")


def check_qualified(text: str, field: str) -> str:
    """Return a valid attribute or capacity key: ``id`` or ``domain/id`` with a C identifier of at most 32 characters."""
    if len(text) <= _QUALIFIED_MAX and _is_qualified(text):
        return text
    domain, slash, _ = text.rpartition("/")
    if slash and not is_subdomain(domain, limit=DRIVER_MAX):
        raise errors.InventoryError(f"{text!r} has a domain that is not a DNS subdomain of at most {DRIVER_MAX} characters", field=field)
    raise errors.InventoryError(f"{text!r} must end in a C identifier of at most {IDENTIFIER_MAX} characters", field=field)


@functools.lru_cache(maxsize=4096)
def _is_qualified(text: str) -> bool:
    domain, slash, identifier = text.rpartition("/")
    has_identifier = len(identifier) <= IDENTIFIER_MAX and _IDENTIFIER.fullmatch(identifier) is not None
    return has_identifier and (not slash or is_subdomain(domain, limit=DRIVER_MAX))


def check_label_key(text: str, field: str) -> str:
    """Return a valid taint key or condition type: ``name`` or ``domain/name`` as in the keys of Kubernetes labels."""
    domain, slash, name = text.rpartition("/")
    if name and check_label_value(name, field) and (not slash or is_subdomain(domain)):
        return text
    raise errors.InventoryError(f"{text!r} is not a label key such as example.com/unhealthy", field=field)


def check_label_value(text: str, field: str) -> str:
    """Return a valid taint value: empty, or at most 63 letters, digits, '-', '_' and '.', first and last alphanumeric."""
    if not text or (len(text) <= LABEL_MAX and _LABEL_VALUE.fullmatch(text)):
        return text
    raise errors.InventoryError(f"{text!r} is not a label value of at most {LABEL_MAX} characters", field=field)


def is_uid(text: object) -> bool:
    """Return whether a text is a lower-case RFC 4122 UUID, as claim UIDs and share ids are."""
    return isinstance(text, str) and _UID.fullmatch(text) is not None
