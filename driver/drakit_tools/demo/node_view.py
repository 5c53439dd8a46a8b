"""What exists on a node, read from outside the driver: hardware, NIC shares, CDI files and the driver's journal.

A view opens only what another process may open while the driver runs, and changes nothing.
"""

import dataclasses
import json
import pathlib
from collections.abc import Sequence

from drakit import machines
from drakit import settings as values
from drakit.cli import composition, drawing, views
from drakit.cli.commands import show, slices
from drakit.core import inventory, lifecycle
from drakit.telemetry import plurals
from drakit_gpu import port as gpu_port
from drakit_gpu.mock import mock_gpus
from drakit_nic import mock_port as mock_nics
from drakit_nic import port as nic_port

_ALL_GPUS = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counts:
    """Numbers of instances, shares, files and claims; all zero on an unused node."""

    gpu_instances: int = 0
    nic_shares: int = 0
    cdi_files: int = 0
    prepared: int = 0
    half_done: int = 0

    def __str__(self) -> str:
        kinds = (
            ("GPU instance", ""),
            ("NIC share", ""),
            ("CDI file", ""),
            ("prepared claim", ""),
            ("claim in progress", "claims in progress"),
        )
        return ", ".join(plurals.counted(amount, *kind) for amount, kind in zip(dataclasses.astuple(self), kinds, strict=True))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The state at one moment. ``instances`` and ``shares`` come from the hardware, ``entries`` from the journals of all families."""

    instances: dict[gpu_port.GpuUuid, tuple[gpu_port.GpuInstance, ...]]
    shares: tuple[nic_port.Share, ...]
    cdi_files: tuple[pathlib.Path, ...]
    entries: tuple[lifecycle.Entry, ...]

    @property
    def counts(self) -> Counts:
        """Return only the numbers."""
        prepared = sum(entry.state is lifecycle.State.PREPARED for entry in self.entries)
        return Counts(
            gpu_instances=sum(map(len, self.instances.values())),
            nic_shares=len(self.shares),
            cdi_files=len(self.cdi_files),
            prepared=prepared,
            half_done=len(self.entries) - prepared,
        )

    def files_of(self, uid: str) -> tuple[pathlib.Path, ...]:
        """Return the CDI files of one claim."""
        return tuple(file for file in self.cdi_files if uid in file.name)

    def entry(self, uid: str) -> lifecycle.Entry | None:
        """Return the journal's entry of one claim, or None."""
        return next((entry for entry in self.entries if entry.claim.uid == uid), None)


class NodeView:
    """Reads the state of one node of a mock machine, with the settings of its driver."""

    def __init__(self, settings: values.Settings) -> None:
        chosen = composition.machine(settings)
        if chosen is None:
            raise TypeError("the demo runs on mock machines")
        self.machine: machines.Choice = chosen
        self._cdi = settings.node.cdi_dir
        self._families = composition.families(settings)
        self._gpus = mock_gpus.MockGpus(chosen)
        self._nics = mock_nics.MockPort(chosen)

    def look(self) -> Snapshot:
        """Return the current state."""
        return Snapshot(
            instances={gpu.uuid: tuple(self._gpus.gpu_instances(gpu.uuid)) for gpu in self._gpus.gpus()},
            shares=self._nics.shares(),
            cdi_files=tuple(sorted(self._cdi.glob("*.json"))) if self._cdi.is_dir() else (),
            entries=tuple(entry for _, entries in self._views() for entry in entries),
        )

    def offers(self) -> list[tuple[composition.Family, inventory.Inventory]]:
        """Return the inventory of each driver."""
        return slices.inventories(self._families)

    def memory_map(self, width: int | None = None) -> list[str]:
        """Return a map of the GPUs' memory slices with their holders; on a machine with many GPUs, only of GPUs in use."""
        lines: list[str] = []
        for offered, entries in self._views():
            taken = _labels(entries)
            fitting, best = drawing.fragmentation(offered, taken), drawing.at_best(offered, taken)
            maps = drawing.gpu_maps(offered, taken)
            shown = [gpu for gpu in maps if gpu.spans or len(maps) <= _ALL_GPUS]
            for gpu in shown:
                possible, total = fitting[gpu.counter_set]
                said = drawing.verdict(possible, best.get(gpu.counter_set, possible))
                lines += [
                    f"{gpu.counter_set}: {possible} of {plurals.counted(total, 'device')} still fit",
                    *drawing.draw_gpu(gpu, width),
                    *([said] if said else []),
                ]
            if len(shown) < len(maps):
                lines.append(f"and {plurals.counted(len(maps) - len(shown), 'more GPU')}, not in use")
        return lines

    def bandwidth_bars(self, width: int | None = None) -> list[str]:
        """Return a bar of each NIC's bandwidth with its shares."""
        bars = [bar for offered, entries in self._views() for bar in show.bars(offered, entries)]
        return [line for bar in bars for line in (bar.device, *drawing.draw_bar(bar, width))]

    def mig_uuids(self) -> frozenset[str]:
        """Return the UUIDs of all MIG devices that exist in the hardware."""
        return frozenset(
            compute.mig_uuid
            for gpu in self._gpus.gpus()
            for instance in self._gpus.gpu_instances(gpu.uuid)
            for compute in self._gpus.compute_instances(gpu.uuid, instance.id)
        )

    def interfaces(self) -> frozenset[str]:
        """Return the names of the offered network interfaces."""
        flat = [offered.flat() for _, offered in self.offers()]
        return frozenset(
            str(device.attributes["ifName"]) for inventory in flat for device in inventory.devices if "ifName" in device.attributes
        )

    def profiles(self) -> frozenset[str]:
        """Return the names of the MIG profiles of this machine's GPUs."""
        return frozenset(profile.name for gpu in self._gpus.gpus() for profile in self._gpus.gpu_instance_profiles(gpu.uuid))

    def _views(self) -> list[tuple[inventory.Inventory, Sequence[lifecycle.Entry]]]:
        return [(seen.offered, seen.entries) for seen in map(views.look, self._families)]


def cdi_summary(file: pathlib.Path) -> list[str]:
    """Return what a CDI file gives containers, in a few lines; mounts are counted, with the path of the first."""
    spec = json.loads(file.read_text("utf-8"))
    lines = [f"kind: {spec['kind']}, CDI {spec['cdiVersion']}"]
    for device in spec["devices"]:
        edits = device["containerEdits"]
        lines.append(f"device: {device['name']}")
        lines += [f"env: {variable}" for variable in edits.get("env", ())]
        if nodes := [node["path"] for node in edits.get("deviceNodes", ())]:
            lines.append(f"device nodes: {' '.join(nodes)}")
        if mounts := edits.get("mounts", ()):
            lines.append(f"{plurals.counted(len(mounts), 'mount')}, the first: {mounts[0]['hostPath']} on {mounts[0]['containerPath']}")
    return lines


def names(file: pathlib.Path, device: str) -> bool:
    """Return whether a CDI file defines a device, given by its qualified name ``vendor/class=name``."""
    spec = json.loads(file.read_text("utf-8"))
    return any(f"{spec['kind']}={item['name']}" == device for item in spec["devices"])


def _labels(entries: Sequence[lifecycle.Entry]) -> dict[str, str]:
    """Return a label for each device that is not shared: the request if the claim has several devices, else the claim's name."""
    return {
        grant.device.name: grant.request if len(entry.grants) > 1 else entry.claim.name
        for entry in entries
        for grant in entry.grants
        if grant.share_id is None
    }
