"""Read allocated claims from files, so that a device can be prepared without an API server (local mode).

A file is YAML or JSON with one or more ResourceClaims (documents, or a List), each with a status.allocation as the scheduler writes it.
Claims are checked as those from the API server. In addition every field of the allocation must be known, because a misspelt field would be ignored
silently.
"""

import dataclasses
import difflib
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from drakit.core import claim as claims
from drakit.core import errors, records
from drakit.inputs import documents, files
from drakit.kube import api_objects, claim_codec, transport

SIZE_MAX = 4 << 20
STANDARD_INPUT = pathlib.Path("-")
_RESULT = (
    "request",
    "driver",
    "pool",
    "device",
    "adminAccess",
    "tolerations",
    "bindingConditions",
    "bindingFailureConditions",
    "shareID",
    "consumedCapacity",
)
_KNOWN_FIELDS: Mapping[str, tuple[str, ...]] = {
    "": ("apiVersion", "kind", "metadata", "spec", "status"),
    "status": ("allocation", "reservedFor", "devices"),
    "status.allocation": ("devices", "nodeSelector", "allocationTimestamp", "reservedForAnyPod"),
    "status.allocation.devices": ("results", "config"),
    "status.allocation.devices.results": _RESULT,
    "status.allocation.devices.config": ("source", "requests", "opaque"),
}
"""The fields of resource.k8s.io/v1 as of 1.36 by the path of their object; a path goes through the items of lists."""


class FileClaims:
    """A ``core.ports.ClaimSource`` of the claims in files, each read once. Raise ConfigError, naming the field, for an invalid file."""

    def __init__(self, *paths: pathlib.Path) -> None:
        self._claims: dict[tuple[str, str], transport.Object] = {}
        self._refs: dict[tuple[str, str], claims.ClaimRef] = {}
        for path in paths:
            self._add(path)

    def _add(self, path: pathlib.Path) -> None:
        before = len(self._refs)
        for place, claim in _claims_in(path):
            ref = claim_codec.ref_of(claim, place)
            if (ref.namespace, ref.name) in self._refs:
                raise errors.ConfigError(f"the claim {ref} is given twice", field=place)
            self._refs[ref.namespace, ref.name] = ref
            self._claims[ref.namespace, ref.name] = claim
        if len(self._refs) == before:
            raise errors.ConfigError("holds no ResourceClaim", field=_name(path))

    @property
    def refs(self) -> tuple[claims.ClaimRef, ...]:
        """Return the references of the claims, in the order of the files."""
        return tuple(self._refs.values())

    def fetch(self, ref: claims.ClaimRef) -> claims.Claim:
        """Return the claim of this namespace and name. Raise ClaimError."""
        claim = self._claims.get((ref.namespace, ref.name))
        if claim is None:
            raise errors.ClaimError(errors.ClaimFault.NOT_FOUND, "the claim is not in the file")
        _check_fields(claim)
        return claim_codec.decode(claim, ref)


def _check_fields(value: object, place: str = "", path: str = "") -> None:
    """Raise ClaimError for an unknown field; ``place`` is the path without indices. The decoder checks the values."""
    if isinstance(value, list):
        for index, element in enumerate(value):
            _check_fields(element, place, f"{path}[{index}]")
    if not isinstance(value, dict) or place not in _KNOWN_FIELDS:
        return
    for name, inner in value.items():
        if name not in _KNOWN_FIELDS[place]:
            raise errors.ClaimError(errors.ClaimFault.MALFORMED, _unknown(name, _KNOWN_FIELDS[place]), field=errors.join_path(path, name))
        _check_fields(inner, errors.join_path(place, name), errors.join_path(path, name))


def _unknown(name: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return "is not a field of a ResourceClaim; " + (f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Document:
    api_version: str
    kind: str
    items: tuple[object, ...] = ()


def _claims_in(path: pathlib.Path) -> Iterator[tuple[str, Any]]:
    """Yield the claims of a file, each with its path for errors."""
    for index, document in enumerate(_documents(path)):
        if document is None:
            continue
        place = f"{_name(path)}[{index}]"
        header = api_objects.FORMAT.decode(_Document, document, place)
        if header.kind in ("List", "ResourceClaimList"):
            for number, element in enumerate(header.items):
                yield _checked(element, f"{place}.items[{number}]")
        else:
            yield _checked(document, place)


def _checked(document: object, place: str) -> tuple[str, object]:
    header = api_objects.FORMAT.decode(_Document, document, place)
    if header.kind != claim_codec.KIND:
        raise errors.ConfigError(
            f"is {header.kind!r}; only ResourceClaims that are allocated can be used here (drakit allocate allocates them)",
            field=f"{place}.kind",
        )
    if header.api_version != claim_codec.API_VERSION:
        raise errors.ConfigError(f"is {header.api_version!r}, and must be {claim_codec.API_VERSION}", field=f"{place}.apiVersion")
    return place, document


def _documents(path: pathlib.Path) -> list[records.Json]:
    try:
        content = sys.stdin.buffer.read(SIZE_MAX + 1) if path == STANDARD_INPUT else files.read_bytes(path, limit=SIZE_MAX)
        if len(content) > SIZE_MAX:
            raise errors.ConfigError(f"has more than {SIZE_MAX} bytes", field=_name(path))
        return documents.load_all(content.decode("utf-8-sig"))
    except OSError as error:
        raise errors.ConfigError(f"cannot be read: {error.strerror}", field=str(path)) from error
    except UnicodeDecodeError as error:
        raise errors.ConfigError(f"is not UTF-8 text (byte {error.start + 1})", field=_name(path)) from error
    except documents.DocumentError as error:
        raise errors.ConfigError(f"is neither YAML nor JSON: {error}", field=_name(path)) from error


def _name(path: pathlib.Path) -> str:
    return "standard input" if path == STANDARD_INPUT else path.name
