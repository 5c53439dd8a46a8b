"""Discover the GPUs of a node. Each GPU is read by itself, so one that does not answer does not affect the others.

A GPU that answered before and returns an error now stays offered while it is in the machine, so that its taints reach the pods that use it. A GPU
that answered only an earlier process of the driver cannot be discovered; the devices of its prepared claims are published from the journal.

The intents are read before and after the hardware, so an instance that a claim creates or deletes meanwhile is known from one of the two.
"""

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import ClassVar, TypeVar

import drakit
from drakit import vfio
from drakit_gpu import identity, nvml_errors, port, share_policy
from drakit_gpu.inventory import attributes, fixed_layouts, gpu_devices
from drakit_gpu.mig import instances, markers, partitioning
from drakit_gpu.options import MigLayout

Result = TypeVar("Result")

_NO_PROFILES = "MIG mode is on, but NVML lists no MIG profiles; update the NVIDIA driver, or turn MIG mode off (nvidia-smi -mig 0)"
_log = drakit.get_logger(__name__)
_NO_MARKERS = markers.MarkerStore()
_BUILT_MAX = 4
_Key = tuple[port.Versions, tuple[gpu_devices.GpuView, ...]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscoveryOptions:
    """The choices that decide which devices are offered.

    ``whole_beside_partitions`` offers an Ampere GPU whose MIG mode is on also as a whole, as KEP-4815's example does. It is then a promise of
    exclusive use only: CUDA sees no whole GPU while the mode is on, and a change of the mode needs a reset, which is up to the admin.
    ``layouts`` are the fixed layouts; the first that matches a GPU counts. ``refusal`` returns why a GPU cannot be passed to a virtual machine; None
    offers none.
    """

    whole_beside_partitions: bool = False
    terms: share_policy.SharePolicy = share_policy.NOT_SHARED
    layouts: tuple[MigLayout, ...] = ()
    refusal: Callable[[port.Gpu], vfio.Refusal | None] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _GpuReadout:
    """The values that discovery read from one GPU."""

    gpu: port.Gpu
    mode: port.MigMode | None
    partitions: tuple[partitioning.Partition, ...]
    present: Sequence[port.GpuInstance]


def unoffered(
    gpu: str, reason: str, fix: str = "run nvidia-smi -q on this node for details; see docs/howto/gpu-health.md"
) -> drakit.NotOffered:
    """Return a GPU that discovery cannot offer. ``gpu`` is ``gpu-N`` if its minor number is known, else ``index N`` in NVML."""
    return drakit.NotOffered(kind="GPU", name=gpu, reason=reason, change=fix, is_faulty=True)


class InventoryCache:
    """The GPUs as they last answered, so that a lost GPU stays offered, with its taint, until it is removed.

    ``offered`` are those of the last discovery, ``unoffered`` the GPUs that returned an error or cannot be offered in any form.
    """

    _built: ClassVar[tuple[tuple[_Key, drakit.Inventory], ...]] = ()

    def __init__(self) -> None:
        self._views: dict[port.GpuUuid, gpu_devices.GpuView] = {}
        self.offered: tuple[gpu_devices.GpuView, ...] = ()
        self.unoffered: tuple[drakit.NotOffered, ...] = ()

    def completed(self, views: Sequence[gpu_devices.GpuView], is_kept: Callable[[port.Gpu], bool]) -> Sequence[gpu_devices.GpuView]:
        """Return the views, and those of kept GPUs that do not answer, by minor number. A kept GPU whose number is in use again is dropped."""
        answering = {view.gpu.minor for view in views}
        kept = [view for view in self._views.values() if view.gpu.minor not in answering and is_kept(view.gpu)]
        self._views |= {view.gpu.uuid: view for view in views}
        self.offered = tuple(sorted([*views, *kept], key=lambda view: view.gpu.minor))
        return self.offered

    def authored(self, versions: port.Versions) -> drakit.Inventory:
        """Return the inventory of the offered GPUs. It is slow to build, so the last ones are kept, for all drivers of the process."""
        key = versions, self.offered
        for known, built in self._built:
            if known == key:
                return built
        built = gpu_devices.build_inventory(*key)
        InventoryCache._built = ((key, built), *self._built[: _BUILT_MAX - 1])
        return built


def keep_none(_: port.Gpu) -> bool:
    """Keep no GPU: without health monitoring each is offered only while it answers."""
    return False


def discover(
    hardware: port.GpuPort,
    intents: drakit.Intents,
    choices: DiscoveryOptions,
    memory: InventoryCache | None = None,
    is_kept: Callable[[port.Gpu], bool] = keep_none,
    markers: markers.MarkerStore = _NO_MARKERS,
) -> drakit.Inventory:
    """Return all GPUs that answer and their partitions, except those that instances of other programs use; raises HardwareError if no GPU answers.

    GPUs that do not answer are left out, except those of ``memory`` for which ``is_kept`` is true. ``markers`` tell which instances this driver
    created.
    """
    cache = memory or InventoryCache()
    boot = hardware.boot_id()
    before = identity.owned_slots(intents(), boot)
    census = hardware.census()
    failed = [unoffered(f"index {gpu.index}", gpu.error) for gpu in census.silent]
    readouts = [
        readout for gpu in census.gpus if (readout := _read_or_none(gpu, functools.partial(_read, hardware, gpu), failed, cache.unoffered))
    ]
    ours = before | identity.owned_slots(intents(), boot)
    peers = attributes.nvlink_peers(census.gpus)
    views: list[gpu_devices.GpuView] = []
    for readout in readouts:
        view = _read_or_none(
            readout.gpu,
            functools.partial(_view, hardware, readout, ours, peers, choices, functools.partial(markers.of_slot, boot=boot)),
            failed,
            cache.unoffered,
        )
        views += [] if view is None else [view]
    stuck = [unoffered(f"gpu-{view.gpu.minor}", _NO_PROFILES) for view in views if _is_stuck(view.mig_mode, view.partitions)]
    unfit = [unavailable for readout in readouts for unavailable in _unfit(readout, choices)]
    for unavailable in (*stuck, *unfit):
        if unavailable not in cache.unoffered:
            _log.warning("GPU not offered", gpu=unavailable.name, reason=unavailable.reason)
    cache.unoffered = (*failed, *stuck, *unfit)
    if not cache.completed(views, is_kept) and failed:
        raise drakit.HardwareError(nvml_errors.CALLS["gpus"], f"no GPU answers ({len(failed)} found): {describe(failed)}")
    return cache.authored(hardware.versions())


def describe(gpus: Iterable[drakit.NotOffered]) -> str:
    """Return the GPUs with their reasons in one line, grouped by reason."""
    named: dict[str, list[str]] = {}
    for unavailable in gpus:
        named.setdefault(unavailable.reason, []).append(unavailable.name)
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in named.items())


def _is_stuck(mode: port.MigMode | None, partitions: Sequence[partitioning.Partition]) -> bool:
    """Return whether a GPU can be used neither as a whole nor as partitions."""
    return mode is not None and mode.current and not partitions


def _read_or_none(
    gpu: port.Gpu, read: Callable[[], Result], failed: list[drakit.NotOffered], before: Collection[drakit.NotOffered]
) -> Result | None:
    """Return the result of ``read``. If it fails, add the GPU to ``failed`` and return None; log the error unless ``before`` has it."""
    try:
        return read()
    except nvml_errors.CallError as error:
        missing = unoffered(f"gpu-{gpu.minor}", str(error))
        if missing not in before:
            _log.warning("GPU does not answer", gpu=gpu.uuid, error=str(error))
        failed.append(missing)
        return None


def _read(hardware: port.GpuPort, gpu: port.Gpu) -> _GpuReadout:
    if gpu.is_vgpu:  # a vGPU's instances are its hypervisor's
        return _GpuReadout(gpu=gpu, mode=None, partitions=(), present=())
    mode = hardware.mig_mode(gpu.uuid)
    return _GpuReadout(gpu=gpu, mode=mode, partitions=_partitions(hardware, gpu, mode), present=hardware.gpu_instances(gpu.uuid))


def _partitions(hardware: port.GpuPort, gpu: port.Gpu, mode: port.MigMode | None) -> tuple[partitioning.Partition, ...]:
    if mode is None or not (mode.current or gpu.switches_mig_at_once):
        return ()
    profiles = hardware.gpu_instance_profiles(gpu.uuid)
    return partitioning.partitions((profile, hardware.possible_placements(gpu.uuid, profile.id)) for profile in profiles)


def _view(
    hardware: port.GpuPort,
    readout: _GpuReadout,
    ours: frozenset[identity.Slot],
    peers: attributes.NvlinkPeers,
    choices: DiscoveryOptions,
    marker: Callable[[identity.Slot], markers.Marker],
) -> gpu_devices.GpuView:
    gpu, fixed = readout.gpu, _fixed_layout(readout, choices)
    own_slots = [slot for slot in ours if slot.gpu == gpu.uuid]
    foreign = tuple(instance for instance in readout.present if not any(slot.is_instance(instance) for slot in own_slots))
    static: dict[port.GpuInstance, str] = {}
    unfinished: set[port.GpuInstance] = set()
    for instance in foreign:
        slot = identity.Slot.of(gpu.uuid, instance)
        if (device := instances.find_static(hardware, slot)) is not None:
            static[instance] = device.uuid
        elif instances.is_unfinished(hardware, slot, instance, marker(slot)):
            unfinished.add(instance)
    return gpu_devices.GpuView(
        gpu=gpu,
        partitions=readout.partitions,
        foreign=foreign,
        static=static,
        unfinished=frozenset(unfinished),
        can_be_whole=_can_be_whole(readout, choices) if fixed is None else fixed.is_whole,
        layout=None if fixed is None else fixed.partitions,
        why_outside="" if fixed is None else fixed.why_outside,
        own=() if fixed is None else tuple(_instance_of(slot) for slot in own_slots),
        mig_mode=readout.mode,
        peers=peers[gpu.uuid],
        clique=attributes.nvlink_clique(gpu, peers),
        terms=choices.terms,
        vfio=choices.refusal is not None and not gpu.is_vgpu and choices.refusal(gpu) is None,
    )


def _can_be_whole(readout: _GpuReadout, choices: DiscoveryOptions) -> bool:
    return not _is_stuck(readout.mode, readout.partitions) and (
        readout.gpu.switches_mig_at_once or not readout.partitions or choices.whole_beside_partitions
    )


def _fixed_layout(readout: _GpuReadout, choices: DiscoveryOptions) -> fixed_layouts.FixedLayout | None:
    return fixed_layouts.of_gpu(
        readout.gpu,
        gpu_devices.whole_name(readout.gpu),
        readout.mode,
        readout.partitions,
        choices.layouts,
        can_be_whole=_can_be_whole(readout, choices),
    )


def _unfit(readout: _GpuReadout, choices: DiscoveryOptions) -> Iterator[drakit.NotOffered]:
    """Yield the GPU if it cannot have its fixed layout."""
    fixed = _fixed_layout(readout, choices)
    if fixed is not None and fixed.reason and not _is_stuck(readout.mode, readout.partitions):
        yield unoffered(gpu_devices.whole_name(readout.gpu), fixed.reason, fixed.fix)


def _instance_of(slot: identity.Slot) -> port.GpuInstance:
    """Return a claim's instance for counting. Its id does not matter there."""
    return port.GpuInstance(id=0, profile_id=slot.profile_id, placement=slot.placement)
