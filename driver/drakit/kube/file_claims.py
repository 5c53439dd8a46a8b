"""Allocated claims from files, so that a device can be prepared with no API server: the local mode.

A file is YAML or JSON with one or more ResourceClaims (documents, or a List), each with a status.allocation as the scheduler would write it.
The checks are those made of a claim from the API server, and one more: what stands in the allocation must be a field that drakit knows, since a
misspelt one would be left out without a word.
"""

import difflib
import pathlib
import sys
from collections.abc import Iterator

from drakit.core import claim as claims
from drakit.core import errors, records
from drakit.inputs import documents, files
from drakit.kube import claim_codec, fields, transport

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
_KNOWN: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("", ("apiVersion", "kind", "metadata", "spec", "status")),
    ("status", ("allocation", "reservedFor", "devices")),
    ("status.allocation", ("devices", "nodeSelector", "allocationTimestamp", "reservedForAnyPod")),
    ("status.allocation.devices", ("results", "config")),
    ("status.allocation.devices.results", _RESULT),
    ("status.allocation.devices.config", ("source", "requests", "opaque")),
)
"""Fields of resource.k8s.io/v1 as of 1.36, by what holds them; lists are meant item by item."""


class FileClaims:
    """``core.ports.ClaimSource`` over the claims of files, each read once; raises ConfigError naming the field when one cannot be read."""

    def __init__(self, *paths: pathlib.Path) -> None:
        self._claims: dict[tuple[str, str], transport.Object] = {}
        self._refs: dict[tuple[str, str], claims.ClaimRef] = {}
        for path in paths:
            self._add(path)

    def _add(self, path: pathlib.Path) -> None:
        before = len(self._refs)
        for found in _claims_in(path):
            ref = claim_codec.ref_of(found)
            if (ref.namespace, ref.name) in self._refs:
                raise found.error(f"the claim {ref} is given twice")
            self._refs[ref.namespace, ref.name] = ref
            self._claims[ref.namespace, ref.name] = found.object()
        if len(self._refs) == before:
            raise errors.ConfigError("holds no ResourceClaim", field=_name(path))

    @property
    def refs(self) -> tuple[claims.ClaimRef, ...]:
        """The claims, in the order of the files."""
        return tuple(self._refs.values())

    def fetch(self, ref: claims.ClaimRef) -> claims.Claim:
        """The claim of that namespace and name; raises ClaimError."""
        found = self._claims.get((ref.namespace, ref.name))
        if found is None:
            raise errors.ClaimError(errors.ClaimFault.NOT_FOUND, "the claim is not in the file")
        _check_names(fields.Field(found))
        return claim_codec.decode(found, ref)


def _check_names(claim: fields.Field) -> None:
    """Raise ClaimError for a field that a claim has not."""
    for path, known in _KNOWN:
        holders = [claim]
        for step in path.split(".") if path else ():
            holders = [inside for holder in holders for inside in _inside(holder[step])]
        for holder in holders:
            for name in holder.object():
                if name not in known:
                    raise errors.ClaimError(errors.ClaimFault.MALFORMED, _unknown(name, known), field=holder[name].path)


def _inside(found: fields.Field) -> list[fields.Field]:
    """The objects that a field holds; what is of another kind is left to the decoder."""
    if isinstance(found.value, list | tuple):
        return [item for item in found.each() if isinstance(item.value, dict)]
    return [found] if isinstance(found.value, dict) else []


def _unknown(name: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return "is not a field of a ResourceClaim; " + (f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}")


def _claims_in(path: pathlib.Path) -> Iterator[fields.Field]:
    for index, document in enumerate(_documents(path)):
        found = fields.Field(document, f"{_name(path)}[{index}]")
        if not found:
            continue
        items = found["items"].each() if found["kind"].text() in ("List", "ResourceClaimList") else [found]
        for item in items:
            kind = item["kind"].text()
            if kind not in ("", claim_codec.KIND):
                raise item["kind"].error(
                    f"is {kind!r}; only ResourceClaims that are allocated can be used here (drakit allocate allocates them)"
                )
            item["apiVersion"].only_in(claim_codec.API_VERSION)
            item["kind"].only_in(claim_codec.KIND)
            yield item


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
