"""GPU settings that a grant's parameters change: compute mode, time slice and MPS.

Plan chooses them and stores them in the intent, prepare applies them, and unprepare undoes them.

A GPU has one time slice and one compute mode for all its users. So all claims that share a GPU must request the same ones. Each intent keeps the
compute mode that the first claim found, and the last claim to leave restores it. Admin access changes nothing. A reboot clears all settings.
"""

import dataclasses
from collections.abc import Iterable

import drakit
from drakit_gpu import config, identity, nvml_errors, port, share_policy

Grant = drakit.Grant[config.AnyConfig]

_VOLTA = (7, 0)
_FIELD = "sharing"
_GONE = frozenset({nvml_errors.Code.NOT_FOUND, nvml_errors.Code.GPU_IS_LOST})


def plan(
    grant: Grant, wanted: identity.Identity, gpu: port.Gpu, hardware: port.GpuPort, grants: Iterable[identity.Identity]
) -> identity.Settings:
    """Return the settings that the grant's parameters change; ``grants`` are the identities of this boot's grants under the GPU's locks.

    Raises ConfigError for a field that only a class may set or that this GPU does not support, DeviceBusyError where other claims share the GPU with
    different settings.
    """
    sharing = grant.config.sharing
    if wanted.borrowed and grant.admin_access:
        return identity.Settings()
    others = [other.settings for other in grants if (other.gpu, other.slot, other.borrowed) == (gpu.uuid, None, False)]
    chosen = identity.Settings()
    if sharing is not None:
        config.check_author(grant.config_source, sharing, shared=grant.share_id is not None)
        _check_gpu(gpu, sharing)
        if wanted.slot is None:
            _check_mode(gpu, sharing, hardware)
        chosen = _chosen(grant, sharing, wanted)
    if wanted.slot is None:
        for other in others:
            if other.gpu_wide != chosen.gpu_wide:
                text = f"{grant.device.name} is shared with claims that set {other.description}, not {chosen.description}"
                raise drakit.DeviceBusyError(text)
    if chosen.compute_mode is None:
        return chosen
    before = next((other.before for other in others if other.before is not None), None) or hardware.compute_mode(gpu.uuid)
    return dataclasses.replace(chosen, before=before)


def apply(hardware: port.GpuPort, gpu: port.GpuUuid, settings: identity.Settings) -> None:
    """Apply the settings to the GPU. Settings that match already are not written."""
    if settings.compute_mode is not None and hardware.compute_mode(gpu) not in (None, settings.compute_mode):
        hardware.set_compute_mode(gpu, settings.compute_mode)
    if settings.time_slice is not None:
        hardware.set_time_slice(gpu, settings.time_slice)


def undo(hardware: port.GpuPort, gpu: port.GpuUuid, settings: identity.Settings, *, applied: bool) -> None:
    """Undo ``apply``. ``applied`` is whether it is known to have finished.

    A GPU that is gone or lost needs no change; a second call has to confirm that it is.
    """
    try:
        if settings.before is not None and hardware.compute_mode(gpu) not in (None, settings.before):
            hardware.set_compute_mode(gpu, settings.before)
        if settings.time_slice not in (None, port.TimeSlice.DEFAULT):
            _undo_time_slice(hardware, gpu, applied=applied)
    except nvml_errors.CallError as error:
        if error.code not in _GONE or hardware.gpu(gpu) is not None:
            raise


def _undo_time_slice(hardware: port.GpuPort, gpu: port.GpuUuid, *, applied: bool) -> None:
    """Restore the default. A GPU whose time slice never changed, or that is in MIG mode now, may not support time slices."""
    try:
        hardware.set_time_slice(gpu, port.TimeSlice.DEFAULT)
    except nvml_errors.CallError as error:
        if error.code is not nvml_errors.Code.NOT_SUPPORTED:
            raise
        mode = hardware.mig_mode(gpu) if applied else None
        if applied and not (mode is not None and mode.current):
            raise


def _check_mode(gpu: port.Gpu, sharing: config.Sharing, hardware: port.GpuPort) -> None:
    """Reject time slices and MPS for a whole GPU that stays in MIG mode. Prepare turns the mode off where it can."""
    mode = None if gpu.switches_mig_at_once or not config.changes_gpu(sharing) else hardware.mig_mode(gpu.uuid)
    if mode is not None and mode.current:
        raise config.refused_in_mig_mode(sharing, f"{gpu.product_name} {gpu.uuid}")


def _check_gpu(gpu: port.Gpu, sharing: config.Sharing) -> None:
    changes = config.changes_gpu(sharing)
    if changes and gpu.compute_capability is not None and gpu.compute_capability < _VOLTA:
        version = "{}.{}".format(*gpu.compute_capability)
        raise drakit.ConfigError(
            f"{gpu.product_name} does not support it: it has compute capability {version}, and 7.0 (Volta) is required", field=_FIELD
        )
    if changes and gpu.is_vgpu:
        raise drakit.ConfigError(f"{gpu.product_name} is a vGPU, whose settings only its hypervisor can change", field=_FIELD)


def _chosen(grant: Grant, sharing: config.Sharing, wanted: identity.Identity) -> identity.Settings:
    if sharing.strategy is config.Strategy.MPS:
        # A partition has no compute mode, and on a shared GPU the mode would lock out other claims.
        alone = wanted.slot is None and grant.share_id is None
        return identity.Settings(
            compute_mode=port.ComputeMode.EXCLUSIVE_PROCESS if alone else None, mps=_mps(grant, sharing.mps_config or config.Mps())
        )
    if sharing.time_slicing_config is None:
        return identity.Settings()
    return identity.Settings(time_slice=sharing.time_slicing_config.interval, compute_mode=port.ComputeMode.DEFAULT)


def _mps(grant: Grant, wanted: config.Mps) -> identity.Mps:
    """Return the MPS limits. The memory limit is the share's memory, or the parameters' limit where that is lower."""
    share = grant.consumed_capacity.get(share_policy.MEMORY) if grant.share_id is not None else None
    limits = [limit for limit in (wanted.limit(str(grant.device.attributes.get("uuid"))), share) if limit]
    memory = min(limits).value if limits else None
    return identity.Mps(percentage=wanted.default_active_thread_percentage, memory=memory, multi_user=wanted.multi_user)
