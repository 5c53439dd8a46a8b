"""The hardware that a grant holds, in terms that outlive the process and the inventory.

``plan`` reads the identity from the device's attributes, and the journal keeps it as the grant's intent. It is enough to find what ``prepare``
created, or to know that it is gone. It includes the boot, because no GPU instance survives one.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Self, TypeVar

import drakit
from drakit import vfio, wire
from drakit_gpu import port
from drakit_gpu.inventory import attributes

Config = TypeVar("Config")
Part = TypeVar("Part")

_FORMAT = wire.Format(ignore_unknown=True)
_AS_RECORDED = wire.Converter(lambda part: part, lambda part: part)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slot:
    """The place of a partition; drakit has at most one instance in it at a time."""

    gpu: port.GpuUuid
    profile_id: Annotated[int, wire.Field(name="profile")]
    placement: Annotated[port.Placement, wire.Field(inline=True)]

    @classmethod
    def of(cls, gpu: port.GpuUuid, instance: port.GpuInstance) -> Self:
        """Return the slot that an instance of this GPU fills."""
        return cls(gpu=gpu, profile_id=instance.profile_id, placement=instance.placement)

    def is_instance(self, instance: port.GpuInstance) -> bool:
        """Return whether an instance of this GPU fills the slot."""
        return (instance.profile_id, instance.placement) == (self.profile_id, self.placement)


_PUBLISHED = wire.Format(
    ignore_unknown=True,
    fields={
        (Slot, "gpu"): wire.Field(name=attributes.PARENT_UUID),
        (Slot, "profile_id"): wire.Field(name=attributes.PROFILE_ID),
        (Slot, "placement"): wire.Field(inline=True),
        (port.Placement, "start"): wire.Field(name=attributes.PLACEMENT_START),
        (port.Placement, "size"): wire.Field(name=attributes.PLACEMENT_SIZE),
    },
)
"""A slot as the attributes of its device have it."""
_RECORDED_SLOT = _FORMAT.converter(Slot)
_SLOT = wire.Converter(
    lambda record: _RECORDED_SLOT.decode(record) if "profile" in record else None,
    lambda slot: {} if slot is None else _RECORDED_SLOT.encode(slot),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mps:
    """The limits of an MPS daemon; ``memory`` is that of each process in bytes."""

    percentage: int | None = None
    memory: int | None = None
    multi_user: Annotated[bool, wire.Field(name="multi_user")] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings that a grant changes; ``before`` is the compute mode to restore, None if it is not changed or the GPU reports none."""

    time_slice: port.TimeSlice | None = None
    compute_mode: port.ComputeMode | None = None
    before: port.ComputeMode | None = None
    mps: Mps | None = None

    def __bool__(self) -> bool:
        """Return whether the grant changes any."""
        return self != type(self)()

    def to_record(self) -> drakit.Record:
        """Return the settings as part of an intent."""
        return _FORMAT.encode(self)

    @property
    def gpu_wide(self) -> tuple[port.TimeSlice | None, port.ComputeMode | None]:
        """The settings that affect all users of the GPU."""
        return self.time_slice, self.compute_mode

    @property
    def description(self) -> str:
        """The GPU-wide settings as text."""
        parts = [f"time slice {self.time_slice.value}" if self.time_slice else ""]
        parts.append(f"compute mode {self.compute_mode.value}" if self.compute_mode else "")
        return " and ".join(filter(None, parts)) or "nothing"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Identity:
    """A whole GPU (``slot`` is None) or a partition of one, in one boot.

    ``borrowed`` is set where the grant uses an existing device and creates none: for admin access, and for a MIG device that an admin created.
    ``holder`` names the grant (claim UID, device, share id), to distinguish several grants of one device; it is empty in intents of older versions.
    ``marked`` is set where a marker records the creation of the instance (see ``mig.instances``). Settings and plan are decoded where they are used:
    a grant also holds its hardware if a later version wrote a setting or a plan that this version cannot read.
    """

    boot: str
    gpu: port.GpuUuid
    slot: Annotated[Slot | None, wire.Field(inline=True, converter=_SLOT)] = None
    borrowed: bool = False
    holder: str = ""
    shared: bool = False
    marked: bool = False
    recorded_settings: Annotated[object, wire.Field(name="settings", converter=_AS_RECORDED)] = None
    recorded_plan: Annotated[object, wire.Field(name=vfio.KEY, converter=_AS_RECORDED)] = None

    @classmethod
    def of(cls, grant: drakit.Grant[Config], *, boot: str) -> Self:
        """Return the identity of a grant, from the attributes of its device. Its holder is claim, device, and share or, for admin access, request."""
        values = grant.device.attributes
        slot = None if is_whole(grant.device) else _of_device(Slot, grant.device)
        gpu = port.GpuUuid(str(values[attributes.UUID])) if slot is None else slot.gpu
        return cls(
            boot=boot,
            gpu=gpu,
            slot=slot,
            borrowed=grant.admin_access or (slot is not None and attributes.UUID in values),
            holder="/".join((grant.claim.uid, grant.device.name, grant.share_id or (grant.request if grant.admin_access else ""))),
            shared=grant.device.allow_multiple_allocations,
        )

    @classmethod
    def from_record(cls, record: drakit.Record) -> Self:
        """Return the identity of an intent; raises JournalError for an intent that this driver did not write."""
        return _from_record(cls, record)

    @property
    def settings(self) -> Settings:
        """The GPU settings that the grant changes. Raises JournalError for settings that this version cannot read."""
        return Settings() if self.recorded_settings is None else _from_record(Settings, self.recorded_settings)

    @property
    def has_daemon(self) -> bool:
        """Whether the grant has an MPS daemon. It is known also where the limits cannot be read."""
        return isinstance(self.recorded_settings, Mapping) and self.recorded_settings.get("mps") is not None

    @property
    def plan(self) -> vfio.Plan | None:
        """The plan of a GPU that is passed to a virtual machine. Raises JournalError for a plan that this version cannot read."""
        return None if self.recorded_plan is None else _from_record(vfio.Plan, self.recorded_plan)

    def to_record(self) -> drakit.Record:
        """Return the identity as an intent."""
        return _FORMAT.encode(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MigDevice:
    """The MIG device that fills a slot; the journal keeps it as the grant's record."""

    uuid: str
    instance_id: Annotated[int, wire.Field(name="gi")]
    compute_id: Annotated[int, wire.Field(name="ci")]

    @classmethod
    def from_record(cls, record: drakit.Record) -> Self:
        """Return the MIG device of a record; raises JournalError for a record that this driver did not write."""
        return _from_record(cls, record)

    def to_record(self) -> drakit.Record:
        """Return the MIG device as a record."""
        return _FORMAT.encode(self)


# Compiled here, so that the first prepare of a node does not wait for it.
for _format, _schema in ((_FORMAT, Identity), (_FORMAT, Settings), (_FORMAT, MigDevice), (_PUBLISHED, Slot)):
    _format.converter(_schema)


def is_whole(device: drakit.Device) -> bool:
    """Return whether an offered device is a whole GPU, in any form."""
    return device.attributes.get(attributes.TYPE) in {attributes.TYPE_GPU, attributes.TYPE_SHARED_GPU, attributes.TYPE_VFIO}


def is_vfio(device: drakit.Device) -> bool:
    """Return whether an offered device is a whole GPU for a virtual machine."""
    return device.attributes.get(attributes.TYPE) == attributes.TYPE_VFIO


def passed(intents: Iterable[drakit.Record], boot: str) -> frozenset[port.GpuUuid]:
    """Return the GPUs that claims of this boot pass to virtual machines. NVIDIA's driver does not see them."""
    return frozenset(identity.gpu for identity in _passed(intents, boot))


def passed_devices(intents: Iterable[drakit.Record], boot: str) -> Mapping[str, str]:
    """Return the devices of claims whose GPUs virtual machines have, with that reason: a process that never saw such a GPU cannot offer it."""
    holders = (identity.holder.split("/") for identity in _passed(intents, boot))
    return {holder[1]: "a virtual machine has the GPU" for holder in holders if len(holder) > 1}


def _passed(intents: Iterable[drakit.Record], boot: str) -> tuple[Identity, ...]:
    return from_intents((intent for intent in intents if vfio.KEY in intent), boot)


def from_intents(intents: Iterable[drakit.Record], boot: str, *, gpu: port.GpuUuid | None = None) -> tuple[Identity, ...]:
    """Return the identities of this boot's intents, of one GPU where given. Unreadable intents are left out.

    Intents of another GPU or boot are not decoded, because a node may have many claims.
    """
    relevant = (intent for intent in intents if intent.get("boot") == boot and (gpu is None or intent.get("gpu") == gpu))
    return tuple(grant for intent in relevant if (grant := _readable(intent)) is not None)


def holders(intents: Iterable[drakit.Record]) -> frozenset[str]:
    """Return the holders of these intents, of any boot."""
    return frozenset(str(intent.get("holder", "")) for intent in intents)


def holding_the_same(wanted: Identity, grants: Sequence[Identity]) -> Sequence[Identity]:
    """Return the identities of the other grants that hold the same shared device."""
    same = [other for other in grants if other.shared and not other.borrowed and (other.gpu, other.slot) == (wanted.gpu, wanted.slot)]
    return [other for other in same if other.holder != wanted.holder] if wanted.shared else ()


def owned_slots(intents: Iterable[drakit.Record], boot: str) -> frozenset[Slot]:
    """Return the slots that the intents of this boot may have filled.

    An unreadable intent owns nothing: its instance is then kept, and devices that overlap it are withheld.
    """
    return frozenset(grant.slot for grant in from_intents(intents, boot) if grant.slot is not None and not grant.borrowed)


def overlaps(first: drakit.Device, second: drakit.Device) -> bool:
    """Return whether two devices have hardware in common: forms and partitions of one GPU, except partitions in different memory slices."""
    if _gpu_of(first) != _gpu_of(second):
        return False
    if is_whole(first) or is_whole(second):
        return True
    one, other = (_of_device(port.Placement, device) for device in (first, second))
    return one.overlaps(other)


def _gpu_of(device: drakit.Device) -> drakit.AttributeValue | None:
    """Return the UUID of a device's GPU. Names are no proof: a GPU may come back with another minor number, or another GPU with its number."""
    return device.attributes.get(attributes.UUID if is_whole(device) else attributes.PARENT_UUID)


def _of_device(schema: type[Part], device: drakit.Device) -> Part:
    try:
        return _PUBLISHED.decode(schema, device.attributes)
    except drakit.ConfigError as error:
        raise drakit.JournalError(f"{device.name}: the attribute {error}") from error


def _readable(intent: drakit.Record) -> Identity | None:
    try:
        return Identity.from_record(intent)
    except drakit.JournalError:
        return None


def _from_record(schema: type[Part], record: object) -> Part:
    try:
        return _FORMAT.decode(schema, record)
    except drakit.ConfigError as error:
        raise drakit.JournalError(f"the journal's record of the device cannot be read: {error}") from error
