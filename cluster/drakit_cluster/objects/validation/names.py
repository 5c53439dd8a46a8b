"""Rules of names, each as a function of the name and its field's path."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from drakit_cluster.objects.schema import formats
from drakit_cluster.objects.validation import failure
from drakit_cluster.objects.validation.failure import Failure

DRIVER_BYTES = 63
POOL_BYTES = 253
IDENTIFIER_BYTES = 32
QUALIFIED_BYTES = DRIVER_BYTES + 1 + IDENTIFIER_BYTES

_Check: TypeAlias = Callable[[str, str], Iterator[Failure]]


def _by(check: Callable[[str], str]) -> _Check:
    """Return the rule that a format states; an empty name breaks it too, where the format says so."""

    def rule(name: str, path: str) -> Iterator[Failure]:
        if reason := check(name):
            yield failure.invalid(path, name, reason)

    return rule


label = _by(formats.dns_label)
subdomain = _by(formats.dns_subdomain)
label_key = _by(formats.label_key)
label_value = _by(formats.label_value)
path_segment = _by(formats.path_segment)
uid = _by(formats.uuid)


def class_name(name: str, path: str) -> Iterator[Failure]:
    """Yield what is wrong with a reference to a DeviceClass."""
    return subdomain(name, path) if name else iter([failure.required(path, "name a DeviceClass")])


def driver(name: str, path: str) -> Iterator[Failure]:
    """Yield what is wrong with a driver's name: a subdomain, where upper case is tolerated."""
    if not name:
        yield failure.required(path, "name a driver, such as gpu.example.com")
        return
    if len(name.encode()) > DRIVER_BYTES:
        yield failure.too_long(path, DRIVER_BYTES)
    if reason := formats.dns_subdomain(name.lower()):
        yield failure.invalid(path, name, reason)


def pool(name: str, path: str) -> Iterator[Failure]:
    """Yield what is wrong with a pool's name: subdomains joined by slashes."""
    if not name:
        yield failure.required(path, "name the pool, such as the node's name")
        return
    if len(name.encode()) > POOL_BYTES:
        yield failure.too_long(path, POOL_BYTES)
    if reason := next(filter(None, map(formats.dns_subdomain, name.split("/"))), ""):
        yield failure.invalid(path, name, f"each part between slashes {reason}")


def qualified(name: str, path: str) -> Iterator[Failure]:
    """Yield what is wrong with an attribute's or capacity's name: ``id`` or ``domain/id``.

    A name with two slashes or more passes, as it does in Kubernetes before 1.38 (:func:`one_slash`).
    """
    parts = name.split("/")
    if len(parts) == 1:
        yield from _identifier(name, path)
    elif len(parts) == 2:
        domain, identifier = parts
        yield from driver(domain, path) if domain else [failure.invalid(path, name, "write a domain before the slash")]
        yield from _identifier(identifier, path) if identifier else [failure.invalid(path, name, "write a name after the slash")]


def one_slash(name: str, path: str) -> Iterator[Failure]:
    """Yield the failure of a name that has more than one slash, which Kubernetes accepts before 1.38."""
    if name.count("/") > 1:
        yield failure.invalid(path, name, "must not have more than one slash")


def fully_qualified(name: str, path: str) -> Iterator[Failure]:
    """Yield what is wrong with an attribute's name that must include its domain."""
    yield from qualified(name, path)
    if "/" not in name:
        yield failure.invalid(path, name, "write domain/name: a reference to an attribute needs its domain")


def _identifier(name: str, path: str) -> Iterator[Failure]:
    if len(name.encode()) > IDENTIFIER_BYTES:
        yield failure.too_long(path, IDENTIFIER_BYTES)
    if reason := formats.c_identifier(name):
        yield failure.invalid(path, name, reason)
