"""A ResourceClaim as far as statuses, bindings and events need it: its allocated devices, what its status says of them, and who wrote that.

Less strict than ``claim_codec``: nothing here becomes a path, and another driver's odd entry must not keep ours from being written.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Annotated

from drakit.core import claim_status
from drakit.core.encoding import wire
from drakit.kube import api_objects


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceOfClaim:
    """The identity of a device in a claim, which its allocation and its status have in common."""

    driver: str = ""
    pool: str
    device: str
    share_id: Annotated[str, wire.Field(name="shareID")] = ""

    @property
    def key(self) -> claim_status.DeviceKey:
        """Pool, device and share id."""
        return self.pool, self.device, self.share_id


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result(DeviceOfClaim):
    """One allocated device (status.allocation.devices.results[])."""

    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry(DeviceOfClaim):
    """The status of one device (status.devices[]); ``stored`` is all of it, with what drakit does not know."""

    conditions: tuple[Mapping[str, object], ...] = ()
    stored: Mapping[str, object]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Consumer:
    """A user of the claim (status.reservedFor[])."""

    api_group: str = ""
    resource: str = ""
    name: str
    uid: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class FieldOwner:
    """A field manager and what it owns (metadata.managedFields[]), as FieldsV1."""

    manager: str = ""
    operation: str = ""
    subresource: str = ""
    fields: Annotated[Mapping[str, object], wire.Field(name="fieldsV1")] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredClaim:
    """See the module. ``results`` are those of all drivers, ``entries`` what the status says of their devices; ``allocation`` is None without one."""

    uid: Annotated[str, wire.Field(name="metadata.uid")] = ""
    resource_version: Annotated[str, wire.Field(name="metadata.resourceVersion")] = ""
    generation: Annotated[int, wire.Field(name="metadata.generation")] = 0
    owners: Annotated[tuple[FieldOwner, ...], wire.Field(name="metadata.managedFields")] = ()
    allocation: Annotated[object, wire.Field(name="status.allocation")] = None
    results: Annotated[tuple[Result, ...], wire.Field(name="status.allocation.devices.results")] = ()
    entries: Annotated[tuple[Entry, ...], wire.Field(name="status.devices")] = ()
    consumers: Annotated[tuple[Consumer, ...], wire.Field(name="status.reservedFor")] = ()

    def entries_of(self, driver: str) -> Iterator[Entry]:
        """What the status says of a driver's devices."""
        return (entry for entry in self.entries if entry.driver == driver)


_FORMAT = wire.Format(
    ignore_unknown=True,
    empty_is_absent=True,
    converters=api_objects.CONVERTERS,
    fields={(Entry, "stored"): wire.Field(converter=wire.ANYTHING, inline=True)},
)


def read(found: object) -> StoredClaim:
    """Return the parts of a claim; raises ConfigError naming the field that is not as the API has it."""
    return _FORMAT.decode(StoredClaim, found)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Condition:
    """A metav1.Condition as it is stored."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""

    @property
    def is_true(self) -> bool:
        """Whether it holds."""
        return self.status == "True"


def condition(found: object) -> Condition:
    """Return one condition of an entry; raises ConfigError."""
    return _FORMAT.decode(Condition, found)
