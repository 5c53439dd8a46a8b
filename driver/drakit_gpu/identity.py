"""The hardware that a grant holds, in terms that outlive the process and the inventory.

``plan`` reads the identity from the device's attributes, and the journal keeps it as the grant's intent. It is enough to find what ``prepare``
created, or to know that it is gone. It includes the boot, because no GPU instance survives one.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Self, TypeVar

import drakit
from drakit import vfio
from drakit_gpu import port
from drakit_gpu.inventory import attributes

Config = TypeVar("Config")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slot:
    """The place of a partition; drakit has at most one instance in it at a time."""

    gpu: port.GpuUuid
    profile_id: int
    placement: port.Placement

    def is_instance(self, instance: port.GpuInstance) -> bool:
        """Return whether an instance of this GPU fills the slot."""
        return (instance.profile_id, instance.placement) == (self.profile_id, self.placement)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Identity:
    """A whole GPU (``slot`` is None) or a partition of one, in one boot.

    ``borrowed`` is set where the grant uses an existing device and creates none: for admin access, and for a MIG device that an admin created.
    ``holder`` names the grant (claim UID, device, share id), to distinguish several grants of one device; it is empty in intents of older versions.
    ``marked`` is set where a marker records the creation of the instance (see ``mig.instances``). ``settings`` are the GPU settings that the
    grant changes. ``vfio`` is the plan of a GPU that is passed to a virtual machine (``drakit.vfio.Plan``).
    """

    boot: str
    gpu: port.GpuUuid
    slot: Slot | None = None
    borrowed: bool = False
    holder: str = ""
    shared: bool = False
    marked: bool = False
    settings: drakit.Record = dataclasses.field(default_factory=lambda: drakit.EMPTY_RECORD)
    vfio: drakit.Record = dataclasses.field(default_factory=lambda: drakit.EMPTY_RECORD)

    @classmethod
    def of(cls, grant: drakit.Grant[Config], *, boot: str) -> Self:
        """Return the identity of a grant, from the attributes of its device. Its holder is claim, device, and share or, for admin access, request."""
        values, slot = grant.device.attributes, None
        gpu = port.GpuUuid(_text(values, attributes.UUID if is_whole(grant.device) else attributes.PARENT_UUID))
        if not is_whole(grant.device):
            slot = Slot(gpu=gpu, profile_id=_integer(values, attributes.PROFILE_ID), placement=_placement(values))
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
        gpu = port.GpuUuid(_text(record, "gpu"))
        slot = None
        if "profile" in record:
            placement = port.Placement(start=_integer(record, "start"), size=_integer(record, "size"))
            slot = Slot(gpu=gpu, profile_id=_integer(record, "profile"), placement=placement)
        holder, settings, planned = record.get("holder"), record.get("settings"), record.get(vfio.KEY)
        return cls(
            boot=_text(record, "boot"),
            gpu=gpu,
            slot=slot,
            borrowed=record.get("borrowed") is True,
            holder=holder if isinstance(holder, str) else "",
            shared=record.get("shared") is True,
            marked=record.get("marked") is True,
            settings=settings if isinstance(settings, Mapping) else drakit.EMPTY_RECORD,
            vfio=planned if isinstance(planned, Mapping) else drakit.EMPTY_RECORD,
        )

    def to_record(self) -> drakit.Record:
        """Return the identity as an intent."""
        record: dict[str, object] = {"boot": self.boot, "gpu": self.gpu}
        if self.slot is not None:
            record |= {"profile": self.slot.profile_id, "start": self.slot.placement.start, "size": self.slot.placement.size}
        optional = {
            "borrowed": self.borrowed,
            "holder": self.holder,
            "shared": self.shared,
            "marked": self.marked,
            "settings": self.settings,
            vfio.KEY: self.vfio,
        }
        return drakit.freeze_record(record | {name: value for name, value in optional.items() if value})


@dataclasses.dataclass(frozen=True, kw_only=True)
class MigDevice:
    """The MIG device that fills a slot; the journal keeps it as the grant's record."""

    uuid: str
    instance_id: int
    compute_id: int

    @classmethod
    def from_record(cls, record: drakit.Record) -> Self:
        """Return the MIG device of a record; raises JournalError for a record that this driver did not write."""
        return cls(uuid=_text(record, "uuid"), instance_id=_integer(record, "gi"), compute_id=_integer(record, "ci"))

    def to_record(self) -> drakit.Record:
        """Return the MIG device as a record."""
        return {"uuid": self.uuid, "gi": self.instance_id, "ci": self.compute_id}


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
    one, other = (_placement(device.attributes) for device in (first, second))
    return one.overlaps(other)


def _gpu_of(device: drakit.Device) -> drakit.AttributeValue | None:
    """Return the UUID of a device's GPU. Names are no proof: a GPU may come back with another minor number, or another GPU with its number."""
    return device.attributes.get(attributes.UUID if is_whole(device) else attributes.PARENT_UUID)


def _placement(values: attributes.Attributes) -> port.Placement:
    return port.Placement(start=_integer(values, attributes.PLACEMENT_START), size=_integer(values, attributes.PLACEMENT_SIZE))


def _readable(intent: drakit.Record) -> Identity | None:
    try:
        return Identity.from_record(intent)
    except drakit.JournalError:
        return None


def _text(record: drakit.Record | attributes.Attributes, key: str) -> str:
    value = record.get(key)
    if isinstance(value, str) and value:
        return value
    raise drakit.JournalError(f"the journal's record of the device lacks {key!r}")


def _integer(record: drakit.Record | attributes.Attributes, key: str) -> int:
    value = record.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise drakit.JournalError(f"the journal's record of the device lacks {key!r}")
