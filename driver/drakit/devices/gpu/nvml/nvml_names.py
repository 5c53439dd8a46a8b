"""NVML's enums as the words that NVIDIA's own DRA driver publishes, and its numbers as text. An unknown value is None, never an error."""

import uuid
from collections.abc import Mapping

from drakit.devices.gpu import port

# nvml.h, nvmlBrandType_t.
_BRANDS: Mapping[int, str] = {
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
_ARCHITECTURES: Mapping[int, str] = {
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
_LONG_DOMAIN = "0000"


def brand(value: int | None) -> str | None:
    """Return a brand."""
    return None if value is None else _BRANDS.get(value)


def architecture(value: int | None) -> str | None:
    """Return an architecture."""
    return None if value is None else _ARCHITECTURES.get(value)


def addressing_mode(value: int | None) -> str | None:
    """Return an addressing mode."""
    return None if value is None else _ADDRESSING.get(value)


def cc_mode(*, enabled: bool, devtools: bool) -> str:
    """Return a confidential computing mode, in the words of NVIDIA's node labels."""
    return ("devtools" if devtools else "on") if enabled else "off"


def fabric(state: int, status: int, cluster: bytes, clique: int, health: int = 0) -> port.Fabric | None:
    """Return how a GPU stands to the fabric, from nvmlGpuFabricInfo; None without one.

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
    """13000 is 13.0 (nvmlSystemGetCudaDriverVersion)."""
    return f"{number // 1000}.{number % 1000 // 10}"


def pci_bus_id(text: str) -> str:
    """Return a PCI address as sysfs writes it: NVML writes eight digits of domain in upper case, sysfs four where four suffice."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain.removeprefix(_LONG_DOMAIN) if len(domain) > len(_LONG_DOMAIN) else domain}:{rest}"


def profile_name(raw: str) -> str:
    """Return a profile's name without NVML's leading ``MIG ``."""
    return raw.removeprefix("MIG ")


def computed_profile_name(enum: int, slices: int, memory_mib: int, total_mib: int) -> str:
    """Return the name of a profile for a library too old to report it: the memory as eighths of the GPU's, rounded up, in GiB, as nvidia-smi does."""
    total_gib = -(-total_mib // _MIB_PER_GIB)
    eighths = -(-memory_mib * _PARTS // total_mib)
    return f"{slices}g.{int(eighths * total_gib / _PARTS + 0.5)}gb{_SUFFIXES.get(enum, '')}"
