"""Optional properties of a GPU read from NVML; a GPU or a library may not know any of them."""

import contextlib
import ctypes
import functools

import pynvml

from drakit.devices.gpu import port
from drakit.devices.gpu.nvml import nvml_names, session


def serial(handle: pynvml.c_nvmlDevice_t) -> str | None:
    """The board's serial number; consumer boards have none and say so with zeros."""
    told: str | None = session.detail(lambda: pynvml.nvmlDeviceGetSerial(handle))
    return told if told and told.strip("0") else None


def module_id(handle: pynvml.c_nvmlDevice_t) -> int | None:
    """The number of its socket on the baseboard. The binding's own default argument is shared by all threads, so one is given."""
    return session.detail(lambda: pynvml.nvmlDeviceGetModuleId(handle, ctypes.c_uint()))


def ecc(handle: pynvml.c_nvmlDevice_t) -> bool | None:
    """Whether error correction is on now."""
    told = session.detail(lambda: pynvml.nvmlDeviceGetEccMode(handle))
    return None if told is None else bool(told[0])


def addressing_mode(handle: pynvml.c_nvmlDevice_t) -> str | None:
    """HMM, ATS or None, in NVIDIA's words."""
    return nvml_names.addressing_mode(session.detail(lambda: pynvml.nvmlDeviceGetAddressingMode(handle)))


def cc_mode() -> str | None:
    """The machine's confidential computing mode."""
    told = session.detail(pynvml.nvmlSystemGetConfComputeState)
    if told is None:
        return None
    enabled, devtools = told.ccFeature == pynvml.NVML_CC_SYSTEM_FEATURE_ENABLED, told.devToolsMode == pynvml.NVML_CC_SYSTEM_DEVTOOLS_MODE_ON
    return nvml_names.cc_mode(enabled=enabled, devtools=devtools)


def fabric(handle: pynvml.c_nvmlDevice_t) -> port.Fabric | None:
    """How it stands to the NVLink fabric, by the newest call the library knows."""
    newer, new, old = pynvml.c_nvmlGpuFabricInfo_v3_t(), pynvml.c_nvmlGpuFabricInfo_v2_t(), pynvml.c_nvmlGpuFabricInfo_t()
    asked = (
        (newer, pynvml.nvmlDeviceGetGpuFabricInfoV),
        (new, pynvml.nvmlDeviceGetGpuFabricInfoV),
        (old, pynvml.nvmlDeviceGetGpuFabricInfo),
    )
    for told, ask in asked:
        if session.detail(functools.partial(ask, handle, ctypes.byref(told))) is not None:
            mask = told.healthMask if isinstance(told, pynvml.c_nvmlGpuFabricInfo_v2_t | pynvml.c_nvmlGpuFabricInfo_v3_t) else 0
            return nvml_names.fabric(told.state, told.status, bytes(told.clusterUuid), told.cliqueId, mask)
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
