"""The GPU driver: whole GPUs, and MIG partitions that exist from prepare to unprepare.

Ownership: an instance is drakit's if it fills a slot that an intent of this boot names. ``plan`` refuses a slot where anything lies already, so an
intent is only ever written for an empty slot; from then on what appears there is the claim's. ``discover`` has to know the intents to tell drakit's
instances from an admin's: ``intents`` gives those of all claims the journal knows.

MIG mode is turned on for a partition and off for a whole GPU when they are prepared, where that takes no reset (Hopper and newer), and left as it
is afterwards. Elsewhere it is never touched. A GPU that does not answer is not offered, and the others are.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.core import errors, inventory, records
from drakit.devices.gpu import attributes, config, edits, identity, instances, mig, offer, port

NAME = "gpu.drakit.dev"

Grant = drivers.Grant[config.AnyConfig]
Result = TypeVar("Result")
Intents = Callable[[], Iterable[records.Record]]

_log = logging.getLogger(__name__)


def no_intents() -> Sequence[records.Record]:
    """The intents of a node on which nothing was prepared."""
    return ()


class GpuDriver(drivers.Driver[config.AnyConfig]):
    """Offers the GPUs of one node."""

    config_types = (config.GpuConfig, config.MigConfig)

    def __init__(
        self,
        hardware: port.GpuPort,
        *,
        name: str = NAME,
        intents: Intents = no_intents,
        whole_beside_partitions: bool = False,
        pause: instances.Pause = time.sleep,
    ) -> None:
        self.name = name
        self._hardware = hardware
        self._intents = intents
        self._whole_beside_partitions = whole_beside_partitions
        self._pause = pause

    def discover(self) -> inventory.Inventory:
        """All GPUs that answer and their partitions, less what instances of others take; raises CallError when none of several GPUs answers.

        The intents are read before and after the hardware: an instance that a claim makes or removes meanwhile is known from one of the two.
        """
        before = self._owned()
        gpus = self._hardware.gpus()
        seen = {gpu.uuid: found for gpu in gpus if (found := self._or_none(gpu, lambda gpu: (self._partitions(gpu), self._present(gpu))))}
        ours = before | self._owned()
        views = [
            view for gpu in gpus if gpu.uuid in seen and (view := self._or_none(gpu, lambda gpu: self._view(gpu, *seen[gpu.uuid], ours)))
        ]
        if gpus and not views:
            raise errors.HardwareError(port.CALLS["gpus"], f"none of {len(gpus)} GPUs answers; the log says why")
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
            if not wanted.borrowed and not self._is_whole(grant, gpu):
                return drivers.Prepared()
            ready = edits.of_gpu(grant.request, grant.device.name, gpu, self._hardware.device_majors())
            return drivers.Prepared(edits=ready, record=records.freeze_record({"uuid": gpu.uuid}))
        made = self._mig_device(grant, gpu, wanted, wanted.slot)
        return drivers.Prepared() if made is None else self._prepared(grant, gpu, made)

    def unprepare(self, grant: Grant) -> None:
        """Remove the MIG device; nothing to do for a whole GPU, for admin access, after a reboot, or when ``plan`` was never asked."""
        if not grant.intent:
            return
        wanted = identity.Identity.from_record(grant.intent)
        if wanted.slot is None or wanted.borrowed or wanted.boot != self._hardware.boot_id():
            return
        instances.remove(self._hardware, wanted.slot, identity.Made.from_record(grant.record) if grant.record else None, self._pause)

    def fits(self, device: devices.Device, config: object) -> bool:
        """GpuConfig is for whole GPUs, MigConfig for partitions."""
        return type(config) is type(self.default_config(device))

    def default_config(self, device: devices.Device) -> config.AnyConfig:
        """What a device is configured with when nobody says."""
        return config.MigConfig() if device.attributes.get(attributes.TYPE) == attributes.TYPE_MIG else config.GpuConfig()

    def _owned(self) -> frozenset[identity.Slot]:
        return identity.owned(self._intents(), self._hardware.boot_id())

    @staticmethod
    def _or_none(gpu: port.Gpu, look: Callable[[port.Gpu], Result]) -> Result | None:
        """What a look at one GPU gives; None for a GPU that does not answer."""
        try:
            return look(gpu)
        except port.CallError as error:
            _log.warning("a GPU does not answer and is not offered: gpu=%s error=%s", gpu.uuid, error)
            return None

    def _present(self, gpu: port.Gpu) -> Sequence[port.GpuInstance]:
        return self._hardware.gpu_instances(gpu.uuid)

    def _static_uuid(self, gpu: port.GpuUuid, found: port.GpuInstance) -> str | None:
        """The UUID of an instance that is a whole MIG device; None for any other, and for one that is gone meanwhile."""
        made = instances.static(self._hardware, identity.Slot(gpu=gpu, profile_id=found.profile_id, placement=found.placement))
        return None if made is None else made.uuid

    def _partitions(self, gpu: port.Gpu) -> tuple[mig.Partition, ...]:
        mode = None if gpu.is_vgpu else self._hardware.mig_mode(gpu.uuid)
        if mode is None or not (mode.current or gpu.switches_mig_at_once):
            return ()
        profiles = self._hardware.gpu_instance_profiles(gpu.uuid)
        return mig.partitions((profile, self._hardware.possible_placements(gpu.uuid, profile.id)) for profile in profiles)

    def _view(
        self, gpu: port.Gpu, partitions: tuple[mig.Partition, ...], present: Sequence[port.GpuInstance], ours: frozenset[identity.Slot]
    ) -> offer.View:
        mine = [slot for slot in ours if slot.gpu == gpu.uuid]
        foreign = tuple(item for item in present if not any(slot.is_instance(item) for slot in mine))
        static = {item: uuid for item in foreign if (uuid := self._static_uuid(gpu.uuid, item)) is not None}
        can_be_whole = gpu.switches_mig_at_once or not partitions or self._whole_beside_partitions
        return offer.View(gpu=gpu, partitions=partitions, foreign=foreign, static=static, can_be_whole=can_be_whole)

    def _is_whole(self, grant: Grant, gpu: port.Gpu) -> bool:
        """Make the GPU usable as a whole; whether it is, for one that was prepared before."""
        if grant.record:
            return not gpu.switches_mig_at_once or instances.has_mode(self._hardware, gpu, enabled=False)
        instances.set_mode(self._hardware, gpu, enabled=False, pause=self._pause)
        return True

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

    def _mig_device(self, grant: Grant, gpu: port.Gpu, wanted: identity.Identity, slot: identity.Slot) -> identity.Made | None:
        if grant.record:
            return instances.look(self._hardware, slot)
        if not wanted.borrowed:
            instances.set_mode(self._hardware, gpu, enabled=True, pause=self._pause)
            return instances.ensure(self._hardware, slot, self._pause)
        made = instances.look(self._hardware, slot)
        if made is None or made.uuid != grant.device.attributes.get(attributes.UUID, made.uuid):
            raise errors.DeviceGoneError(f"{grant.device.name}: the MIG device that was there is gone, and drakit makes none in its place")
        return made

    def _prepared(self, grant: Grant, gpu: port.Gpu, made: identity.Made) -> drivers.Prepared:
        majors = self._hardware.device_majors()
        minors = self._hardware.capability_minors(gpu.uuid, made.instance_id, made.compute_id)
        ready = edits.of_mig(grant.request, grant.device.name, gpu, made.uuid, majors, minors)
        return drivers.Prepared(edits=ready, record=made.to_record())
