"""A GPU's properties, read from NVML: optional properties, NVML's enums in NVIDIA's words, and numbers as text.

A GPU or a library may not know a property, and an enum may be newer than this module: the value is None then, never an error.
"""

import contextlib
import ctypes
import functools
import uuid
from collections.abc import Callable, Mapping

import pynvml

from drakit_gpu import host, port
from drakit_gpu.health import signals
from drakit_gpu.nvml import session

# nvml.h, nvmlBrandType_t.
BRANDS: Mapping[int, str] = {
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "Grid",
    5: "GeForce",
    6: "Titan",
    7: "NvidiaVApps",
    8: "NvidiaVPC",
    9: "NvidiaVCS",
    10: "NvidiaVWS",
    11: "NvidiaCloudGaming",
    12: "QuadroRTX",
    13: "NvidiaRTX",
    14: "Nvidia",
    15: "GeForceRTX",
    16: "TitanRTX",
}
# nvml.h, NVML_DEVICE_ARCH_*.
ARCHITECTURES: Mapping[int, str] = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
# nvml.h, NVML_GPU_INSTANCE_PROFILE_*, those that differ from a plain profile of the same size.
_SUFFIXES: Mapping[int, str] = {
    7: "+me",
    8: "+me",
    10: "+gfx",
    11: "+gfx",
    12: "+gfx",
    13: "-me",
    14: "-me",
    15: "+me.all",
    16: "+me.all",
    17: "+gfx",
}
# nvml.h, NVML_DEVICE_ADDRESSING_MODE_*, as NVIDIA's DRA driver writes them.
_ADDRESSING: Mapping[int, str] = {0: "None", 1: "HMM", 2: "ATS"}
# nvml.h, NVML_GPU_FABRIC_STATE_*; 0 means no fabric.
_FABRIC_STATES: Mapping[int, str] = {1: "not-started", 2: "in-progress", 3: "completed"}
_FABRIC_COMPLETED, _FABRIC_FAILED = 3, "failed"
_REGISTRATION_FAILED, _ROUTE_UNHEALTHY, _INCORRECT = "registration-failed", "route-unhealthy", "incorrect-configuration"
# nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_*: two bits where 1 means true, and four bits where 0 and 1 mean healthy.
_ROUTE_SHIFT, _ROUTE_BITS, _TRUE = 4, 0x3, 1
_CONFIGURATION_SHIFT, _CONFIGURATION_BITS, _CORRECT = 8, 0xF, frozenset({0, 1})
_CONFIGURATION_FAULTS: Mapping[int, str] = {
    2: "incorrect-system-guid",
    3: "incorrect-chassis-serial",
    4: "no-partition",
    5: "insufficient-nvlinks",
    6: "incompatible-firmware",
    7: "invalid-location",
    8: "gpu-state-invalid",
}
_MIB_PER_GIB = 1024
_PARTS = 8
_PERCENT, _MILLIWATTS = 100, 1000
_NODE_WORDS, _WORD_BITS = 16, 64  # the kernel has at most 1024 NUMA nodes
_LONG_DOMAIN = "0000"


def fabric_state(state: int, status: int, cluster: bytes, clique: int, health: int = 0) -> port.Fabric | None:
    """Return the fabric state of a GPU, from nvmlGpuFabricInfo; None without a fabric.

    Status, cluster and clique hold once registration has ended. ``health`` is the health mask: an incorrect configuration or an unhealthy route is a
    fault. Degraded bandwidth and a recovery in progress are not.
    """
    if state not in _FABRIC_STATES:
        return None
    if state != _FABRIC_COMPLETED:
        return port.Fabric(state=_FABRIC_STATES[state])
    if status:
        return port.Fabric(state=_FABRIC_FAILED, fault=_REGISTRATION_FAILED)
    fault = _fabric_fault(health)
    word = _FABRIC_FAILED if fault else _FABRIC_STATES[state]
    return port.Fabric(state=word, fault=fault, cluster=str(uuid.UUID(bytes=cluster)), clique=clique)


def _fabric_fault(health: int) -> str:
    configuration = health >> _CONFIGURATION_SHIFT & _CONFIGURATION_BITS
    if configuration not in _CORRECT:
        return _CONFIGURATION_FAULTS.get(configuration, _INCORRECT)
    return _ROUTE_UNHEALTHY if health >> _ROUTE_SHIFT & _ROUTE_BITS == _TRUE else ""


def cuda_version(number: int) -> str:
    """Return the text of a CUDA version: 13000 is 13.0 (nvmlSystemGetCudaDriverVersion)."""
    return f"{number // 1000}.{number % 1000 // 10}"


def pci_bus_id(text: str) -> str:
    """Return a PCI address as sysfs writes it: NVML writes eight digits of domain in upper case, sysfs four where four suffice."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain.removeprefix(_LONG_DOMAIN) if len(domain) > len(_LONG_DOMAIN) else domain}:{rest}"


def computed_profile_name(enum: int, slices: int, memory_mib: int, total_mib: int) -> str:
    """Return the name of a profile for a library too old to report it: the memory as eighths of the GPU's, rounded up, in GiB, as nvidia-smi does."""
    total_gib = -(-total_mib // _MIB_PER_GIB)
    eighths = -(-memory_mib * _PARTS // total_mib)
    return f"{slices}g.{int(eighths * total_gib / _PARTS + 0.5)}gb{_SUFFIXES.get(enum, '')}"


def gpu(handle: pynvml.c_nvmlDevice_t, system: host.Host) -> port.Gpu:
    """Return a GPU with its properties from NVML and ``system``. Raises NVMLError where it does not answer."""
    address = pci_bus_id(pynvml.nvmlDeviceGetPciInfo(handle).busId)
    virtualization = session.optional(lambda: pynvml.nvmlDeviceGetVirtualizationMode(handle))
    serial = session.detail(lambda: pynvml.nvmlDeviceGetSerial(handle))
    ecc = session.detail(lambda: pynvml.nvmlDeviceGetEccMode(handle))
    return port.Gpu(
        uuid=port.GpuUuid(pynvml.nvmlDeviceGetUUID(handle)),
        minor=pynvml.nvmlDeviceGetMinorNumber(handle),
        product_name=pynvml.nvmlDeviceGetName(handle),
        pci_bus_id=address,
        memory=session.optional(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).total),
        brand=_word(BRANDS, lambda: pynvml.nvmlDeviceGetBrand(handle)),
        architecture=_word(ARCHITECTURES, lambda: pynvml.nvmlDeviceGetArchitecture(handle)),
        compute_capability=session.optional(lambda: pynvml.nvmlDeviceGetCudaComputeCapability(handle)),
        pcie_root=system.pcie_root(address),
        numa_nodes=system.numa_nodes(address) or _memory_affinity(handle),
        is_vgpu=virtualization == pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU,
        # Consumer boards have no serial number and report zeros.
        serial=serial if serial and serial.strip("0") else None,
        # The binding's own default argument is shared by all threads, so one is given.
        module_id=session.detail(lambda: pynvml.nvmlDeviceGetModuleId(handle, ctypes.c_uint())),
        ecc=None if ecc is None else bool(ecc[0]),
        addressing_mode=_word(_ADDRESSING, lambda: pynvml.nvmlDeviceGetAddressingMode(handle)),
        nvlinks=_nvlinks(handle),
        fabric=fabric(handle),
    )


def _memory_affinity(handle: pynvml.c_nvmlDevice_t) -> tuple[int, ...]:
    """Return the NUMA nodes with the memory nearest to a GPU, as NVML reports them where sysfs does not, such as in a virtual machine."""
    words = session.detail(lambda: pynvml.nvmlDeviceGetMemoryAffinity(handle, _NODE_WORDS, pynvml.NVML_AFFINITY_SCOPE_NODE))
    return tuple(_WORD_BITS * index + bit for index, word in enumerate(words or ()) for bit in range(_WORD_BITS) if word >> bit & 1)


def _word(words: Mapping[int, str], read: Callable[[], int]) -> str | None:
    value = session.detail(read)
    return None if value is None else words.get(value)


def versions() -> port.Versions:
    """Return the versions and the machine's confidential computing mode, in the words of NVIDIA's node labels."""
    cuda, mode = pynvml.nvmlSystemGetCudaDriverVersion_v2(), None
    if (computing := session.detail(pynvml.nvmlSystemGetConfComputeState)) is not None:
        mode = "on" if computing.ccFeature == pynvml.NVML_CC_SYSTEM_FEATURE_ENABLED else "off"
        if mode == "on" and computing.devToolsMode == pynvml.NVML_CC_SYSTEM_DEVTOOLS_MODE_ON:
            mode = "devtools"
    return port.Versions(driver=pynvml.nvmlSystemGetDriverVersion(), cuda=cuda_version(cuda), cc_mode=mode)


def fabric(handle: pynvml.c_nvmlDevice_t) -> port.Fabric | None:
    """Return the NVLink fabric state of a GPU, by the newest call that the library has."""
    newer, new, old = pynvml.c_nvmlGpuFabricInfo_v3_t(), pynvml.c_nvmlGpuFabricInfo_v2_t(), pynvml.c_nvmlGpuFabricInfo_t()
    calls = (
        (newer, pynvml.nvmlDeviceGetGpuFabricInfoV),
        (new, pynvml.nvmlDeviceGetGpuFabricInfoV),
        (old, pynvml.nvmlDeviceGetGpuFabricInfo),
    )
    for info, call in calls:
        if session.detail(functools.partial(call, handle, ctypes.byref(info))) is not None:
            mask = info.healthMask if isinstance(info, pynvml.c_nvmlGpuFabricInfo_v2_t | pynvml.c_nvmlGpuFabricInfo_v3_t) else 0
            return fabric_state(info.state, info.status, bytes(info.clusterUuid), info.cliqueId, mask)
    return None


def _nvlinks(handle: pynvml.c_nvmlDevice_t) -> port.NvLinks:
    """Return the active NVLinks of a GPU. A link that does not exist is an invalid argument or not supported, and a remote end may be unknown."""
    gpus: set[str] = set()
    switched = False
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        with contextlib.suppress(pynvml.NVMLError):
            if pynvml.nvmlDeviceGetNvLinkState(handle, link) != pynvml.NVML_FEATURE_ENABLED:
                continue
            kind = pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
            switched |= kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
            if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_GPU:
                gpus.add(pci_bus_id(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId))
    return port.NvLinks(gpus=tuple(sorted(gpus)), switched=switched)


def sensors(handle: pynvml.c_nvmlDevice_t) -> port.Sensors:
    """Return what a GPU measures. NVML reports use in percent and power in milliwatts."""
    utilization = session.detail(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    power = session.detail(lambda: pynvml.nvmlDeviceGetPowerUsage(handle))
    limit = session.detail(lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle))
    return port.Sensors(
        utilization=None if utilization is None else utilization / _PERCENT,
        memory_used=session.detail(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).used),
        temperature=session.detail(lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
        power=None if power is None else power / _MILLIWATTS,
        power_limit=None if limit is None else limit / _MILLIWATTS,
    )


def recovery_action(handle: pynvml.c_nvmlDevice_t) -> signals.RecoveryAction | None:
    """Return the requested action; None if GPU or library do not report it, and for an unknown action."""
    values = session.optional(lambda: pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]))
    if values is None:
        return None
    field = values[0]
    if field.nvmlReturn != pynvml.NVML_SUCCESS:
        return session.optional(lambda: _raise_error(field.nvmlReturn))
    return signals.ACTIONS.get(field.value.uiVal)


def _raise_error(code: int) -> None:
    raise pynvml.NVMLError(code)
