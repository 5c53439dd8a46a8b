"""What a grant's parameters change of its GPU: decided when the grant is planned, kept in its intent, carried out at prepare, undone at unprepare.

A GPU has one time slice and one compute mode for everybody. So all claims that share a GPU must want the same of it, the mode found before the first
is remembered by all, and only the last to leave puts it back. Admin access changes nothing. A reboot undoes everything by itself.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Self

from drakit.core import driver as drivers
from drakit.core import errors, quantity, records
from drakit.devices.gpu import config, identity, port
from drakit.devices.gpu.sharing import share_policy

Grant = drivers.Grant[config.AnyConfig]

_VOLTA = (7, 0)
_FIELD = "parameters.sharing"
_GONE = frozenset({port.Code.NOT_FOUND, port.Code.GPU_IS_LOST})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mps:
    """What is wanted of a control daemon; ``memory`` is the limit of each process in bytes."""

    percentage: int | None = None
    memory: int | None = None
    multi_user: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What is changed for a grant; ``before`` is the compute mode to put back, None where none is changed or the GPU tells none."""

    time_slice: port.TimeSlice | None = None
    compute_mode: port.ComputeMode | None = None
    before: port.ComputeMode | None = None
    mps: Mps | None = None

    @classmethod
    def from_record(cls, record: records.Record) -> Self:
        """The settings kept in an intent; raises JournalError for what this driver did not write."""
        try:
            return cls(
                time_slice=port.TimeSlice(record["timeSlice"]) if "timeSlice" in record else None,
                compute_mode=port.ComputeMode(record["computeMode"]) if "computeMode" in record else None,
                before=port.ComputeMode(record["before"]) if "before" in record else None,
                mps=_mps_from(record["mps"]) if "mps" in record else None,
            )
        except (ValueError, TypeError) as error:
            raise errors.JournalError(f"what is remembered of the GPU's settings cannot be read: {error}") from error

    def to_record(self) -> records.Record:
        """The settings as part of an intent; what is not changed is left out."""
        told: dict[str, object] = {}
        for name, value in (("timeSlice", self.time_slice), ("computeMode", self.compute_mode), ("before", self.before)):
            if value is not None:
                told[name] = value.value
        if self.mps is not None:
            told["mps"] = dataclasses.asdict(self.mps)
        return records.freeze_record(told)

    @property
    def gpu_wide(self) -> tuple[port.TimeSlice | None, port.ComputeMode | None]:
        """What everybody on the GPU feels."""
        return self.time_slice, self.compute_mode

    @property
    def description(self) -> str:
        """The same in words."""
        told = [f"time slice {self.time_slice.value}" if self.time_slice else ""]
        told.append(f"compute mode {self.compute_mode.value}" if self.compute_mode else "")
        return " and ".join(filter(None, told)) or "nothing"


def plan(grant: Grant, wanted: identity.Identity, gpu: port.Gpu, hardware: port.GpuPort, known: Iterable[identity.Identity]) -> Settings:
    """What the grant's parameters change; ``known`` are the identities of all grants of this boot.

    Raises ConfigError for a field that only a class may set and for what this GPU cannot, DeviceBusyError where others share it on other terms.
    """
    sharing = grant.config.sharing
    if wanted.borrowed and grant.admin_access:
        return Settings()
    others = [Settings.from_record(one.settings) for one in known if one.gpu == wanted.gpu and one.slot is None and not one.borrowed]
    if sharing is None:
        chosen = Settings()
    else:
        config.check_author(grant.config_source, sharing, shared=grant.share_id is not None)
        _check_gpu(gpu, sharing)
        if wanted.slot is None:
            _check_mode(gpu, sharing, hardware)
        chosen = _chosen(grant, sharing, wanted)
    if wanted.slot is None:
        _check_agreement(chosen, others, grant.device.name)
    return _with_previous_mode(chosen, others, gpu, hardware)


def apply(hardware: port.GpuPort, gpu: port.GpuUuid, settings: Settings) -> None:
    """Make the GPU as the settings say; what is so already is left."""
    if settings.compute_mode is not None and hardware.compute_mode(gpu) not in (None, settings.compute_mode):
        hardware.set_compute_mode(gpu, settings.compute_mode)
    if settings.time_slice is not None:
        hardware.set_time_slice(gpu, settings.time_slice)


def undo(hardware: port.GpuPort, gpu: port.GpuUuid, settings: Settings, *, applied: bool) -> None:
    """Put back what ``apply`` changed, which is known to have come to its end (``applied``) or not.

    A GPU that is gone or lost needs nothing, but one error is not believed to say so.
    """
    try:
        if settings.before is not None and hardware.compute_mode(gpu) not in (None, settings.before):
            hardware.set_compute_mode(gpu, settings.before)
        if settings.time_slice not in (None, port.TimeSlice.DEFAULT):
            _undo_time_slice(hardware, gpu, applied=applied)
    except port.CallError as error:
        if error.code not in _GONE or hardware.gpu(gpu) is not None:
            raise


def _undo_time_slice(hardware: port.GpuPort, gpu: port.GpuUuid, *, applied: bool) -> None:
    """The default again. A GPU that never had another, or that is in MIG mode now, may say that it has no time slices at all."""
    try:
        hardware.set_time_slice(gpu, port.TimeSlice.DEFAULT)
    except port.CallError as error:
        if error.code is not port.Code.NOT_SUPPORTED:
            raise
        mode = hardware.mig_mode(gpu) if applied else None
        if applied and not (mode is not None and mode.current):
            raise


def _check_mode(gpu: port.Gpu, sharing: config.Sharing, hardware: port.GpuPort) -> None:
    """A whole GPU that stays in MIG mode has neither time slices nor MPS; one whose mode can be changed is out of it once it is prepared."""
    mode = None if gpu.switches_mig_at_once or not _changes(sharing) else hardware.mig_mode(gpu.uuid)
    if mode is not None and mode.current:
        what = "MPS" if sharing.strategy is config.Strategy.MPS else "time slices"
        fix = f"ask for a partition{' with a MigConfig' if what == 'MPS' else ''}, or let its admin turn MIG mode off"
        raise errors.ConfigError(f"{gpu.product_name} {gpu.uuid} is in MIG mode, in which a whole GPU has no {what}: {fix}", field=_FIELD)


def _changes(sharing: config.Sharing) -> bool:
    return sharing.time_slicing_config is not None or sharing.strategy is config.Strategy.MPS


def _check_gpu(gpu: port.Gpu, sharing: config.Sharing) -> None:
    changes = _changes(sharing)
    if changes and gpu.compute_capability is not None and gpu.compute_capability < _VOLTA:
        told = "{}.{}".format(*gpu.compute_capability)
        raise errors.ConfigError(f"{gpu.product_name} cannot: it has compute capability {told}, and 7.0 (Volta) is needed", field=_FIELD)
    if changes and gpu.is_vgpu:
        raise errors.ConfigError(f"{gpu.product_name} is a vGPU, whose settings are its hypervisor's", field=_FIELD)


def _chosen(grant: Grant, sharing: config.Sharing, wanted: identity.Identity) -> Settings:
    if sharing.strategy is config.Strategy.MPS:
        # A partition has no compute mode, and on a GPU that others share the mode would shut them out.
        alone = wanted.slot is None and grant.share_id is None
        return Settings(
            compute_mode=port.ComputeMode.EXCLUSIVE_PROCESS if alone else None, mps=_mps(grant, sharing.mps_config or config.Mps())
        )
    if sharing.time_slicing_config is None:
        return Settings()
    return Settings(time_slice=sharing.time_slicing_config.interval, compute_mode=port.ComputeMode.DEFAULT)


def _mps(grant: Grant, wanted: config.Mps) -> Mps:
    """The limit is what the share has of the memory, or less where the parameters say so."""
    uuid = grant.device.attributes.get("uuid")
    limits: list[quantity.Quantity] = [limit for limit in (wanted.limit(str(uuid)), _share(grant)) if limit]
    memory = min(limits).value if limits else None
    return Mps(percentage=wanted.default_active_thread_percentage, memory=memory, multi_user=wanted.multi_user)


def _mps_from(record: records.Json) -> Mps:
    if not isinstance(record, Mapping):
        raise TypeError(f"mps is {record!r}")
    percentage, memory = record.get("percentage"), record.get("memory")
    return Mps(
        percentage=percentage if isinstance(percentage, int) else None,
        memory=memory if isinstance(memory, int) else None,
        multi_user=record.get("multi_user") is True,
    )


def _share(grant: Grant) -> quantity.Quantity | None:
    return grant.consumed_capacity.get(share_policy.MEMORY) if grant.share_id is not None else None


def _check_agreement(chosen: Settings, others: Iterable[Settings], device: str) -> None:
    for other in others:
        if other.gpu_wide != chosen.gpu_wide:
            raise errors.DeviceBusyError(f"{device} is shared with claims that set {other.description}, not {chosen.description}")


def _with_previous_mode(chosen: Settings, others: Iterable[Settings], gpu: port.Gpu, hardware: port.GpuPort) -> Settings:
    """With the compute mode to put back: that which the first of those who share the GPU found."""
    if chosen.compute_mode is None:
        return chosen
    found = next((other.before for other in others if other.before is not None), None) or hardware.compute_mode(gpu.uuid)
    return dataclasses.replace(chosen, before=found)
