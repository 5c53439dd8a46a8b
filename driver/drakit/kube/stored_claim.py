"""A ResourceClaim as far as statuses, bindings and events need it: its allocated devices, what its status says of them, and who wrote that.

Less strict than ``claim_codec``: nothing here becomes a path, and another driver's odd entry must not keep ours from being written.
"""

import dataclasses
from collections.abc import Iterator, Mapping

from drakit.core import claim_status, wire
from drakit.kube import api_objects


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """One allocated device (status.allocation.devices.results[])."""

    driver: str = ""
    pool: str
    device: str
    share_id: str = ""
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()

    @property
    def key(self) -> claim_status.DeviceKey:
        """Pool, device and share id."""
        return self.pool, self.device, self.share_id


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """The status of one device (status.devices[]); ``stored`` is all of it, with what drakit does not know."""

    driver: str = ""
    pool: str
    device: str
    share_id: str = ""
    conditions: tuple[Mapping[str, object], ...] = ()
    stored: Mapping[str, object]

    @property
    def key(self) -> claim_status.DeviceKey:
        """Pool, device and share id."""
        return self.pool, self.device, self.share_id


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
    fields: Mapping[str, object] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metadata:
    """The parts of metav1.ObjectMeta that are used."""

    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    managed_fields: tuple[FieldOwner, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Devices:
    results: tuple[Result, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Allocation:
    devices: _Devices = dataclasses.field(default_factory=_Devices)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Status:
    allocation: _Allocation | None = None
    devices: tuple[Entry, ...] = ()
    reserved_for: tuple[Consumer, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredClaim:
    """See the module."""

    metadata: Metadata = dataclasses.field(default_factory=Metadata)
    status: _Status = dataclasses.field(default_factory=_Status)

    @property
    def results(self) -> tuple[Result, ...]:
        """The allocated devices of all drivers."""
        return self.status.allocation.devices.results if self.status.allocation else ()

    def entries_of(self, driver: str) -> Iterator[Entry]:
        """What the status says of a driver's devices."""
        return (entry for entry in self.status.devices if entry.driver == driver)


_FORMAT = wire.Format(
    ignore_unknown=True,
    empty_is_absent=True,
    converters=api_objects.CONVERTERS,
    fields={
        (Result, "share_id"): wire.Field(name="shareID"),
        (Entry, "share_id"): wire.Field(name="shareID"),
        (Entry, "stored"): wire.Field(converter=wire.ANYTHING, inline=True),
        (FieldOwner, "fields"): wire.Field(name="fieldsV1"),
    },
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
