"""The DRA driver for GPUs: whole GPUs, and MIG partitions that exist from prepare to unprepare.

Ownership: a GPU instance is drakit's if it fills a slot that an intent of this boot names. ``plan`` rejects a slot that is occupied, so an intent is
written only for an empty slot; an instance that appears there afterwards is the claim's. ``discover`` needs the intents to tell drakit's instances
from an admin's; ``intents`` returns those of all claims in the journal.

Several claims can share a partition. The first to be prepared creates it and the last to be unprepared deletes it. The driver reads the other holders
from the intents under the GPU's lock, which every call for any of its devices holds. In a fixed layout no partition is shared, and each has a lock of
its own; the driver itself lets one call at a time change the MIG mode or the instances of a GPU.

Prepare turns MIG mode on for a partition and off for a whole GPU where that needs no reset (Hopper and newer), and leaves it so afterwards. Elsewhere
the driver never changes it. A GPU that never answered is not offered; the others are.

While the NVIDIA driver is absent, unloaded or half upgraded, ``discover`` raises RetryError, so that nothing is offered. Unprepare then defers what
needs hardware of this boot (ReleaseDeferredError): an installer that waits for GPU pods to end can go on, and the instance is deleted when the driver
is back. Hardware of an earlier boot needs no call.
"""

import contextlib
import dataclasses
import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence

import drakit
from drakit import vfio
from drakit.vfio import kernel, leftovers
from drakit_gpu import cdi, config, device_nodes, identity, metrics, nvml_errors, port, reclaiming, vfio_form
from drakit_gpu.health import claimed, faults, monitor
from drakit_gpu.inventory import attributes, claimed_devices, discovery, gpu_devices
from drakit_gpu.mig import gpu_locks, instances, markers
from drakit_gpu.sharing import gpu_settings, restore, usage_warnings
from drakit_gpu.sharing.mps import pod_daemons

NAME = "gpu.drakit.dev"

Grant = drakit.Grant[config.AnyConfig]

_NO_DRIVER_SECONDS = 5.0
_log = drakit.get_logger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostResources:
    """The host's resources that prepare needs besides the GPUs.

    ``files`` are the driver's files (None: containers get none). Device nodes are created below ``dev_root`` (None: they are not). ``daemons`` runs
    MPS daemons, ``made`` stores the markers of the instances that drakit created. ``passing`` passes GPUs to virtual machines (None: none).
    """

    files: cdi.DriverFiles | None = None
    dev_root: pathlib.Path | None = None
    daemons: pod_daemons.PodDaemons = dataclasses.field(default_factory=pod_daemons.PodDaemons)
    made: markers.MarkerStore = dataclasses.field(default_factory=markers.MarkerStore)
    passing: vfio_form.VfioForm | None = None


class GpuDriver(drakit.Driver[config.AnyConfig]):
    """The driver for the GPUs of one node.

    It is volatile: nothing it creates survives a reboot. That holds for GPU instances, for the MIG mode of the GPUs whose mode it changes (MIG user
    guide), and for compute mode and time slice (NVIDIA, "Data Persistence"). The folders of MPS daemons are removed at the start.
    """

    config_types = config.TYPES
    device_metadata = True
    volatile = True
    watch_interval = 0.0
    watch_retry = (0.5, 30.0)

    def __init__(
        self,
        hardware: port.GpuPort,
        *,
        name: str = NAME,
        intents: drakit.Intents = drakit.no_intents,
        options: discovery.DiscoveryOptions | None = None,
        resources: HostResources | None = None,
        health: faults.HealthPolicy | None = None,
        pause: instances.Pause = time.sleep,
    ) -> None:
        self.name = name
        self._hardware = hardware
        self._intents = intents
        self._resources = resources or HostResources()
        self._passing = self._resources.passing or vfio_form.VfioForm(hardware, kernel.KernelBus(), is_offered=False)
        refusal = self._passing.refusal if self._passing.is_offered else None
        self._options = dataclasses.replace(options or discovery.DiscoveryOptions(), refusal=refusal)
        self._pause = pause
        self._locks = gpu_locks.GpuLocks()
        self._context: drakit.DriverContext | None = None
        self._health = health
        self._monitor: monitor.HealthMonitor | None = None
        self._worker: restore.RestoreWorker | None = None
        self._cache = discovery.InventoryCache()
        self._unclaimed = reclaiming.Unclaimed(
            hardware, intents, markers=self._resources.made, daemons=self._resources.daemons, pause=pause
        )

    def unclaimed(self) -> Sequence[drakit.Leftover]:
        """Return MIG instances, MPS daemons and GPUs at vfio-pci that no intent names. Raises HardwareError."""
        return [*self._unclaimed.find(), *self._passing.unclaimed(self._intents)]

    def reclaim(self, leftover: drakit.Leftover) -> None:
        """Delete an instance, end a daemon or return a GPU. Raises HardwareError, DeviceBusyError."""
        if leftover.kind == leftovers.KIND:
            self._passing.reclaim(leftover)
        else:
            self._unclaimed.release(leftover)

    def start(self, context: drakit.DriverContext) -> None:
        """Restore the settings and MPS daemons of prepared claims, and prepare to watch the GPUs' health.

        A reset may have cleared the settings, and the daemons may have ended with the driver's container. What fails now, for example because another
        process holds a GPU's lock, a worker retries. While health is monitored, it also restores each GPU that may have lost its settings.
        """
        self._context = context
        self._resources.daemons.sweep(lambda: identity.holders(self._intents()))
        restorer = restore.Restorer(self._hardware, context, self._resources.daemons, self._intents)
        self._worker = restore.RestoreWorker(restorer)
        self._worker.enqueue(restorer.restore(None))
        self._worker.start()
        if self._health is None:
            monitor.remove_taints(context, self.name)
            return
        self._monitor = monitor.HealthMonitor(
            self._hardware,
            context,
            prefix=self.name,
            policy=self._health,
            lost_settings=self._worker.enqueue,
            claimed=claimed.ClaimedHardware(
                self._hardware, context, self._resources.made, whole_beside_partitions=self._options.whole_beside_partitions
            ),
            passed=self._passed,
        )

    def watch(self, context: drakit.DriverContext) -> None:
        """Watch the GPUs until the driver stops, an error occurs, or events have to be reopened. Without health monitoring only wait.

        While there is no NVIDIA driver, discover at intervals instead, because nothing reports that it is back.
        """
        if self._monitor is None:
            context.stopping.wait()
        elif self._missing_driver() is not None:
            context.rediscover()
            context.stopping.wait(_NO_DRIVER_SECONDS)
        else:
            self._monitor.watch(context.stopping)

    def _passed(self) -> frozenset[port.GpuUuid]:
        """Return the GPUs that claims pass to virtual machines."""
        return identity.passed(self._intents(), self._hardware.boot_id())

    def stop(self) -> None:
        """Stop the restore worker."""
        if self._worker is not None:
            self._worker.stop()
        self._monitor = self._worker = self._context = None

    def metrics(self) -> Sequence[drakit.Metric]:
        """Return counts of MIG instances, memory slices, shares and MPS daemons, and the health, of every discovered GPU. Raises CallError."""
        return metrics.collect(
            self._hardware,
            self._cache.offered,
            self._intents,
            self._resources.daemons,
            health=None if self._context is None or self._health is None else faults.health_taints(self._context.taints(), self.name),
            unmonitored=None if self._monitor is None else self._monitor.unmonitored,
        )

    def discover(self) -> drakit.Inventory:
        """Return all GPUs that answer and their partitions, without what foreign instances occupy, with the taints of their faults.

        A monitored GPU that answered before stays offered while it is in the machine. If it answered only an earlier process, only the devices of
        prepared claims stay offered. Raises RetryError while there is no NVIDIA driver, HardwareError when no GPU answers.
        """
        if (missing := self._missing_driver()) is not None:
            raise drakit.RetryError(_no_driver(missing), after=_NO_DRIVER_SECONDS) from missing
        context, passed = self._context, self._passed()

        def is_kept(gpu: port.Gpu) -> bool:
            return gpu.uuid in passed or (context is not None and self._health is not None and self._hardware.is_plugged(gpu))

        if context is None:
            return discovery.discover(self._hardware, self._intents, self._options, self._cache, is_kept, self._resources.made)
        taints = context.taints()
        offered = discovery.discover(self._hardware, self._intents, self._options, self._cache, is_kept, self._resources.made)
        if self._health is not None or passed:
            minors = {view.gpu.minor for view in self._cache.offered}
            offered = claimed_devices.with_claimed_devices(offered, context, self._hardware.boot_id(), minors, is_kept)
        return faults.with_taints(offered, taints, self.name)

    def not_offered(self) -> Sequence[drakit.NotOffered]:
        """Return the GPUs that returned an error at the last discovery, or cannot be offered in any form."""
        return [*self._cache.unoffered, *self._passing.not_offered(view.gpu for view in self._cache.offered)]

    def withheld_devices(self) -> Mapping[str, str]:
        outside = {name: why for view in self._cache.offered for name, why in gpu_devices.outside_layout(view).items()}
        return {**outside, **identity.passed_devices(self._intents(), self._hardware.boot_id())}

    def plan(self, grant: Grant) -> drakit.Record:
        """Return the slot that the scheduler's device stands for, and the settings, after checking that the slot is free.

        Raises DeviceGoneError when the GPU is gone, DeviceBusyError when an instance is in the way or other claims share the GPU with different
        settings, ConfigError for parameters that this GPU or this node does not support, or that a claim may not set.
        """
        wanted = identity.Identity.of(grant, boot=self._hardware.boot_id())
        if identity.is_vfio(grant.device) and not wanted.borrowed:
            wanted = self._passing.planned(grant, wanted)
        grants = self._grants_of(grant.device, wanted)
        with self._reporting_a_lost_gpu(wanted.gpu):
            gpu = self._gpu(wanted)
            if not wanted.borrowed and not gpu.is_vgpu:
                self._check_free(grant.device.name, wanted, grants)
            elif self._is_own(grant, wanted):
                raise drakit.DeviceBusyError(
                    f"{grant.device.name}: this driver created the MIG device for a claim that its journal lost; once no pod uses it, "
                    "release it with: drakit unprepare --unclaimed --yes"
                )
            settings = gpu_settings.plan(grant, wanted, gpu, self._hardware, grants)
        if settings.mps is not None:
            self._resources.daemons.require_pods()
        is_marked = wanted.slot is not None and not wanted.borrowed and self._resources.made.folder is not None
        return dataclasses.replace(wanted, recorded_settings=settings.to_record(), marked=is_marked).to_record()

    def recall(self, grant: Grant) -> drakit.Record:
        """Return the intent that a device's attributes describe.

        An existing instance with its marker is this driver's. Any other one may be an admin's, so it counts as borrowed and is kept. Raises
        HardwareError while the GPU cannot be read.
        """
        wanted = identity.Identity.of(grant, boot=self._hardware.boot_id())
        if identity.is_vfio(grant.device) and not wanted.borrowed:
            return self._passing.recalled(grant, wanted).to_record()
        is_own = self._is_own(grant, wanted) or (not wanted.borrowed and self._is_to_be_made(wanted))
        return (dataclasses.replace(wanted, borrowed=False, marked=True) if is_own else wanted).to_record()

    def _is_to_be_made(self, wanted: identity.Identity) -> bool:
        """Return whether prepare will create or complete the instance of a slot, and so write its marker."""
        if wanted.slot is None or self._resources.made.folder is None:
            return False
        instance = instances.find_instance(self._hardware, wanted.slot)
        return instance is None or self._is_unfinished(wanted.slot, wanted.boot, instance)

    def _is_own(self, grant: Grant, wanted: identity.Identity) -> bool:
        """Return whether the instance in the slot of a grant has its marker."""
        if grant.admin_access or wanted.slot is None:
            return False
        return instances.is_marked(self._hardware, wanted.slot, self._resources.made.of_slot(wanted.slot, wanted.boot))

    def prepare(self, grant: Grant) -> drakit.Prepared:
        """Create or find the MIG device; a whole GPU needs neither. Reconcile settings, device nodes and the MPS daemon in every case.

        The device of a grant that was prepared before is only verified. Where it is gone, the returned record is empty and the engine prepares again
        from the start, so that the journal never names a missing instance. Raises DeviceBusyError where a foreign MIG device took its place; the
        foreign device is kept.
        """
        wanted = identity.Identity.from_record(grant.intent)
        if wanted.boot != self._hardware.boot_id():
            if grant.record:
                return drakit.Prepared()
            raise drakit.DeviceGoneError(f"{grant.device.name} was planned in an earlier boot")
        if not grant.record:
            self._warn_about_usage(grant, wanted)
        if (plan := wanted.plan) is not None:
            return self._prepare_vfio(grant, wanted, plan)
        with self._reporting_a_lost_gpu(wanted.gpu):
            return self._prepare(grant, wanted, self._gpu(wanted))

    def _prepare_vfio(self, grant: Grant, wanted: identity.Identity, plan: vfio.Plan) -> drakit.Prepared:
        if not self._passing.is_bound(plan):
            with self._reporting_a_lost_gpu(wanted.gpu):
                if not self._make_whole(grant, self._gpu(wanted)):
                    return drakit.Prepared()
        return self._passing.prepare(grant, plan)

    def _prepare(self, grant: Grant, wanted: identity.Identity, gpu: port.Gpu) -> drakit.Prepared:
        # Settings that cannot be read fail the grant before its instance is created.
        name, hardware, resources, settings = grant.device.name, self._hardware, self._resources, wanted.settings
        if wanted.slot is None:
            if not wanted.borrowed and not self._make_whole(grant, gpu):
                return drakit.Prepared()
            uuid: str = gpu.uuid
            record: drakit.Record = {"uuid": uuid}
            edits = cdi.of_gpu(grant.request, name, gpu, hardware.device_majors())
        else:
            made = self._mig_device(grant, gpu, wanted, wanted.slot)
            if made is None:
                return drakit.Prepared()
            uuid, record = made.uuid, made.to_record()
            majors, minors = hardware.device_majors(), hardware.capability_minors(gpu.uuid, made.instance_id, made.compute_id)
            edits = cdi.of_mig(grant.request, name, gpu, uuid, majors, minors)
        parts: list[drakit.Edits] = []
        if resources.dev_root is not None:
            device_nodes.ensure_device_nodes(edits.device_nodes, resources.dev_root)
        if resources.files is not None:
            parts.append(resources.files.of(hardware.versions().driver))
        gpu_settings.apply(hardware, wanted.gpu, settings)
        if settings.mps is not None:
            resources.daemons.ensure(wanted.holder, uuid, settings.mps, claim=str(grant.claim))
            resources.daemons.check(wanted.holder)
            parts.append(resources.daemons.access(wanted.holder))
        # The device's own variables replace those of the driver's files and of the daemon.
        return drakit.Prepared(edits=cdi.merged(*parts, edits), record=record)

    def unprepare(self, grant: Grant) -> None:
        """Stop the MPS daemon, restore the settings and delete the MIG device. Admin access and a grant without an intent need none of it.

        After a reboot only the daemon's folder is left. What other grants of the device still need stays until the last of them is unprepared.
        Raises ReleaseDeferredError while no GPU can be reached: no pod can use the device meanwhile, and the driver's next calls find it.
        """
        if not grant.intent:
            return
        wanted = identity.Identity.from_record(grant.intent)
        # Also where the intent names no daemon: after a lost journal the intent was rebuilt without its settings.
        self._resources.daemons.stop(wanted.holder)
        if wanted.boot != self._hardware.boot_id():
            self._resources.made.of(wanted).remove()
            return
        if (plan := wanted.plan) is not None:
            self._passing.release(plan)
            return
        if _is_held(wanted, self._grants_of(grant.device, wanted)):
            return
        try:
            self._release(grant, wanted)
        except drakit.HardwareError as error:
            if (missing := self._missing_driver()) is None:
                raise
            raise drakit.ReleaseDeferredError(f"{grant.device.name} is released when the NVIDIA driver works again: {missing}") from error

    def _release(self, grant: Grant, wanted: identity.Identity) -> None:
        """Restore the settings and delete the MIG device."""
        gpu_settings.undo(self._hardware, wanted.gpu, wanted.settings, applied=bool(grant.record))
        if wanted.slot is not None and not wanted.borrowed:
            marker = self._resources.made.of(wanted)
            made = identity.MigDevice.from_record(grant.record) if grant.record else None
            with self._locks.changing(wanted.gpu):
                instances.remove(self._hardware, wanted.slot, made, self._pause, marker)
                marker.remove()

    def _missing_driver(self) -> nvml_errors.CallError | None:
        """Return the error of a machine without a working NVIDIA driver; None if calls are answered or fail for another reason."""
        error = self._hardware.session_error()
        return error if error is not None and error.code in nvml_errors.NO_DRIVER else None

    def _unreachable(self, gpu: port.GpuUuid, detail: str = "") -> drakit.DrakitError:
        """Return the error for a GPU that does not answer: only where there is a working NVIDIA driver is the GPU gone."""
        if (missing := self._missing_driver()) is not None:
            return drakit.RetryError(_no_driver(missing), after=_NO_DRIVER_SECONDS)
        return drakit.DeviceGoneError(f"{gpu} is not in this machine any more, or does not answer{detail}")

    def overlaps(self, first: drakit.Device, second: drakit.Device) -> bool:
        """Return whether two devices have hardware in common: forms and partitions of one GPU, except partitions in different memory slices."""
        return identity.overlaps(first, second)

    def edits_revision(self) -> str:
        """Return a text that changes with the driver's version and files, and with the numbers of device nodes."""
        version, majors = self._hardware.versions().driver, self._hardware.device_majors()
        files = "" if self._resources.files is None else self._resources.files.revision(version)
        return f"{version} {majors} {self._hardware.population()} {files}"

    def accepts_config(self, device: drakit.Device, config: object) -> bool:
        """Return whether a configuration fits a device: GpuConfig a whole GPU, MigConfig a partition, under either API name."""
        return isinstance(config, type(self.default_config(device)))

    def default_config(self, device: drakit.Device) -> config.AnyConfig:
        """Return the configuration of a device without parameters."""
        return config.KIND_OF_TYPE[str(device.attributes[attributes.TYPE])]()

    def _warn_about_usage(self, grant: Grant, wanted: identity.Identity) -> None:
        if wanted.slot is None and not wanted.has_daemon:
            return
        for event in usage_warnings.of_claim(self._intents(grant.claim.uid), grant.intent):
            keys = {"claim": str(grant.claim), "claim_uid": grant.claim.uid, "device": grant.device.name}
            _log.warning("claim prepared with a warning", **keys, reason=event.reason, warning=event.message)
            if self._context is not None:
                self._context.record_event(grant.claim, event)

    def _grants_of(self, device: drakit.Device, wanted: identity.Identity) -> Sequence[identity.Identity]:
        """Return the identities of all grants under a shared device's locks in this boot; none of any other device."""
        return identity.from_intents(self.planned(device), wanted.boot, gpu=wanted.gpu) if wanted.shared else ()

    def _make_whole(self, grant: Grant, gpu: port.Gpu) -> bool:
        """Turn MIG mode off where drakit may. Return False only for a prepared grant whose GPU is no longer usable as a whole."""
        if gpu.is_vgpu or (self._options.whole_beside_partitions and not gpu.switches_mig_at_once):
            return True
        if instances.has_mode(self._hardware, gpu, enabled=False):
            return True
        if grant.record:
            return False
        with self._locks.changing(gpu.uuid):
            # An admin may have made instances since the plan; turning the mode off would destroy them.
            self._check_free(grant.device.name, identity.Identity.from_record(grant.intent), ())
            instances.set_mode(self._hardware, gpu, enabled=False, pause=self._pause)
        if instances.has_mode(self._hardware, gpu, enabled=False):
            return True
        if gpu.switches_mig_at_once:
            raise drakit.DeviceBusyError(f"{grant.device.name} was switched to MIG mode by another process")
        raise drakit.DeviceGoneError(
            f"{grant.device.name} is in MIG mode, so it cannot be used whole; only its admin can change the mode, by a reset"
        )

    def _gpu(self, wanted: identity.Identity) -> port.Gpu:
        """Return the GPU; raises DeviceGoneError or RetryError.

        The calls for a partition of its own show whether a GPU answers, so it is not read for one.
        """
        is_own_partition = wanted.slot is not None and not wanted.borrowed
        gpu = self._hardware.known_gpu(wanted.gpu) if is_own_partition else self._hardware.gpu(wanted.gpu)
        if gpu is None:
            raise self._unreachable(wanted.gpu)
        return gpu

    @contextlib.contextmanager
    def _reporting_a_lost_gpu(self, gpu: port.GpuUuid) -> Iterator[None]:
        """Raise DeviceGoneError for a call that fails because the GPU no longer answers, RetryError while there is no NVIDIA driver."""
        try:
            yield
        except nvml_errors.CallError as error:
            if self._hardware.gpu(gpu) is None:
                raise self._unreachable(gpu, f": {error}") from error
            raise

    def _check_free(self, device: str, wanted: identity.Identity, grants: Sequence[identity.Identity]) -> None:
        """Raise DeviceBusyError for an instance in the slot, or for any on a whole GPU. The hardware rejects a slot that overlaps another one."""
        if wanted.slot is None:
            self._check_unblocked(device, wanted, grants, instances.blocking(self._hardware, wanted))
        elif (instance := instances.find_instance(self._hardware, wanted.slot)) is not None:
            self._check_unblocked(device, wanted, grants, (instance,))

    def _check_unblocked(
        self, device: str, wanted: identity.Identity, grants: Sequence[identity.Identity], blocking: Sequence[port.GpuInstance]
    ) -> None:
        for instance in blocking:
            slot = identity.Slot.of(wanted.gpu, instance)
            if slot == wanted.slot and _is_held(wanted, grants):
                continue
            is_ours = slot in identity.owned_slots(self._intents(), wanted.boot)
            if slot == wanted.slot and not is_ours and self._is_unfinished(slot, wanted.boot, instance):
                continue
            owner = "belongs to another claim" if is_ours else "was not made by this driver"
            raise drakit.DeviceBusyError(f"{device}: GPU instance {instance.id} ({instances.describe(slot)}) is in the way and {owner}")

    def _is_unfinished(self, slot: identity.Slot, boot: str, instance: port.GpuInstance) -> bool:
        return instances.is_unfinished(self._hardware, slot, instance, self._resources.made.of_slot(slot, boot))

    def _same_mig_device(self, grant: Grant, wanted: identity.Identity, slot: identity.Slot) -> identity.MigDevice | None:
        """Return the MIG device of a prepared grant; None if it is gone, or if another grant of the shared device created it again."""
        made = instances.find(self._hardware, slot)
        if made is None:
            return None
        instance = port.GpuInstance(id=made.instance_id, profile_id=slot.profile_id, placement=slot.placement)
        is_marked = wanted.borrowed or self._resources.made.of(wanted).matches(instance)
        if is_marked and made.to_record() == grant.record:
            return made
        if is_marked and not wanted.borrowed and _is_held(wanted, self._grants_of(grant.device, wanted)):
            return None
        raise drakit.DeviceBusyError(
            f"{grant.device.name}: the claim's MIG device {grant.record.get('uuid')} was replaced by {made.uuid}, which this driver did not create"
        )

    def _mig_device(self, grant: Grant, gpu: port.Gpu, wanted: identity.Identity, slot: identity.Slot) -> identity.MigDevice | None:
        if grant.record:
            return self._same_mig_device(grant, wanted, slot)
        if not wanted.borrowed:
            with self._locks.changing(gpu.uuid):
                return self._create(grant, gpu, wanted, slot)
        made = instances.find(self._hardware, slot)
        published = grant.device.attributes.get(attributes.UUID)
        if published is not None and (made is None or made.uuid != published):
            raise drakit.DeviceGoneError(f"{grant.device.name}: the MIG device {published} is gone, and drakit makes none in its place")
        if made is None:
            why = "adminAccess creates no MIG device, and no claim has created this one"
            fix = "leave adminAccess out, or select a GPU without MIG; Kubernetes 1.36 allocates no MIG device in use to an admin claim"
            raise drakit.DeviceGoneError(f"{grant.device.name}: {why}; {fix}")
        return made

    def _create(self, grant: Grant, gpu: port.Gpu, wanted: identity.Identity, slot: identity.Slot) -> identity.MigDevice:
        instances.set_mode(self._hardware, gpu, enabled=True, pause=self._pause)
        grants = self._grants_of(grant.device, wanted)
        marker, is_trusted = self._resources.made.of(wanted), not all(other.marked for other in identity.holding_the_same(wanted, grants))
        try:
            return instances.ensure(self._hardware, slot, self._pause, marker, is_shared=wanted.shared, is_trusted=is_trusted)
        except drakit.DeviceBusyError:
            overlapping = [instance for instance in instances.blocking(self._hardware, wanted) if not slot.is_instance(instance)]
            self._check_unblocked(grant.device.name, wanted, grants, overlapping)
            raise


def _no_driver(error: nvml_errors.CallError) -> str:
    return f"no working NVIDIA driver: {error}"


def _is_held(wanted: identity.Identity, grants: Sequence[identity.Identity]) -> bool:
    """Return whether another grant holds the same shared device."""
    return bool(identity.holding_the_same(wanted, grants))
