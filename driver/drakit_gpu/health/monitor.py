"""The monitor of a node's GPUs: it reads events and polls the hardware, and sets taints, reports health and triggers publishing.

``GpuDriver.watch`` runs it in the framework's thread, which waits for no other thread. At every poll it compares the faults with the taints that are
set. So a call that failed is repeated at the next poll, and a restarted driver continues where the last one ended.
"""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

import drakit
from drakit_gpu import nvml_errors, port
from drakit_gpu.health import claimed as claims_hardware
from drakit_gpu.health import faults, signals, xids
from drakit_gpu.inventory import claimed_devices, gpu_devices
from drakit_gpu.mig import partitioning

Result = TypeVar("Result")

_log = drakit.get_logger(__name__)
_POLLS_BETWEEN_REFRESHES = 12
# A busy GPU returns these, so they do not evict the programs that run on it.
_TRANSIENT = frozenset(
    {
        nvml_errors.Code.TIMEOUT,
        nvml_errors.Code.IN_USE,
        nvml_errors.Code.NOT_READY,
        nvml_errors.Code.INVALID_STATE,
        nvml_errors.Code.INSUFFICIENT_RESOURCES,
    }
)
_MAY_LOSE_SETTINGS = frozenset({signals.EventKind.RECOVERY, signals.EventKind.UNAVAILABLE})


def _ignore(_: Collection[port.GpuUuid]) -> None:
    """Do nothing."""


class HealthMonitor:
    """Monitors the GPUs while ``watch`` runs. ``prefix`` is the driver's name, the domain of its taints.

    ``lost_settings`` is called with the GPUs that may have lost their settings, once they answer: after a change of mode, a reset or recovery, a
    reload of the kernel driver, and a time without events. It must return at once. ``claimed`` detects what others changed under claims.
    GPUs that are ``passed`` to virtual machines are not monitored.
    """

    def __init__(
        self,
        hardware: port.GpuPort,
        context: drakit.DriverContext,
        *,
        prefix: str,
        policy: faults.HealthPolicy,
        now: Callable[[], float] = time.monotonic,
        lost_settings: Callable[[Collection[port.GpuUuid]], None] = _ignore,
        claimed: claims_hardware.ClaimedHardware | None = None,
        passed: Callable[[], Collection[port.GpuUuid]] = tuple,
    ) -> None:
        self._hardware = hardware
        self._context = context
        self._prefix = prefix
        self._policy = policy
        self._now = now
        self._faults: tuple[faults.Fault, ...] = faults.from_taints(context.taints(), prefix, policy, now())
        self._gpus: dict[int, port.Gpu] = {}
        self._modes: dict[port.GpuUuid, port.MigMode | None] = {}
        self._lost: frozenset[int] = frozenset()
        self._unhealthy: frozenset[int] = frozenset()
        self._maybe_lost_settings: frozenset[port.GpuUuid] = frozenset()
        self._lost_settings = lost_settings
        self._claimed, self._passed = claimed, passed
        self._population: str | None = None
        self._polls = 0
        self._repartitioned: frozenset[str] = frozenset()
        self._reported: dict[str, drakit.HealthReport] = {}
        self._unmonitored: frozenset[str] | None = None

    @property
    def unmonitored(self) -> frozenset[str] | None:
        """UUIDs of the GPUs that send no Xids; None until events were first opened."""
        return self._unmonitored

    def watch(self, stopping: drakit.StopSignal) -> None:
        """Wait for events and poll until ``stopping`` is set, or until events have to be reopened. Raises CallError.

        NVML waits in C, so it is called with a time limit, after which ``stopping`` is checked. After an error the GPUs are polled once: their state
        can be read while no events can be opened. Any of them may have lost its settings unnoticed.
        """
        try:
            self._watch_events(stopping)
        except Exception:
            self._maybe_lost_settings |= {gpu.uuid for gpu in self._gpus.values()}
            self.poll()
            raise

    def handle_event(self, event: signals.Event) -> bool:
        """Handle an event and return whether to poll the GPUs soon. MIG events wait for the next poll: drakit itself causes most of them."""
        if event.kind in _MAY_LOSE_SETTINGS:
            self._maybe_lost_settings |= {port.GpuUuid(event.gpu)}
        if event.kind is signals.EventKind.MIG:
            self._repartitioned |= {event.gpu}
            return False
        gpu = next((gpu for gpu in self._gpus.values() if gpu.uuid == event.gpu), None)
        if gpu is None:
            return True
        if event.kind is signals.EventKind.DOUBLE_BIT_ECC:
            self._add(faults.from_memory_error(self._anchor(gpu, event.instance_id), self._now()))
        elif event.xid is not None:
            self._handle_xid(gpu, xids.of(event.xid, self._policy.ignored), event.instance_id)
        return True

    def poll(self) -> bool:
        """Poll all GPUs and publish what changed. Return whether events have to be reopened, because GPUs came, went, or answer again."""
        now, lost = self._now(), self._lost
        is_new = self._refresh_gpus()
        if self._claimed is not None:
            self._claimed.load()
        observations = self._observe()
        self._lost = frozenset(minor for minor, observation in observations.items() if observation.lost)
        updated = (self._updated(fault, observations, now) for fault in self._faults)
        fresh = [fault for minor, observation in observations.items() for fault in faults.from_observation(minor, observation, now)]
        self._log_new(fresh)
        self._faults = faults.merged((fault for fault in updated if fault is not None), fresh)
        if self._lost != lost or self._repartitioned:
            self._maybe_lost_settings |= {
                gpu.uuid for gpu in self._gpus.values() if gpu.uuid in self._repartitioned and not self._has_mig(gpu)
            }
            self._repartitioned = frozenset()
            self._context.rediscover()
        self._publish(now)
        self._report_lost_settings(observations)
        return is_new or self._lost != lost

    def _watch_events(self, stopping: drakit.StopSignal) -> None:
        with self._hardware.events() as events:
            self._unmonitored = events.unmonitored
            last_poll, is_due = self._now() - self._policy.poll, False
            while not stopping.is_set():
                waited = self._now() - last_poll
                if waited >= self._policy.poll or (is_due and waited >= self._policy.event_wait):
                    last_poll, is_due = self._now(), False
                    if self.poll():
                        return
                event = events.wait(self._policy.event_wait)
                if event is not None:
                    is_due |= self.handle_event(event)

    def _refresh_gpus(self) -> bool:
        """List the GPUs again where they may have changed; return whether they have."""
        population = self._hardware.population()
        is_new = population != self._population
        self._polls += 1
        if not is_new and self._polls % _POLLS_BETWEEN_REFRESHES:
            return False
        if is_new and self._population is not None:
            self._hardware.renew()
            self._context.rediscover()
        before = claimed_devices.claimed_gpus(self._context, self._hardware.boot_id()) if self._population is None else self._gpus
        passed = self._passed()
        kept = {minor: gpu for minor, gpu in before.items() if gpu.uuid not in passed and self._hardware.is_plugged(gpu)}
        self._gpus = kept | {gpu.minor: gpu for gpu in self._hardware.gpus()}
        self._faults = tuple(
            fault for fault in self._faults if fault.minor not in before or _is_same(before[fault.minor], self._gpus.get(fault.minor))
        )
        if is_new and self._population is not None:
            self._maybe_lost_settings |= {gpu.uuid for gpu in self._gpus.values()}
        changed = self._gpus.keys() != before.keys()
        if changed and self._population is not None:
            self._context.rediscover()
        self._population = population
        return is_new or changed

    def _observe(self) -> dict[int, faults.Observation]:
        """Return the observation of each GPU. While no GPU answers, a GPU with an error of the NVML session is left out: its state is unknown."""
        observations: dict[int, faults.Observation] = {}
        unclear: dict[int, nvml_errors.CallError] = {}
        for minor, gpu in self._gpus.items():
            try:
                self._hardware.ping(gpu)
                observation: faults.Observation | None = self._observe_answering(gpu)
            except nvml_errors.CallError as error:
                if error.code in nvml_errors.SESSION_ERRORS:
                    unclear[minor] = error
                    continue
                observation = self._observe_failed(gpu, error)
            if observation is not None:
                observations[minor] = observation
        if any(not observation.lost for observation in observations.values()):
            return observations | {
                minor: faults.Observation(lost=True, transient=True, error=str(unknown)) for minor, unknown in unclear.items()
            }
        for minor, unknown in unclear.items():
            _log.warning("GPU health unknown", gpu=self._gpus[minor].uuid, error=str(unknown))
        return observations

    def _observe_answering(self, gpu: port.Gpu) -> faults.Observation:
        """Return the observation of a GPU that answers. Raises CallError only where it is lost or needs a reset."""
        action, has_action = self._read(gpu, lambda: self._hardware.recovery_action(gpu.uuid))
        fabric, has_fabric = self._read(gpu, lambda: self._hardware.fabric(gpu.uuid))
        spots, has_spots = self._read(gpu, lambda: self._spots(gpu))
        changes = self._changes(gpu)
        return faults.Observation(
            partial=not (has_action and has_fabric and has_spots),
            action=action,
            fabric="" if fabric is None else fabric.fault,
            spots=spots or frozenset(),
            changes=changes.found,
            unchecked=changes.unchecked,
        )

    def _read(self, gpu: port.Gpu, call: Callable[[], Result]) -> tuple[Result | None, bool]:
        """Return a part of a GPU's state and whether it could be read. Raises CallError only where the GPU is lost or needs a reset."""
        try:
            return call(), True
        except nvml_errors.CallError as error:
            if error.code in nvml_errors.FAILED_GPU:
                raise
            _log.warning("GPU health incomplete", gpu=gpu.uuid, error=str(error))
            return None, False

    def _changes(self, gpu: port.Gpu) -> claims_hardware.Changes:
        """Return what changed under the claims of a GPU; note what else follows from it."""
        mode, has_mode = self._read(gpu, lambda: None if gpu.is_vgpu else self._hardware.mig_mode(gpu.uuid))
        if not has_mode:
            return claims_hardware.Changes(unchecked=self._claimed_anchors(gpu))
        if self._modes.setdefault(gpu.uuid, mode) != mode:
            self._modes[gpu.uuid] = mode
            self._maybe_lost_settings |= {gpu.uuid}
            self._context.rediscover()
        changes = claims_hardware.Changes() if self._claimed is None else self._claimed.changes(gpu, mode)
        if any(text.startswith(claims_hardware.COMPUTE_MODE_CHANGED) for text in changes.found.values()):
            self._maybe_lost_settings |= {gpu.uuid}
        return changes

    def _claimed_anchors(self, gpu: port.Gpu) -> frozenset[str]:
        return frozenset() if self._claimed is None else self._claimed.anchors(gpu)

    def _observe_failed(self, gpu: port.Gpu, error: nvml_errors.CallError) -> faults.Observation | None:
        """Return the observation of a GPU that answers with an error; None if the GPU was removed from the machine."""
        if error.code is nvml_errors.Code.RESET_REQUIRED:
            return faults.Observation(action=signals.RecoveryAction.RESET, unchecked=self._claimed_anchors(gpu))
        if error.code is nvml_errors.Code.NOT_FOUND and not self._hardware.is_plugged(gpu):
            return None
        return faults.Observation(lost=True, transient=error.code in _TRANSIENT, error=str(error))

    def _has_mig(self, gpu: port.Gpu) -> bool:
        """Return whether MIG mode was on at the last poll. A GPU in MIG mode has no settings to lose."""
        mode = self._modes.get(gpu.uuid)
        return mode is not None and mode.current

    def _report_lost_settings(self, observations: dict[int, faults.Observation]) -> None:
        """Report the GPUs that answer and may have lost their settings, also those that were lost or needed a recovery action at the last poll."""
        healthy = {
            minor
            for minor, observation in observations.items()
            if not (observation.lost or observation.partial or observation.requests_recovery)
        }
        back = {gpu.uuid for minor, gpu in self._gpus.items() if minor in healthy & self._unhealthy}
        self._unhealthy = frozenset(self._gpus.keys() - healthy)
        answering = {gpu.uuid for minor, gpu in self._gpus.items() if minor in observations and not observations[minor].lost}
        ready = (self._maybe_lost_settings | back) & answering
        self._maybe_lost_settings &= {gpu.uuid for gpu in self._gpus.values()} - ready
        if ready:
            self._lost_settings(ready)

    def _spots(self, gpu: port.Gpu) -> frozenset[faults.Spot]:
        """Return where instances are; read only while a fault is confined to an instance."""
        if all(fault.minor != gpu.minor or fault.spot is None for fault in self._faults):
            return frozenset()
        return frozenset((instance.profile_id, instance.placement.start) for instance in self._hardware.gpu_instances(gpu.uuid))

    def _updated(self, fault: faults.Fault, observations: dict[int, faults.Observation], now: float) -> faults.Fault | None:
        if fault.minor not in observations:
            return fault
        after = faults.updated(fault, observations[fault.minor], self._policy, now)
        if after is None:
            _log.info("GPU fault cleared", **_keys(fault))
        return after

    def _handle_xid(self, gpu: port.Gpu, xid: xids.Xid, instance_id: int | None) -> None:
        if xid.gravity is xids.Gravity.NOTHING:
            return
        anchor = self._anchor(gpu, instance_id)
        if xid.gravity is xids.Gravity.PROGRAM:
            self._notify(anchor, f"Xid {xid.number}: {xid.text}")
        else:
            self._add(faults.from_xid(xid, anchor, self._now()))

    def _anchor(self, gpu: port.Gpu, instance_id: int | None) -> str:
        """Return the name of an instance's partition, or of the whole GPU where NVML names no instance or an unknown one.

        NVML names instance 0 on a GPU without MIG.
        """
        whole = faults.gpu_anchor(gpu.minor)
        if instance_id is None:
            return whole
        try:
            mode = self._hardware.mig_mode(gpu.uuid)
            if mode is None or not mode.current:
                return whole
            instance = next((instance for instance in self._hardware.gpu_instances(gpu.uuid) if instance.id == instance_id), None)
            profiles = {profile.id: profile for profile in self._hardware.gpu_instance_profiles(gpu.uuid)}
        except nvml_errors.CallError:
            return whole
        if instance is None or instance.profile_id not in profiles:
            return whole
        return gpu_devices.partition_name(gpu, partitioning.Partition(profile=profiles[instance.profile_id], placement=instance.placement))

    def _add(self, fault: faults.Fault) -> None:
        is_new = fault.key not in {existing.key for existing in self._faults}
        self._log_new([fault])
        self._faults = faults.merged(self._faults, [faults.with_last_observation(fault, self._faults)])
        if is_new:
            self._publish(self._now())
            self._notify(fault.anchor, fault.text)

    def _log_new(self, fresh: Iterable[faults.Fault]) -> None:
        known = {fault.key: fault.text for fault in self._faults}
        for fault in fresh:
            if fault.key not in known or (fault.kind == faults.CHANGED and fault.text != known[fault.key]):
                _log.warning("GPU fault", **_keys(fault))
                if fault.kind in {faults.LOST, faults.CHANGED}:
                    self._notify(fault.anchor, fault.text)

    def _notify(self, anchor: str, text: str) -> None:
        """Send an Event to each claim that a fault affects."""
        for grant in self._context.grants():
            if faults.affects(anchor, grant.device.name):
                self._context.record_event(grant.claim, drakit.Event(reason="GpuFault", message=f"{grant.device.name}: {text}."))

    def _publish(self, now: float) -> None:
        """Set the taints and health reports of the current faults."""
        wanted = faults.taints(self._faults, self._prefix, self._policy, now)
        existing = faults.health_taints(self._context.taints(), self._prefix)
        changed = [
            self._update_taints(device, wanted.get(device, ()), existing.get(device, ()))
            for device in sorted(wanted.keys() | existing.keys())
        ]
        if any(changed):
            self._context.rediscover()
        if self._faults or self._reported:
            self._report_health()

    def _update_taints(self, device: str, wanted: Sequence[drakit.Taint], existing: Sequence[drakit.Taint]) -> bool:
        """Set a device's taints; return whether any changed."""
        present = {(taint.key, taint.effect, taint.value) for taint in existing}
        surplus = {key for key, effect, _ in present if (key, effect) not in {(taint.key, taint.effect) for taint in wanted}}
        missing = [taint for taint in wanted if taint.key in surplus or (taint.key, taint.effect, taint.value) not in present]
        for key in sorted(surplus):
            self._context.untaint(device, key)
        for taint in missing:
            self._context.taint(device, taint)
        return bool(surplus or missing)

    def _report_health(self) -> None:
        reports = faults.reports(self._faults, [grant.device.name for grant in self._context.grants()])
        for device, report in reports.items():
            if self._reported.get(device) != report:
                self._context.report_health(report)
        for device in self._reported.keys() - reports.keys():
            self._context.report_health(drakit.HealthReport(device=device, health=drakit.Health.HEALTHY))
        self._reported = reports


def remove_taints(context: drakit.DriverContext, prefix: str) -> None:
    """Remove the taints that an earlier process set, because health monitoring is now off."""
    for device, kept in faults.health_taints(context.taints(), prefix).items():
        for key in sorted({taint.key for taint in kept}):
            context.untaint(device, key)


def _is_same(before: port.Gpu, now: port.Gpu | None) -> bool:
    return now is not None and now.uuid == before.uuid


def _keys(fault: faults.Fault) -> dict[str, object]:
    return {"device": fault.anchor, "kind": fault.kind, "value": fault.value, "fault": fault.text, "fatal": fault.fatal}
