"""What exists on a node, read from outside the driver: hardware, NIC shares, CDI files and the driver's journal.

A view opens only what another process may open while the driver runs, and changes nothing.
"""

import dataclasses
import pathlib
from collections.abc import Sequence

from drakit import machines
from drakit import settings as values
from drakit.cli import composition, drawing, fits, views
from drakit.cli.commands import show, slices
from drakit.core import inventory, lifecycle
from drakit.telemetry import plurals
from drakit_gpu import port as gpu_port
from drakit_gpu.mock import mock_gpus
from drakit_nic import mock_port as mock_nics
from drakit_nic import port as nic_port


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

    def offers(self) -> dict[str, frozenset[str]]:
        """Return the names of the devices that each driver offers."""
        return {
            family.spec.driver_name: frozenset(device.name for device in offered.flat().devices)
            for family, offered in slices.inventories(self._families)
        }

    def memory_map(self, width: int | None = None) -> list[str]:
        """Return a map of each GPU's memory slices with their holders."""
        lines: list[str] = []
        for offered, entries in self._views():
            taken = _labels(entries)
            fitting = fits.by_counter_set(offered, taken)
            for gpu in drawing.gpu_maps(offered, taken):
                verdict = fitting[gpu.counter_set].verdict
                lines += [f"{gpu.counter_set}: {fitting[gpu.counter_set].text}", *drawing.draw_gpu(gpu, width)]
                lines += [verdict] if verdict else []
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

    def _views(self) -> list[tuple[inventory.Inventory, Sequence[lifecycle.Entry]]]:
        return [(seen.offered, seen.entries) for seen in map(views.look, self._families)]


def _labels(entries: Sequence[lifecycle.Entry]) -> dict[str, str]:
    """Return a label for each device that is not shared: the request if the claim has several devices, else the claim's name."""
    return {
        grant.device.name: grant.request if len(entry.grants) > 1 else entry.claim.name
        for entry in entries
        for grant in entry.grants
        if grant.share_id is None
    }
