"""Optional properties of a GPU read from NVML; a GPU or a library may not know any of them."""

import contextlib
import ctypes
import functools

import pynvml

from drakit.devices.gpu import port
from drakit.devices.gpu.nvml import nvml_names, session


def serial(handle: pynvml.c_nvmlDevice_t) -> str | None:
    """Return the board's serial number; consumer boards have none and report zeros."""
    info: str | None = session.detail(lambda: pynvml.nvmlDeviceGetSerial(handle))
    return info if info and info.strip("0") else None


def module_id(handle: pynvml.c_nvmlDevice_t) -> int | None:
    """Return the number of its socket on the baseboard. The binding's own default argument is shared by all threads, so one is given."""
    return session.detail(lambda: pynvml.nvmlDeviceGetModuleId(handle, ctypes.c_uint()))


def ecc(handle: pynvml.c_nvmlDevice_t) -> bool | None:
    """Return whether error correction is on now."""
    info = session.detail(lambda: pynvml.nvmlDeviceGetEccMode(handle))
    return None if info is None else bool(info[0])


def addressing_mode(handle: pynvml.c_nvmlDevice_t) -> str | None:
    """HMM, ATS or None, in NVIDIA's words."""
    return nvml_names.addressing_mode(session.detail(lambda: pynvml.nvmlDeviceGetAddressingMode(handle)))


def cc_mode() -> str | None:
    """Return the machine's confidential computing mode."""
    info = session.detail(pynvml.nvmlSystemGetConfComputeState)
    if info is None:
        return None
    enabled, devtools = info.ccFeature == pynvml.NVML_CC_SYSTEM_FEATURE_ENABLED, info.devToolsMode == pynvml.NVML_CC_SYSTEM_DEVTOOLS_MODE_ON
    return nvml_names.cc_mode(enabled=enabled, devtools=devtools)


def fabric(handle: pynvml.c_nvmlDevice_t) -> port.Fabric | None:
    """Return how it stands to the NVLink fabric, by the newest call the library knows."""
    newer, new, old = pynvml.c_nvmlGpuFabricInfo_v3_t(), pynvml.c_nvmlGpuFabricInfo_v2_t(), pynvml.c_nvmlGpuFabricInfo_t()
    calls = (
        (newer, pynvml.nvmlDeviceGetGpuFabricInfoV),
        (new, pynvml.nvmlDeviceGetGpuFabricInfoV),
        (old, pynvml.nvmlDeviceGetGpuFabricInfo),
    )
    for info, call in calls:
        if session.detail(functools.partial(call, handle, ctypes.byref(info))) is not None:
            mask = info.healthMask if isinstance(info, pynvml.c_nvmlGpuFabricInfo_v2_t | pynvml.c_nvmlGpuFabricInfo_v3_t) else 0
            return nvml_names.fabric(info.state, info.status, bytes(info.clusterUuid), info.cliqueId, mask)
    return None


def nvlinks(handle: pynvml.c_nvmlDevice_t) -> port.NvLinks:
    """Its active NVLinks. A link that does not exist is an invalid argument or not supported, and a remote end may be unknown."""
    gpus: set[str] = set()
    switched = False
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        with contextlib.suppress(pynvml.NVMLError):
            if pynvml.nvmlDeviceGetNvLinkState(handle, link) != pynvml.NVML_FEATURE_ENABLED:
                continue
            kind = pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
            switched |= kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
            if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_GPU:
                gpus.add(nvml_names.pci_bus_id(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId))
    return port.NvLinks(gpus=tuple(sorted(gpus)), switched=switched)
