"""Detect what others changed under prepared claims: MIG mode, MIG devices and the compute mode.

An admin may delete a claim's MIG device, create another one in its place, or change the GPU's mode, which may take effect at once or at the next
reset. The slot still counts as the claim's, so discovery shows none of it. A MIG device is recognized by its ids and UUID. NVML reuses both, so once
a device is found missing, its marker is removed: what appears in the slot afterwards is not the claim's, and unprepare keeps it. A slot has one
marker, which names the instance that drakit created last: the marker of an instance that another claim's prepare created since is kept.

The monitor holds no lock, so a claim's own unprepare may delete an instance between two calls. An error of such a call says nothing about the GPU.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import drakit
from drakit_gpu import identity, nvml_errors, port
from drakit_gpu.health import faults
from drakit_gpu.mig import instances, markers

Grant = drakit.Grant[object]
COMPUTE_MODE_CHANGED = "the compute mode was changed"

_log = drakit.get_logger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Changes:
    """What changed under the claims of a GPU, and which of them could not be checked, by anchor of their devices."""

    found: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unchecked: frozenset[str] = frozenset()


class ClaimedHardware:
    """The hardware of the prepared claims of one node. ``whole_beside_partitions`` is the setting that offers Ampere GPUs in MIG mode as wholes."""

    def __init__(
        self, hardware: port.GpuPort, context: drakit.DriverContext, made: markers.MarkerStore, *, whole_beside_partitions: bool
    ) -> None:
        self._hardware = hardware
        self._context = context
        self._made = made
        self._whole_beside_partitions = whole_beside_partitions
        self._grants: Mapping[str, Sequence[Grant]] = {}

    def load(self) -> None:
        """Read the prepared claims again."""
        by_gpu: dict[str, list[Grant]] = {}
        for grant in self._context.grants():
            if grant.record and not grant.admin_access:
                by_gpu.setdefault(str(grant.intent.get("gpu")), []).append(grant)
        self._grants = by_gpu

    def anchors(self, gpu: port.Gpu) -> frozenset[str]:
        """Return the anchors of the devices that claims hold on a GPU."""
        return frozenset(faults.anchor_of(grant.device.name) for grant in self._grants.get(gpu.uuid, ()))

    def changes(self, gpu: port.Gpu, mode: port.MigMode | None) -> Changes:
        """Return what changed under the claims of a GPU. Raises CallError only where the GPU is lost or needs a reset."""
        found: dict[str, str] = {}
        unchecked: set[str] = set()
        seen: list[tuple[str, object]] = []
        for grant in () if gpu.is_vgpu else self._grants.get(gpu.uuid, ()):
            # Shares of a device hold the same hardware, except those whose MIG device was deleted before another share created it again.
            key = (grant.device.name, grant.record)
            if key in seen:
                continue
            anchor = faults.anchor_of(grant.device.name)
            try:
                text = self._change(grant, gpu, mode)
            except nvml_errors.CallError as error:
                if error.code in nvml_errors.FAILED_GPU:
                    raise
                if self._is_unchanged(grant):
                    unchecked.add(anchor)
                    _log.warning("GPU claim not checked", gpu=gpu.uuid, device=grant.device.name, error=str(error))
                continue
            if not text:
                seen.append(key)
            elif self._is_unchanged(grant):
                seen.append(key)
                found.setdefault(anchor, text)
        return Changes(found=found, unchecked=frozenset(unchecked))

    def _is_unchanged(self, grant: Grant) -> bool:
        """Return whether the claim is still prepared as it was listed: its own unprepare and its repair delete hardware too."""
        now = self._context.grant(grant.claim.uid, grant.device.name, grant.share_id)
        return now is not None and now.record == grant.record

    def _change(self, grant: Grant, gpu: port.Gpu, mode: port.MigMode | None) -> str:
        try:
            wanted = identity.Identity.from_record(grant.intent)
        except drakit.JournalError:
            return ""
        if wanted.boot != self._hardware.boot_id():
            return ""
        if wanted.slot is not None:
            return self._change_of_partition(grant, mode, wanted, wanted.slot)
        is_mode_free = self._whole_beside_partitions and not gpu.switches_mig_at_once
        if mode is not None and not is_mode_free and mode.current:
            return "MIG mode was turned on, so the claim cannot use the GPU as a whole"
        if mode is not None and not is_mode_free and mode.pending:
            return "MIG mode will be turned on by the next reset, and the claim then cannot use the GPU as a whole"
        return self._change_of_compute_mode(gpu, wanted)

    def _change_of_partition(self, grant: Grant, mode: port.MigMode | None, wanted: identity.Identity, slot: identity.Slot) -> str:
        device = f"the claim's MIG device {grant.record.get('uuid')}"
        marker = self._made.of(wanted)
        if mode is None or not mode.current:
            self._mark_lost(grant, marker)
            return f"MIG mode was turned off, which deleted {device}"
        instance = instances.find_instance(self._hardware, slot)
        if instance is None:
            self._mark_lost(grant, marker)
            return f"{device} was deleted"
        present = instances.mig_device(self._hardware, slot, instance)
        if present is None:
            return f"the compute instance of {device} was deleted"
        if present.to_record() != grant.record or not marker.matches(instance):
            self._mark_lost(grant, marker)
            is_shares = instance.id != grant.record.get("gi") and marker.is_of(instance.id)
            again = f"created again for another claim; restart the pod of {grant.claim}"
            return (
                f"{device} was deleted and {again}"
                if is_shares
                else f"{device} was deleted, and another program created {present.uuid} in its place"
            )
        if not mode.pending:
            return f"MIG mode will be turned off by the next reset, which deletes {device}"
        return ""

    def _change_of_compute_mode(self, gpu: port.Gpu, wanted: identity.Identity) -> str:
        try:
            settings = wanted.settings
        except drakit.JournalError:
            return ""
        actual = self._hardware.compute_mode(gpu.uuid)
        if settings.compute_mode is not None and actual is not None and actual is not settings.compute_mode:
            return f"{COMPUTE_MODE_CHANGED} from {settings.compute_mode.value} to {actual.value}"
        if settings.compute_mode is None and actual is port.ComputeMode.PROHIBITED:
            return f"the compute mode is {actual.value}, so no program can use the GPU"
        return ""

    def _mark_lost(self, grant: Grant, marker: markers.Marker) -> None:
        """Remove the marker of a claim's lost instance."""
        lost = grant.record.get("gi")
        if isinstance(lost, int) and marker.is_of(lost) and self._is_unchanged(grant):
            marker.remove()
