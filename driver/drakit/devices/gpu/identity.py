"""What a grant is of, in terms that outlive the process, the device's name and its place in the inventory.

An identity is chosen by ``plan``, kept in the journal as the grant's intent, and is all that is needed to find again, or to know to be gone, what
``prepare`` made. It carries the boot, because no GPU instance survives one.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Self

from drakit.core import device as devices
from drakit.core import errors, records
from drakit.devices.gpu import port
from drakit.devices.gpu.inventory import attributes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slot:
    """Where a partition lies: nothing else of drakit's can be there at the same time."""

    gpu: port.GpuUuid
    profile_id: int
    placement: port.Placement

    def is_instance(self, instance: port.GpuInstance) -> bool:
        """Whether an instance of this GPU fills the slot."""
        return (instance.profile_id, instance.placement) == (self.profile_id, self.placement)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Identity:
    """A whole GPU (``slot`` is None) or a partition of one, in one boot.

    ``borrowed`` is set where the grant uses what is there and makes nothing: for admin access, and for a MIG device that an admin made.
    ``holder`` is whose grant it is (claim UID, and share id of a shared device), so that several grants of one device can be told apart; empty in
    intents of before that was kept. ``marked`` is set where the making of the instance is noted by a mark (see ``marks``). ``settings`` are what is
    changed of the GPU for the grant.
    """

    boot: str
    gpu: port.GpuUuid
    slot: Slot | None = None
    borrowed: bool = False
    holder: str = ""
    shared: bool = False
    marked: bool = False
    settings: records.Record = dataclasses.field(default_factory=records.empty)

    @classmethod
    def of(cls, device: devices.Device, *, boot: str, borrowed: bool, holder: str = "") -> Self:
        """The identity of an offered device, read from its attributes."""
        told, shared = device.attributes, device.allow_multiple_allocations
        if is_whole(device):
            return cls(boot=boot, gpu=port.GpuUuid(_text(told, attributes.UUID)), borrowed=borrowed, holder=holder, shared=shared)
        gpu = port.GpuUuid(_text(told, attributes.PARENT_UUID))
        start, size = _integer(told, attributes.PLACEMENT_START), _integer(told, attributes.PLACEMENT_SIZE)
        slot = Slot(gpu=gpu, profile_id=_integer(told, attributes.PROFILE_ID), placement=port.Placement(start=start, size=size))
        return cls(boot=boot, gpu=gpu, slot=slot, borrowed=borrowed or attributes.UUID in told, holder=holder, shared=shared)

    @classmethod
    def from_record(cls, record: records.Record) -> Self:
        """The identity kept in an intent; raises JournalError for one this driver did not write."""
        gpu = port.GpuUuid(_text(record, "gpu"))
        slot = None
        if "profile" in record:
            placement = port.Placement(start=_integer(record, "start"), size=_integer(record, "size"))
            slot = Slot(gpu=gpu, profile_id=_integer(record, "profile"), placement=placement)
        holder, settings = record.get("holder"), record.get("settings")
        return cls(
            boot=_text(record, "boot"),
            gpu=gpu,
            slot=slot,
            borrowed=record.get("borrowed") is True,
            holder=holder if isinstance(holder, str) else "",
            shared=record.get("shared") is True,
            marked=record.get("marked") is True,
            settings=settings if isinstance(settings, Mapping) else records.EMPTY,
        )

    def to_record(self) -> records.Record:
        """The identity as an intent."""
        record: dict[str, object] = {"boot": self.boot, "gpu": self.gpu}
        if self.slot is not None:
            record |= {"profile": self.slot.profile_id, "start": self.slot.placement.start, "size": self.slot.placement.size}
        told = {"borrowed": self.borrowed, "holder": self.holder, "shared": self.shared, "marked": self.marked, "settings": self.settings}
        return records.freeze_record(record | {name: value for name, value in told.items() if value})


@dataclasses.dataclass(frozen=True, kw_only=True)
class MigDevice:
    """The MIG device that fills a slot, kept as the grant's record."""

    uuid: str
    instance_id: int
    compute_id: int

    @classmethod
    def from_record(cls, record: records.Record) -> Self:
        """What is remembered; raises JournalError for a record this driver did not write."""
        return cls(uuid=_text(record, "uuid"), instance_id=_integer(record, "gi"), compute_id=_integer(record, "ci"))

    def to_record(self) -> records.Record:
        """What to remember."""
        return records.freeze_record({"uuid": self.uuid, "gi": self.instance_id, "ci": self.compute_id})


def is_whole(device: devices.Device) -> bool:
    """Whether an offered device is a whole GPU, in either form."""
    return device.attributes.get(attributes.TYPE) in {attributes.TYPE_GPU, attributes.TYPE_SHARED_GPU}


def from_intents(intents: Iterable[records.Record], boot: str, *, gpu: port.GpuUuid | None = None) -> tuple[Identity, ...]:
    """The identities of the intents of this boot, of one GPU where one is named; those that cannot be read are left out.

    What is of another GPU or boot is not looked into, because a node may have many claims.
    """
    wanted = (one for one in intents if one.get("boot") == boot and (gpu is None or one.get("gpu") == gpu))
    return tuple(found for one in wanted if (found := _readable(one)) is not None)


def holders(intents: Iterable[records.Record]) -> frozenset[str]:
    """Whose grants these are, of any boot."""
    return frozenset(str(one.get("holder", "")) for one in intents)


def owned_slots(intents: Iterable[records.Record], boot: str) -> frozenset[Slot]:
    """The slots that the intents of this boot may have filled.

    An intent that cannot be read owns nothing: what it made is then left alone, and what overlaps it withheld.
    """
    return frozenset(one.slot for one in from_intents(intents, boot) if one.slot is not None and not one.borrowed)


def _readable(intent: records.Record) -> Identity | None:
    try:
        return Identity.from_record(intent)
    except errors.JournalError:
        return None


def _text(record: records.Record | attributes.Attributes, key: str) -> str:
    value = record.get(key)
    if isinstance(value, str) and value:
        return value
    raise errors.JournalError(f"what is remembered of the device lacks {key!r}")


def _integer(record: records.Record | attributes.Attributes, key: str) -> int:
    value = record.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise errors.JournalError(f"what is remembered of the device lacks {key!r}")
