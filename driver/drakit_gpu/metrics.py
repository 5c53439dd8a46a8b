"""Metrics of the GPUs. Their label ``gpu`` is the device name of the whole GPU.

GPUs and their tables are those of the last discovery, so one scrape asks a GPU only for its instances and its sensors. A GPU that does not answer
lacks only the metrics of these calls.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence

import drakit
from drakit_gpu import identity, nvml_errors, port
from drakit_gpu.health import faults
from drakit_gpu.inventory import gpu_devices
from drakit_gpu.mig import partitioning
from drakit_gpu.sharing.mps import pod_daemons

_log = drakit.get_logger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuCounts:
    """The counts of one GPU; None is not reported.

    ``owners`` counts MIG instances by owner, ``used`` and ``slices`` the memory slices in use and in total, ``shares`` those held by claims,
    ``daemons`` the running MPS daemons. ``healthy`` is whether neither the GPU nor a part of it has a fault, ``monitored`` whether it sends Xids.
    ``sensors`` are those that the GPU reports.
    """

    gpu: str
    shares: int
    daemons: int
    owners: Mapping[str, int] | None = None
    used: int | None = None
    slices: int | None = None
    healthy: bool | None = None
    monitored: bool | None = None
    sensors: port.Sensors = port.NO_SENSORS


def collect(
    hardware: port.GpuPort,
    views: Sequence[gpu_devices.GpuView],
    intents: drakit.Intents,
    daemons: pod_daemons.PodDaemons,
    *,
    health: faults.TaintsByDevice | None,
    unmonitored: Collection[str] | None,
) -> tuple[drakit.Metric, ...]:
    """Return the metrics of these GPUs. Raises CallError where the boot id cannot be read.

    ``health`` has the taints of the health monitor, ``unmonitored`` the UUIDs of GPUs that send no Xids. None without a monitor.
    """
    boot = hardware.boot_id()
    before = identity.owned_slots(intents(), boot)
    present = {view.gpu.uuid: _present(hardware, view) for view in views}
    after = tuple(intents())
    ours, grants = before | identity.owned_slots(after, boot), identity.from_intents(after, boot)
    metrics: list[drakit.Metric] = []
    for view in views:
        count = _counted(view, present[view.gpu.uuid], ours, grants, daemons)
        anchor = faults.gpu_anchor(view.gpu.minor)
        healthy = None if health is None else not any(faults.affects(anchor, device) for device in health)
        monitored = None if unmonitored is None else view.gpu.uuid not in unmonitored
        sensors = _sensors(hardware, view)
        metrics += of_gpu(dataclasses.replace(count, healthy=healthy, monitored=monitored, sensors=sensors))
    return tuple(metrics)


def of_gpu(count: GpuCounts) -> Iterator[drakit.Metric]:
    """Return the metrics of one GPU."""
    for owner, number in (count.owners or {}).items():
        yield _metric(count, "gpu_mig_instances", "MIG instances on a GPU, by owner.", number, owner=owner)
    for name, documentation, value in (
        ("gpu_memory_slices", "Memory slices of a GPU that MIG instances can use.", count.slices),
        ("gpu_memory_slices_used", "Memory slices of a GPU that MIG instances use.", count.used),
        ("gpu_shares_held", "Shares of a GPU and of its partitions that claims hold.", count.shares),
        ("gpu_mps_daemons", "MPS daemons that run for claims of a GPU.", count.daemons),
        ("gpu_healthy", "Whether a GPU and all its partitions are without a fault.", count.healthy),
        ("gpu_monitored", "Whether a GPU sends its Xids; otherwise it is only polled.", count.monitored),
        ("gpu_utilization_ratio", "The share of time in which a kernel ran on a GPU.", count.sensors.utilization),
        ("gpu_memory_used_bytes", "Memory of a GPU in use.", count.sensors.memory_used),
        ("gpu_temperature_celsius", "Temperature of a GPU.", count.sensors.temperature),
        ("gpu_power_watts", "Power that a GPU draws.", count.sensors.power),
        ("gpu_power_limit_watts", "The enforced power limit of a GPU.", count.sensors.power_limit),
    ):
        if value is not None:
            yield _metric(count, name, documentation, value)


def _metric(count: GpuCounts, name: str, documentation: str, value: float, **labels: str) -> drakit.Metric:
    return drakit.Metric(name=name, documentation=documentation, value=float(value), labels={"gpu": count.gpu, **labels})


def _present(hardware: port.GpuPort, view: gpu_devices.GpuView) -> Sequence[port.GpuInstance] | None:
    """Return the instances of a GPU; None if it has no MIG or does not answer."""
    if view.mig_mode is None:
        return None
    try:
        return hardware.gpu_instances(view.gpu.uuid)
    except nvml_errors.CallError as error:
        _log.debug("counting GPU instances failed", gpu=view.gpu.uuid, error=str(error))
        return None


def _sensors(hardware: port.GpuPort, view: gpu_devices.GpuView) -> port.Sensors:
    """Return what a GPU measures; nothing if it does not answer."""
    try:
        return hardware.sensors(view.gpu.uuid)
    except nvml_errors.CallError as error:
        _log.debug("reading GPU sensors failed", gpu=view.gpu.uuid, error=str(error))
        return port.NO_SENSORS


def _counted(
    view: gpu_devices.GpuView,
    present: Sequence[port.GpuInstance] | None,
    ours: frozenset[identity.Slot],
    grants: Sequence[identity.Identity],
    daemons: pod_daemons.PodDaemons,
) -> GpuCounts:
    grants = [grant for grant in grants if grant.gpu == view.gpu.uuid]
    count = GpuCounts(
        gpu=gpu_devices.whole_name(view.gpu),
        shares=sum(grant.shared for grant in grants),
        daemons=sum(grant.has_daemon and daemons.is_alive(grant.holder) for grant in grants),
        slices=len(partitioning.all_slice_counters(view.partitions)) or None,
    )
    if present is None:
        return count
    own = sum(any(slot.gpu == view.gpu.uuid and slot.is_instance(instance) for slot in ours) for instance in present)
    used = sum(instance.placement.size for instance in present) if view.partitions else None
    return dataclasses.replace(count, owners={"ours": own, "others": len(present) - own}, used=used)
