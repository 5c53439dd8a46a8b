"""What a GPU and its driver say of themselves."""

import ctypes
import uuid
from typing import Any, cast

from drakit_gpu import port
from fakes.nvml_library import cells

ARCHITECTURES = {"Turing": 6, "Ampere": 7, "Ada Lovelace": 8, "Hopper": 9, "Blackwell": 10}
BRANDS = {"Tesla": 2, "Nvidia": 14, "NvidiaRTX": 13}
ADDRESSING = {"None": 0, "HMM": 1, "ATS": 2}
FABRIC_STATES = {"not-started": 1, "in-progress": 2, "completed": 3}
COMPUTE_MODES = {port.ComputeMode.DEFAULT: 0, port.ComputeMode.PROHIBITED: 2, port.ComputeMode.EXCLUSIVE_PROCESS: 3}


def driver_version(library: cells.Library, buffer: object, _length: object) -> None:
    cells.text(buffer, library.hardware.versions().driver)


def cuda_version(library: cells.Library, pointer: object) -> None:
    major, minor = map(int, library.hardware.versions().cuda.split("."))
    cells.write(pointer, major * 1000 + minor * 10)


def count(library: cells.Library, pointer: object) -> None:
    cells.write(pointer, len(library.hardware.plugged()))


def by_index(library: cells.Library, index: object, pointer: object) -> int | None:
    gpus = library.hardware.plugged()
    return handle_of(library, gpus[cells.number(index)], pointer) if cells.number(index) < len(gpus) else cells.INVALID_ARGUMENT


def by_uuid(library: cells.Library, uuid: object, pointer: object) -> int | None:
    """A search by UUID fails when any GPU on the way is lost, as nvml.h says."""
    wanted = uuid.value.decode()  # type: ignore[attr-defined]
    for gpu in library.hardware.plugged():
        failed = handle_of(library, gpu, pointer)
        if failed or gpu.uuid == wanted:
            return failed
    return cells.NOT_FOUND


def by_pci(library: cells.Library, address: object, pointer: object) -> int | None:
    wanted = address.value.decode()  # type: ignore[attr-defined]
    found = [gpu for gpu in library.hardware.plugged() if gpu.pci_bus_id == wanted]
    return handle_of(library, found[0], pointer) if found else cells.NOT_FOUND


def handle_of(library: cells.Library, gpu: port.Gpu, pointer: object) -> int | None:
    if gpu not in library.hardware.gpus():
        return cells.GPU_IS_LOST
    library.give(pointer, gpu.uuid)
    return None


def uuid_of(library: cells.Library, handle: object, buffer: object, _length: object) -> None:
    cells.text(buffer, str(library.meant(handle)))


def minor(library: cells.Library, handle: object, pointer: object) -> None:
    cells.write(pointer, library.gpu(handle).minor)


def name(library: cells.Library, handle: object, buffer: object, _length: object) -> None:
    cells.text(buffer, library.gpu(handle).product_name)


def pci(library: cells.Library, handle: object, pointer: object) -> None:
    cells.fill(pointer, busId=f"0000{library.gpu(handle).pci_bus_id.upper()}".encode())


def brand(library: cells.Library, handle: object, pointer: object) -> None:
    cells.write(pointer, BRANDS[library.gpu(handle).brand or ""])


def architecture(library: cells.Library, handle: object, pointer: object) -> None:
    cells.write(pointer, ARCHITECTURES[library.gpu(handle).architecture or ""])


def memory(library: cells.Library, handle: object, pointer: object) -> None:
    cells.fill(pointer, total=library.gpu(handle).memory, used=_sensors(library, handle).memory_used or 0)


def _sensors(library: cells.Library, handle: object) -> port.Sensors:
    return library.sensors.get(library.gpu(handle).uuid, port.Sensors())


def utilization(library: cells.Library, handle: object, pointer: object) -> int | None:
    """A GPU in MIG mode has no rates, as nvml.h says."""
    mode, share = library.hardware.mig_mode(library.gpu(handle).uuid), _sensors(library, handle).utilization
    if share is None or (mode is not None and mode.current):
        return cells.NOT_SUPPORTED
    cells.fill(pointer, gpu=round(100 * share))
    return None


def temperature(library: cells.Library, handle: object, _sensor: object, pointer: object) -> int | None:
    return _reading(pointer, _sensors(library, handle).temperature)


def power(library: cells.Library, handle: object, pointer: object) -> int | None:
    return _reading(pointer, _sensors(library, handle).power, 1000)


def power_limit(library: cells.Library, handle: object, pointer: object) -> int | None:
    return _reading(pointer, _sensors(library, handle).power_limit, 1000)


def _reading(pointer: object, value: float | None, factor: int = 1) -> int | None:
    if value is None:
        return cells.NOT_SUPPORTED
    cells.write(pointer, round(factor * value))
    return None


def capability(library: cells.Library, handle: object, major_pointer: object, minor_pointer: object) -> None:
    found = library.gpu(handle).compute_capability
    assert found is not None
    cells.write(major_pointer, found[0])
    cells.write(minor_pointer, found[1])


def virtualization(library: cells.Library, handle: object, pointer: object) -> None:
    cells.write(pointer, 2 if library.gpu(handle).is_vgpu else 0)


def serial(library: cells.Library, handle: object, buffer: object, _length: object) -> int | None:
    result = library.gpu(handle).serial
    if result is None:
        return cells.NOT_SUPPORTED
    cells.text(buffer, result)
    return None


def memory_affinity(library: cells.Library, handle: object, _words: object, pointer: object, _scope: object) -> int | None:
    result = library.memory_nodes.get(library.gpu(handle).uuid, ())
    if not result:
        return cells.NOT_SUPPORTED
    words = ctypes.cast(cast("Any", pointer), ctypes.POINTER(ctypes.c_ulonglong))
    for node in result:
        words[node // 64] |= 1 << node % 64
    return None


def module_id(library: cells.Library, handle: object, pointer: object) -> int | None:
    result = library.gpu(handle).module_id
    if result is None:
        return cells.NOT_SUPPORTED
    cells.write(pointer, result)
    return None


def ecc(library: cells.Library, handle: object, current: object, pending: object) -> int | None:
    result = library.gpu(handle).ecc
    if result is None:
        return cells.NOT_SUPPORTED
    cells.write(current, int(result))
    cells.write(pending, int(result))
    return None


def addressing(library: cells.Library, handle: object, pointer: object) -> int | None:
    result = library.gpu(handle).addressing_mode
    if result is None:
        return cells.NOT_SUPPORTED
    cells.fill(pointer, value=ADDRESSING[result])
    return None


def cc_state(library: cells.Library, pointer: object) -> int | None:
    result = library.hardware.versions().cc_mode
    if result is None:
        return cells.NOT_SUPPORTED
    cells.fill(pointer, ccFeature=int(result != "off"), devToolsMode=int(result == "devtools"))
    return None


def fabric(library: cells.Library, handle: object, pointer: object) -> int | None:
    result = library.gpu(handle).fabric
    if result is None:
        cells.fill(pointer, state=0)
        return None
    mask = library.fabric_masks.get(library.gpu(handle).uuid, 0)
    cells.fill(pointer, state=FABRIC_STATES[result.state], status=cells.SUCCESS, cliqueId=result.clique or 0, healthMask=mask)
    if result.cluster is not None:
        cells.fill(pointer, clusterUuid=(ctypes.c_uint8 * 16)(*uuid.UUID(result.cluster).bytes))
    return None


def link_ends(library: cells.Library, handle: object) -> list[str]:
    """The other end of each link: a PCI address, or nothing for a switch."""
    links = library.gpu(handle).nvlinks
    return [*links.gpus, *([""] if links.switched else [])]


def link_state(library: cells.Library, handle: object, link: object, pointer: object) -> int | None:
    """A GPU has one link more than it uses, which is not active; others are invalid."""
    used = len(link_ends(library, handle))
    if cells.number(link) > used:
        return cells.INVALID_ARGUMENT
    cells.write(pointer, int(cells.number(link) < used))
    return None


def link_kind(library: cells.Library, handle: object, link: object, pointer: object) -> None:
    cells.write(pointer, 0 if link_ends(library, handle)[cells.number(link)] else 2)


def link_pci(library: cells.Library, handle: object, link: object, pointer: object) -> None:
    cells.fill(pointer, busId=f"0000{link_ends(library, handle)[cells.number(link)].upper()}".encode())


def compute_mode(library: cells.Library, handle: object, pointer: object) -> None:
    result = library.hardware.compute_mode(library.gpu(handle).uuid)
    assert result is not None
    cells.write(pointer, COMPUTE_MODES[result])


def set_compute_mode(library: cells.Library, handle: object, mode: object) -> None:
    wanted = next(known for known, value in COMPUTE_MODES.items() if value == cells.number(mode))
    library.hardware.set_compute_mode(library.gpu(handle).uuid, wanted)
