"""Decode the parts of a ResourceClaim that statuses, bindings and Events need: allocated devices, their status, and its field managers.

Decoding is less strict than ``claim_codec``: no name of a device becomes a path, and an invalid entry of another driver must not block our writes.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Annotated

from drakit.core import claim_status, errors, names
from drakit.core.encoding import wire
from drakit.kube import api_objects


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceOfClaim:
    """The identity of a device in a claim; its allocation and its status share it."""

    driver: str = ""
    pool: str
    device: str
    share_id: Annotated[str, wire.Field(name="shareID")] = ""

    @property
    def key(self) -> claim_status.DeviceKey:
        """Return pool, device and share id."""
        return self.pool, self.device, self.share_id


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result(DeviceOfClaim):
    """An allocated device (status.allocation.devices.results[])."""

    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry(DeviceOfClaim):
    """The status of one device (status.devices[]); ``stored`` is the whole object, with unknown fields."""

    conditions: tuple[Mapping[str, object], ...] = ()
    stored: Mapping[str, object]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Consumer:
    """A user of the claim (status.reservedFor[]). Its name becomes a part of the names of Events, and so of paths."""

    api_group: str = ""
    resource: str = ""
    name: Annotated[str, wire.checked(names.is_subdomain, "a DNS subdomain")]
    uid: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class FieldOwner:
    """A field manager and its fields (metadata.managedFields[]), as FieldsV1."""

    manager: str = ""
    operation: str = ""
    subresource: str = ""
    fields: Annotated[Mapping[str, object], wire.Field(name="fieldsV1")] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredClaim:
    """The decoded parts of a claim, with the results and status entries of all drivers. ``allocation`` is None for an unallocated claim."""

    uid: Annotated[str, wire.Field(name="metadata.uid")] = ""
    resource_version: Annotated[str, wire.Field(name="metadata.resourceVersion")] = ""
    generation: Annotated[int, wire.Field(name="metadata.generation")] = 0
    owners: Annotated[tuple[FieldOwner, ...], wire.Field(name="metadata.managedFields")] = ()
    allocation: Annotated[object, wire.Field(name="status.allocation")] = None
    results: Annotated[tuple[Result, ...], wire.Field(name="status.allocation.devices.results")] = ()
    entries: Annotated[tuple[Entry, ...], wire.Field(name="status.devices")] = ()

    def entries_of(self, driver: str) -> Iterator[Entry]:
        """Return the status entries of one driver's devices."""
        return (entry for entry in self.entries if entry.driver == driver)


_FORMAT = wire.Format(
    ignore_unknown=True,
    empty_is_absent=True,
    converters=api_objects.CONVERTERS,
    fields={(Entry, "stored"): wire.Field(converter=wire.ANYTHING, inline=True)},
)


def read(claim: object) -> StoredClaim:
    """Return the decoded parts of a claim. Raise ConfigError, naming the invalid field."""
    return _FORMAT.decode(StoredClaim, claim)


def consumers(claim: object) -> Iterator[Consumer]:
    """Yield the readable users of a claim (status.reservedFor[]), whatever else in the claim is malformed."""
    stored = claim.get("status") if isinstance(claim, Mapping) else None
    reserved = stored.get("reservedFor") if isinstance(stored, Mapping) else None
    for entry in reserved if isinstance(reserved, list | tuple) else ():
        with contextlib.suppress(errors.ConfigError):
            yield _FORMAT.decode(Consumer, entry)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Condition:
    """A stored metav1.Condition."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""

    @property
    def is_true(self) -> bool:
        """Return whether the status is True."""
        return self.status == "True"


def condition(stored: object) -> Condition:
    """Return one decoded condition of an entry. Raise ConfigError."""
    return _FORMAT.decode(Condition, stored, "status.devices.conditions")
