"""The GPU driver: whole GPUs, and MIG partitions that exist from prepare to unprepare.

Ownership: an instance is drakit's if it fills a slot that an intent of this boot names. ``plan`` refuses a slot where anything lies already, so an
intent is only ever written for an empty slot; from then on what appears there is the claim's. ``discover`` has to know the intents to tell drakit's
instances from an admin's: ``intents`` gives those of all claims the journal knows.
"""

from collections.abc import Callable, Iterable, Sequence

from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.core import errors, inventory, records
from drakit.devices.gpu import attributes, config, edits, identity, instances, mig, offer, port

NAME = "gpu.drakit.dev"

Grant = drivers.Grant[config.AnyConfig]
Intents = Callable[[], Iterable[records.Record]]


def no_intents() -> Sequence[records.Record]:
    """The intents of a node on which nothing was prepared."""
    return ()


class GpuDriver(drivers.Driver[config.AnyConfig]):
    """Offers the GPUs of one node."""

    config_types = (config.GpuConfig, config.MigConfig)

    def __init__(self, hardware: port.GpuPort, *, name: str = NAME, intents: Intents = no_intents) -> None:
        self.name = name
        self._hardware = hardware
        self._intents = intents

    def discover(self) -> inventory.Inventory:
        """All GPUs and their partitions, less what instances of others take.

        The intents are read before and after the hardware: an instance that a claim makes or removes meanwhile is known from one of the two.
        """
        before = self._owned()
        found = [(gpu, self._partitions(gpu.uuid), self._hardware.gpu_instances(gpu.uuid)) for gpu in self._hardware.gpus()]
        ours = before | self._owned()
        views = [
            offer.View(gpu=gpu, partitions=partitions, foreign=_foreign(gpu.uuid, present, ours)) for gpu, partitions, present in found
        ]
        return offer.author(self._hardware.versions(), views)

    def plan(self, grant: Grant) -> records.Record:
        """Choose the slot; raises DeviceGoneError when the GPU is gone, DeviceBusyError when an instance is in the way."""
        wanted = identity.Identity.of(grant.device, boot=self._hardware.boot_id(), borrowed=grant.admin_access)
        self._gpu(wanted.gpu)
        if not wanted.borrowed:
            self._check_free(grant.device.name, wanted)
        return wanted.to_record()

    def prepare(self, grant: Grant) -> drivers.Prepared:
        """Make the MIG device, or find it; whole GPUs are ready as they are.

        A grant that was prepared before is only looked at: if its device is gone or another, the answer differs from the record, and making it
        anew is left to a new plan, so that whatever exists is always what the journal says.
        """
        wanted = identity.Identity.from_record(grant.intent)
        if wanted.boot != self._hardware.boot_id():
            if grant.record:
                return drivers.Prepared()
            raise errors.DeviceGoneError(f"{grant.device.name} was planned in an earlier boot")
        gpu = self._gpu(wanted.gpu)
        if wanted.slot is None:
            ready = edits.of_gpu(grant.request, grant.device.name, gpu, self._hardware.device_majors())
            return drivers.Prepared(edits=ready, record=records.freeze_record({"uuid": gpu.uuid}))
        made = self._mig_device(grant, wanted, wanted.slot)
        return drivers.Prepared() if made is None else self._prepared(grant, gpu, made)

    def unprepare(self, grant: Grant) -> None:
        """Remove the MIG device; nothing to do for a whole GPU, for admin access, after a reboot, or when ``plan`` was never asked."""
        if not grant.intent:
            return
        wanted = identity.Identity.from_record(grant.intent)
        if wanted.slot is None or wanted.borrowed or wanted.boot != self._hardware.boot_id():
            return
        instances.remove(self._hardware, wanted.slot, identity.Made.from_record(grant.record) if grant.record else None)

    def fits(self, device: devices.Device, config: object) -> bool:
        """GpuConfig is for whole GPUs, MigConfig for partitions."""
        return type(config) is type(self.default_config(device))

    def default_config(self, device: devices.Device) -> config.AnyConfig:
        """What a device is configured with when nobody says."""
        return config.MigConfig() if device.attributes.get(attributes.TYPE) == attributes.TYPE_MIG else config.GpuConfig()

    def _owned(self) -> frozenset[identity.Slot]:
        return identity.owned(self._intents(), self._hardware.boot_id())

    def _partitions(self, gpu: port.GpuUuid) -> tuple[mig.Partition, ...]:
        mode = self._hardware.mig_mode(gpu)
        if mode is None or not mode.current:
            return ()
        profiles = self._hardware.gpu_instance_profiles(gpu)
        return mig.partitions((profile, self._hardware.possible_placements(gpu, profile.id)) for profile in profiles)

    def _gpu(self, uuid: port.GpuUuid) -> port.Gpu:
        found = next((gpu for gpu in self._hardware.gpus() if gpu.uuid == uuid), None)
        if found is None:
            raise errors.DeviceGoneError(f"{uuid} is not in this machine any more")
        return found

    def _check_free(self, device: str, wanted: identity.Identity) -> None:
        for instance in instances.obstacles(self._hardware, wanted):
            slot = identity.Slot(gpu=wanted.gpu, profile_id=instance.profile_id, placement=instance.placement)
            whose = "belongs to another claim" if slot in self._owned() else "was not made by this driver"
            raise errors.DeviceBusyError(f"{device}: GPU instance {instance.id} ({instances.describe(slot)}) is in the way and {whose}")

    def _mig_device(self, grant: Grant, wanted: identity.Identity, slot: identity.Slot) -> identity.Made | None:
        if grant.record:
            return instances.look(self._hardware, slot)
        if not wanted.borrowed:
            return instances.ensure(self._hardware, slot)
        made = instances.look(self._hardware, slot)
        if made is None:
            raise errors.DeviceGoneError(f"{grant.device.name}: no such MIG device exists, and admin access makes none")
        return made

    def _prepared(self, grant: Grant, gpu: port.Gpu, made: identity.Made) -> drivers.Prepared:
        majors = self._hardware.device_majors()
        minors = self._hardware.capability_minors(gpu.uuid, made.instance_id, made.compute_id)
        ready = edits.of_mig(grant.request, grant.device.name, gpu, made.uuid, majors, minors)
        return drivers.Prepared(edits=ready, record=made.to_record())


def _foreign(gpu: port.GpuUuid, present: Sequence[port.GpuInstance], ours: frozenset[identity.Slot]) -> tuple[port.GpuInstance, ...]:
    mine = [slot for slot in ours if slot.gpu == gpu]
    return tuple(instance for instance in present if not any(slot.is_instance(instance) for slot in mine))
