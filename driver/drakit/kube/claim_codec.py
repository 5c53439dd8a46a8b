"""Decode ResourceClaim JSON as ``core.claim.Claim``, with the checks of Kubernetes' own drivers in their order: found, allocated, not replaced.

Claims are not trusted. Names that later become parts of file names and commands are checked against the API's rules.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

from drakit.core import claim as claims
from drakit.core import errors, names, quantity, records
from drakit.core.encoding import json_errors, wire
from drakit.kube import api_objects

API_VERSION = "resource.k8s.io/v1"
KIND = "ResourceClaim"
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"


def _is_request(text: str) -> bool:
    base, slash, sub = text.partition("/")
    return names.is_label(base) and (not slash or names.is_label(sub))


def _is_driver(text: str) -> bool:
    """Return whether a text is a driver name; the API server accepts upper-case letters too, with a warning."""
    return names.is_subdomain(text.lower(), limit=names.DRIVER_MAX)


def _is_pool(text: str) -> bool:
    return names.is_subdomain(text) or (len(text) <= names.SUBDOMAIN_MAX and all(map(names.is_subdomain, text.split("/"))))


def _decode_parameters(value: object) -> records.Record:
    if not isinstance(value, Mapping):
        raise json_errors.wrong("an object", value)
    try:
        return records.freeze_record(value)
    except TypeError as error:
        raise errors.ConfigError(str(error)) from error


def _decode_consumed(value: object) -> Mapping[str, quantity.Quantity]:
    amounts: Mapping[str, quantity.Quantity] = _AMOUNTS.decode(value)
    for name in amounts:
        try:
            names.check_qualified(name, "")
        except errors.InventoryError as error:
            raise errors.ConfigError(f"{error.reason}; write the capacity's name, such as memory", field=json_errors.step(name)) from error
    return amounts


_AMOUNTS = api_objects.FORMAT.converter(Mapping[str, quantity.Quantity])
PARAMETERS = wire.Converter(_decode_parameters, records.thaw)
_REQUEST = wire.checked(_is_request, "a request name")
_DRIVER = wire.checked(_is_driver, "a driver name")
_LABEL = wire.checked(names.is_label, "a DNS label")
_UID = wire.checked(names.is_uid, "a lower-case UUID")
_FORMAT = wire.Format(
    ignore_unknown=True,
    empty_is_absent=True,
    converters=api_objects.CONVERTERS,
    fields={
        (claims.ClaimRef, "uid"): wire.Field(name="metadata.uid", converter=_UID),
        (claims.ClaimRef, "namespace"): wire.Field(name="metadata.namespace", converter=_LABEL, absent="default"),
        (claims.ClaimRef, "name"): wire.Field(name="metadata.name", converter=wire.checked(names.is_subdomain, "a DNS subdomain")),
        (claims.AllocationResult, "request"): wire.Field(converter=_REQUEST),
        (claims.AllocationResult, "driver"): wire.Field(converter=_DRIVER),
        (claims.AllocationResult, "pool"): wire.Field(converter=wire.checked(_is_pool, "a pool name")),
        (claims.AllocationResult, "device"): wire.Field(converter=_LABEL),
        (claims.AllocationResult, "share_id"): wire.Field(name="shareID", converter=_UID),
        (claims.AllocationResult, "consumed_capacity"): wire.Field(converter=wire.Converter(_decode_consumed, _AMOUNTS.encode)),
    },
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Config:
    source: claims.ConfigSource
    driver: Annotated[str, wire.Field(name="opaque.driver", converter=_DRIVER)]
    parameters: Annotated[Any, wire.Field(name="opaque.parameters", converter=PARAMETERS)]
    requests: tuple[Annotated[str, _REQUEST], ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Allocation:
    results: Annotated[tuple[claims.AllocationResult, ...], wire.Field(name="devices.results")] = ()
    configs: Annotated[tuple[_Config, ...], wire.Field(name="devices.config")] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Claim:
    uid: Annotated[str, wire.Field(name="metadata.uid")]
    annotations: Annotated[Mapping[str, object], wire.Field(name="metadata.annotations")] = dataclasses.field(default_factory=dict)
    allocation: Annotated[object, wire.Field(name="status.allocation")] = None
    consumers: Annotated[object, wire.Field(name="status.reservedFor")] = None


def decode(stored: object, ref: claims.ClaimRef) -> claims.Claim:
    """Return the decoded claim. Raise ClaimError: NOT_ALLOCATED, REPLACED if its UID is not that of ``ref``, or MALFORMED naming the field."""
    try:
        claim = _FORMAT.decode(_Claim, stored)
        if claim.allocation is None:
            raise errors.ClaimError(errors.ClaimFault.NOT_ALLOCATED, "the claim is not allocated", field="status.allocation")
        if claim.uid != ref.uid:
            raise errors.ClaimError(
                errors.ClaimFault.REPLACED, "the claim was deleted and another of its name was created", field="metadata.uid"
            )
        allocation = _FORMAT.decode(_Allocation, claim.allocation, "status.allocation")
    except errors.ConfigError as error:
        raise errors.ClaimError(errors.ClaimFault.MALFORMED, error.reason, field=error.field) from error
    return claims.Claim(
        ref=ref,
        results=allocation.results,
        configs=tuple(
            claims.OpaqueConfig(source=entry.source, driver=entry.driver, parameters=entry.parameters, requests=entry.requests)
            for entry in allocation.configs
        ),
        pod_claim_name=_pod_claim_name(claim.annotations),
        is_reserved=bool(claim.consumers),
    )


def _pod_claim_name(annotations: Mapping[str, object]) -> str:
    """Return the annotation of the claim controller, an empty string for an invalid name, as users may write any text there."""
    name = annotations.get(POD_CLAIM_NAME)
    return name if isinstance(name, str) and names.is_label(name) else ""


def ref_of(stored: object, path: str = "") -> claims.ClaimRef:
    """Return the identity of a claim from its metadata. Raise ConfigError, whose field begins with ``path``."""
    return _FORMAT.decode(claims.ClaimRef, stored, path)
