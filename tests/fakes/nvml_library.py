"""libnvidia-ml.so.1 as Python functions over mock GPUs: what NVIDIA's binding calls is answered by the C interface's rules.

Functions have the C symbols' names, take what ctypes would pass, write through the pointers and return an nvmlReturn_t. Handles are numbers that mean
something to this library alone, structures are the binding's own. ``missing`` symbols are not there, ``versions`` says which of two versions of a
profile call exists, ``returns`` answers calls with an error, ``handles_end`` disowns every handle given out before.
"""

import ctypes
import itertools
import pathlib
import sys
import uuid
from collections.abc import Callable
from typing import cast

from drakit.devices.gpu import mock, port, roots, vitals

SUCCESS, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE, TIMEOUT = 0, 2, 3, 6, 7, 10
# nvml.h: bits of event types, "no instance", and the field that holds the recovery action.
EVENTS = {
    vitals.EventKind.DOUBLE_BIT_ECC: 0x2,
    vitals.EventKind.XID: 0x8,
    vitals.EventKind.MIG: 0x100,
    vitals.EventKind.UNAVAILABLE: 0x4000,
    vitals.EventKind.RECOVERY: 0x8000,
}
EVENT_TYPES = sum(EVENTS.values())
ANY = 0xFFFFFFFF
RECOVERY_ACTION = 230
ARCHITECTURES = {"Turing": 6, "Ampere": 7, "Ada Lovelace": 8, "Hopper": 9, "Blackwell": 10}
BRANDS = {"Tesla": 2, "Nvidia": 14, "NvidiaRTX": 13}
ADDRESSING = {"None": 0, "HMM": 1, "ATS": 2}
FABRIC_STATES = {"not-started": 1, "in-progress": 2, "completed": 3}
COMPUTE_MODES = {port.ComputeMode.DEFAULT: 0, port.ComputeMode.PROHIBITED: 2, port.ComputeMode.EXCLUSIVE_PROCESS: 3}
MIB = 1 << 20
Instance = tuple[port.GpuUuid, int]
Compute = tuple[port.GpuUuid, int, int]


class NvmlLibrary:
    """The loaded library; ``calls`` are the symbols called, in order."""

    def __init__(self, hardware: mock.MockGpus, *, missing: frozenset[str] = frozenset()) -> None:
        self.hardware = hardware
        self.missing = missing
        self.returns: dict[str, int] = {}
        self.calls: list[str] = []
        self.event_sets: list[vitals.Events] = []
        self.registered: dict[port.GpuUuid, int] = {}
        self._numbers = itertools.count(0x1000, 16)
        self._meanings: dict[int, object] = {}

    def __getattr__(self, symbol: str) -> Callable[..., int]:
        found = FUNCTIONS.get(symbol)
        if found is None or symbol in self.missing:
            raise AttributeError(symbol)

        def called(*args: object) -> int:
            self.calls.append(symbol)
            if symbol in self.returns:
                return self.returns[symbol]
            try:
                return found(self, *args) or SUCCESS
            except port.CallError as error:
                return error.code.value
            except KeyError:
                return INVALID_ARGUMENT

        return called

    def handles_end(self) -> None:
        """Disown every handle, as a reloaded driver does."""
        self._meanings.clear()

    def give(self, pointer: object, meaning: object) -> None:
        """Write a handle through a pointer to one."""
        known = next((number for number, kept in self._meanings.items() if kept == meaning), None)
        number = next(self._numbers) if known is None else known
        self._meanings[number] = meaning
        value = ctypes.c_void_p(number)
        ctypes.memmove(ctypes.addressof(target(pointer)), ctypes.addressof(value), ctypes.sizeof(value))

    def meant(self, handle: object) -> object:
        """What a handle stands for; KeyError for one not given out."""
        return self._meanings[ctypes.cast(handle, ctypes.c_void_p).value or 0]  # type: ignore[arg-type]  # a pointer of the binding's

    def gpu(self, handle: object) -> port.Gpu:
        """The GPU of a handle."""
        meaning = self.meant(handle)
        found = next((gpu for gpu in self.hardware.gpus() if gpu.uuid == meaning), None)
        if found is None:
            raise port.CallError("", port.Code.GPU_IS_LOST)
        return found

    def instance(self, handle: object) -> Instance:
        """The GPU instance of a handle."""
        meaning = self.meant(handle)
        assert isinstance(meaning, tuple)
        return meaning[0], meaning[1]

    def compute(self, handle: object) -> Compute:
        """The compute instance of a handle."""
        meaning = self.meant(handle)
        assert isinstance(meaning, tuple)
        return meaning[0], meaning[1], meaning[2]


def target(pointer: object) -> "ctypes._CData":
    """What a byref or an array holds."""
    return cast("ctypes._CData", getattr(pointer, "_obj", pointer))


def number(value: object) -> int:
    """An integer argument, whether or not ctypes wraps it."""
    return int(getattr(value, "value", value))  # type: ignore[call-overload,no-any-return]


def write(pointer: object, value: int) -> None:
    target(pointer).value = value  # type: ignore[attr-defined]


def text(buffer: object, value: str) -> None:
    buffer.value = value.encode()  # type: ignore[attr-defined]


def fill(pointer: object, **fields: object) -> None:
    for name, value in fields.items():
        setattr(target(pointer), name, value)


def ignore(_library: NvmlLibrary, *_args: object) -> None:
    """Succeed."""


def driver_version(library: NvmlLibrary, buffer: object, _length: object) -> None:
    text(buffer, library.hardware.versions().driver)


def cuda_version(library: NvmlLibrary, pointer: object) -> None:
    major, minor = map(int, library.hardware.versions().cuda.split("."))
    write(pointer, major * 1000 + minor * 10)


def count(library: NvmlLibrary, pointer: object) -> None:
    write(pointer, len(library.hardware.gpus()))


def by_index(library: NvmlLibrary, index: object, pointer: object) -> int | None:
    gpus = library.hardware.gpus()
    if number(index) >= len(gpus):
        return INVALID_ARGUMENT
    library.give(pointer, gpus[number(index)].uuid)
    return None


def by_uuid(library: NvmlLibrary, uuid: object, pointer: object) -> int | None:
    wanted = uuid.value.decode()  # type: ignore[attr-defined]
    if all(gpu.uuid != wanted for gpu in library.hardware.gpus()):
        return NOT_FOUND
    library.give(pointer, wanted)
    return None


def uuid_of(library: NvmlLibrary, handle: object, buffer: object, _length: object) -> None:
    text(buffer, str(library.meant(handle)))


def minor(library: NvmlLibrary, handle: object, pointer: object) -> None:
    write(pointer, library.gpu(handle).minor)


def name(library: NvmlLibrary, handle: object, buffer: object, _length: object) -> None:
    text(buffer, library.gpu(handle).product_name)


def pci(library: NvmlLibrary, handle: object, pointer: object) -> None:
    fill(pointer, busId=f"0000{library.gpu(handle).pci_bus_id.upper()}".encode())


def brand(library: NvmlLibrary, handle: object, pointer: object) -> None:
    write(pointer, BRANDS[library.gpu(handle).brand or ""])


def architecture(library: NvmlLibrary, handle: object, pointer: object) -> None:
    write(pointer, ARCHITECTURES[library.gpu(handle).architecture or ""])


def memory(library: NvmlLibrary, handle: object, pointer: object) -> None:
    fill(pointer, total=library.gpu(handle).memory)


def capability(library: NvmlLibrary, handle: object, major_pointer: object, minor_pointer: object) -> None:
    found = library.gpu(handle).compute_capability
    assert found is not None
    write(major_pointer, found[0])
    write(minor_pointer, found[1])


def virtualization(library: NvmlLibrary, handle: object, pointer: object) -> None:
    write(pointer, 2 if library.gpu(handle).is_vgpu else 0)


def mig_mode(library: NvmlLibrary, handle: object, current: object, pending: object) -> int | None:
    mode = library.hardware.mig_mode(library.gpu(handle).uuid)
    if mode is None:
        return NOT_SUPPORTED
    write(current, int(mode.current))
    write(pending, int(mode.pending))
    return None


def set_mig_mode(library: NvmlLibrary, handle: object, mode: object, status: object) -> None:
    """A mode that cannot be active yet is told by the activation status, not by the return code, unless instances are in the way."""
    gpu = library.gpu(handle).uuid
    write(status, SUCCESS)
    try:
        library.hardware.set_mig_mode(gpu, enabled=number(mode) == 1)
    except port.CallError as error:
        if error.code is not port.Code.IN_USE or library.hardware.gpu_instances(gpu):
            raise
        write(status, error.code.value)


def profile_info(library: NvmlLibrary, handle: object, enum: object, pointer: object) -> int | None:
    gpu = library.gpu(handle).uuid
    if not 0 <= number(enum) < 18:
        return INVALID_ARGUMENT
    found = next((item for item in library.hardware.gpu_instance_profiles(gpu) if item.enum == number(enum)), None)
    if found is None:
        return NOT_SUPPORTED
    fill(pointer, id=found.id, sliceCount=found.slices, instanceCount=found.instances, multiprocessorCount=found.multiprocessors)
    fill(pointer, copyEngineCount=found.copy_engines, decoderCount=found.decoders, encoderCount=found.encoders)
    fill(pointer, jpegCount=found.jpeg_engines, ofaCount=found.ofa_engines, memorySizeMB=found.memory_mib)
    if hasattr(target(pointer), "version"):
        fill(pointer, name=f"MIG {found.name}".encode())
    return None


def placements(library: NvmlLibrary, handle: object, profile: object, array: object, length: object) -> None:
    found = library.hardware.possible_placements(library.gpu(handle).uuid, number(profile))
    if array is not None:
        for index, item in enumerate(found):
            array[index].start, array[index].size = item.start, item.size  # type: ignore[index]
    write(length, len(found))


def create_instance(library: NvmlLibrary, handle: object, profile: object, placement: object, pointer: object) -> None:
    wanted = target(placement)
    lies = port.Placement(start=wanted.start, size=wanted.size)  # type: ignore[attr-defined]
    gpu = library.gpu(handle).uuid
    library.give(pointer, (gpu, library.hardware.create_gpu_instance(gpu, number(profile), lies).id))


def instances(library: NvmlLibrary, handle: object, profile: object, array: object, length: object) -> int | None:
    gpu = library.gpu(handle).uuid
    mode = library.hardware.mig_mode(gpu)
    if mode is None or not mode.current:
        return NOT_SUPPORTED
    found = [item for item in library.hardware.gpu_instances(gpu) if item.profile_id == number(profile)]
    if len(found) > target(length).value:  # type: ignore[attr-defined]
        return INSUFFICIENT_SIZE
    place(library, array, [(gpu, item.id) for item in found])
    write(length, len(found))
    return None


def place(library: NvmlLibrary, array: object, meanings: list[tuple[object, ...]]) -> None:
    """Write handles into an array of them."""
    for index, meaning in enumerate(meanings):
        cell = ctypes.c_void_p.from_buffer(array, index * ctypes.sizeof(ctypes.c_void_p))  # type: ignore[arg-type]
        library.give(cell, meaning)


def instance_by_id(library: NvmlLibrary, handle: object, identity: object, pointer: object) -> int | None:
    gpu = library.gpu(handle).uuid
    mode = library.hardware.mig_mode(gpu)
    if mode is None or not mode.current:
        return NOT_SUPPORTED
    if all(item.id != number(identity) for item in library.hardware.gpu_instances(gpu)):
        return NOT_FOUND
    library.give(pointer, (gpu, number(identity)))
    return None


def instance_info(library: NvmlLibrary, handle: object, pointer: object) -> None:
    gpu, identity = library.instance(handle)
    found = next(item for item in library.hardware.gpu_instances(gpu) if item.id == identity)
    fill(pointer, id=found.id, profileId=found.profile_id)
    placement = target(pointer).placement  # type: ignore[attr-defined]
    placement.start, placement.size = found.placement.start, found.placement.size


def destroy_instance(library: NvmlLibrary, handle: object) -> None:
    library.hardware.destroy_gpu_instance(*library.instance(handle))


def compute_profile(library: NvmlLibrary, handle: object, enum: object, engines: object, pointer: object) -> int | None:
    found = {item.enum: item for item in library.hardware.compute_instance_profiles(*library.instance(handle))}
    if number(engines) != 0 or number(enum) not in found:
        return NOT_SUPPORTED
    most = max(item.slices for item in found.values())
    told = found[number(enum)]
    fill(pointer, id=told.id, sliceCount=told.slices, instanceCount=most // told.slices)
    return None


def create_compute(library: NvmlLibrary, handle: object, profile: object, pointer: object) -> None:
    gpu, identity = library.instance(handle)
    library.give(pointer, (gpu, identity, library.hardware.create_compute_instance(gpu, identity, number(profile)).id))


def computes(library: NvmlLibrary, handle: object, profile: object, array: object, length: object) -> None:
    gpu, identity = library.instance(handle)
    found = [item for item in library.hardware.compute_instances(gpu, identity) if item.profile_id == number(profile)]
    place(library, array, [(gpu, identity, item.id) for item in found])
    write(length, len(found))


def compute_by_id(library: NvmlLibrary, handle: object, compute: object, pointer: object) -> int | None:
    gpu, identity = library.instance(handle)
    if all(item.id != number(compute) for item in library.hardware.compute_instances(gpu, identity)):
        return NOT_FOUND
    library.give(pointer, (gpu, identity, number(compute)))
    return None


def compute_info(library: NvmlLibrary, handle: object, pointer: object) -> None:
    gpu, identity, compute = library.compute(handle)
    found = next(item for item in library.hardware.compute_instances(gpu, identity) if item.id == compute)
    fill(pointer, id=found.id, profileId=found.profile_id)
    told = target(pointer)
    cell = ctypes.c_void_p.from_buffer(told, type(told).device.offset)  # type: ignore[attr-defined]
    library.give(cell, found.mig_uuid)


def destroy_compute(library: NvmlLibrary, handle: object) -> None:
    gpu, identity, compute = library.compute(handle)
    library.hardware.destroy_compute_instance(gpu, identity, compute)


def processes(library: NvmlLibrary, handle: object, length: object, array: object) -> int | None:
    gpu = library.gpu(handle).uuid
    ids = [None, *(item.id for item in library.hardware.gpu_instances(gpu))]
    everyone = set(library.hardware.running_processes(gpu))
    found = [(pid, identity) for identity in ids[1:] for pid in library.hardware.running_processes(gpu, identity)]
    found += [(pid, None) for pid in sorted(everyone - {pid for pid, _ in found})]
    if array is None:
        write(length, len(found))
        return INSUFFICIENT_SIZE if found else SUCCESS
    for index, (pid, identity) in enumerate(found):
        array[index].pid = pid  # type: ignore[index]
        array[index].gpuInstanceId = 0xFFFFFFFF if identity is None else identity  # type: ignore[index]
    write(length, len(found))
    return None


def serial(library: NvmlLibrary, handle: object, buffer: object, _length: object) -> int | None:
    told = library.gpu(handle).serial
    if told is None:
        return NOT_SUPPORTED
    text(buffer, told)
    return None


def module_id(library: NvmlLibrary, handle: object, pointer: object) -> int | None:
    told = library.gpu(handle).module_id
    if told is None:
        return NOT_SUPPORTED
    write(pointer, told)
    return None


def ecc(library: NvmlLibrary, handle: object, current: object, pending: object) -> int | None:
    told = library.gpu(handle).ecc
    if told is None:
        return NOT_SUPPORTED
    write(current, int(told))
    write(pending, int(told))
    return None


def addressing(library: NvmlLibrary, handle: object, pointer: object) -> int | None:
    told = library.gpu(handle).addressing_mode
    if told is None:
        return NOT_SUPPORTED
    fill(pointer, value=ADDRESSING[told])
    return None


def cc_state(library: NvmlLibrary, pointer: object) -> int | None:
    told = library.hardware.versions().cc_mode
    if told is None:
        return NOT_SUPPORTED
    fill(pointer, ccFeature=int(told != "off"), devToolsMode=int(told == "devtools"))
    return None


def fabric(library: NvmlLibrary, handle: object, pointer: object) -> int | None:
    told = library.gpu(handle).fabric
    if told is None:
        fill(pointer, state=0)
        return None
    fill(pointer, state=FABRIC_STATES[told.state], status=SUCCESS, cliqueId=told.clique or 0)
    if told.cluster is not None:
        fill(pointer, clusterUuid=(ctypes.c_uint8 * 16)(*uuid.UUID(told.cluster).bytes))
    return None


def link_ends(library: NvmlLibrary, handle: object) -> list[str]:
    """The other end of each link: a PCI address, or nothing for a switch."""
    links = library.gpu(handle).nvlinks
    return [*links.gpus, *([""] if links.switched else [])]


def link_state(library: NvmlLibrary, handle: object, link: object, pointer: object) -> int | None:
    """A GPU has one link more than it uses, which is not active; others are invalid."""
    used = len(link_ends(library, handle))
    if number(link) > used:
        return INVALID_ARGUMENT
    write(pointer, int(number(link) < used))
    return None


def link_kind(library: NvmlLibrary, handle: object, link: object, pointer: object) -> None:
    write(pointer, 0 if link_ends(library, handle)[number(link)] else 2)


def link_pci(library: NvmlLibrary, handle: object, link: object, pointer: object) -> None:
    fill(pointer, busId=f"0000{link_ends(library, handle)[number(link)].upper()}".encode())


def compute_mode(library: NvmlLibrary, handle: object, pointer: object) -> None:
    told = library.hardware.compute_mode(library.gpu(handle).uuid)
    assert told is not None
    write(pointer, COMPUTE_MODES[told])


def set_compute_mode(library: NvmlLibrary, handle: object, mode: object) -> None:
    wanted = next(known for known, value in COMPUTE_MODES.items() if value == number(mode))
    library.hardware.set_compute_mode(library.gpu(handle).uuid, wanted)


def create_set(library: NvmlLibrary, pointer: object) -> None:
    library.event_sets.append(library.hardware.events())
    library.give(pointer, ("event set", len(library.event_sets) - 1))


def event_set(library: NvmlLibrary, handle: object) -> vitals.Events:
    meaning = library.meant(handle)
    assert isinstance(meaning, tuple)
    return library.event_sets[meaning[1]]


def register(library: NvmlLibrary, handle: object, mask: object, set_handle: object) -> None:
    event_set(library, set_handle)
    library.registered[library.gpu(handle).uuid] = number(mask)


def event_types(library: NvmlLibrary, handle: object, pointer: object) -> None:
    library.gpu(handle)
    write(pointer, EVENT_TYPES)


def wait_for_event(library: NvmlLibrary, set_handle: object, pointer: object, milliseconds: object) -> int | None:
    """The mock's next event of a kind and a GPU that was registered for."""
    event = event_set(library, set_handle).wait(number(milliseconds) / 1000)
    if event is None or not library.registered.get(port.GpuUuid(event.gpu), 0) & EVENTS[event.kind]:
        return TIMEOUT
    told = target(pointer)
    library.give(ctypes.c_void_p.from_buffer(told, type(told).device.offset), event.gpu)  # type: ignore[attr-defined]
    fill(pointer, eventType=EVENTS[event.kind], eventData=event.xid or 0, computeInstanceId=ANY)
    fill(pointer, gpuInstanceId=ANY if event.instance_id is None else event.instance_id)
    return None


def free_set(library: NvmlLibrary, set_handle: object) -> None:
    event_set(library, set_handle).close()


def field_values(library: NvmlLibrary, handle: object, length: object, values: object) -> None:
    """The one field there is; others are not supported, field by field."""
    told = library.hardware.recovery_action(library.gpu(handle).uuid)
    known = {number: action for number, action in vitals.ACTIONS.items() if action is told}
    for index in range(number(length)):
        value = target(values)[index]  # type: ignore[index]
        value.nvmlReturn = SUCCESS if known and value.fieldId == RECOVERY_ACTION else NOT_SUPPORTED
        value.value.uiVal = next(iter(known), 0)


FUNCTIONS: dict[str, Callable[..., int | None]] = {
    "nvmlInitWithFlags": ignore,
    "nvmlShutdown": ignore,
    "nvmlSystemGetDriverVersion": driver_version,
    "nvmlSystemGetCudaDriverVersion_v2": cuda_version,
    "nvmlDeviceGetCount_v2": count,
    "nvmlDeviceGetHandleByIndex_v2": by_index,
    "nvmlDeviceGetHandleByUUID": by_uuid,
    "nvmlDeviceGetUUID": uuid_of,
    "nvmlDeviceGetMinorNumber": minor,
    "nvmlDeviceGetName": name,
    "nvmlDeviceGetPciInfo_v3": pci,
    "nvmlDeviceGetBrand": brand,
    "nvmlDeviceGetArchitecture": architecture,
    "nvmlDeviceGetMemoryInfo": memory,
    "nvmlDeviceGetCudaComputeCapability": capability,
    "nvmlDeviceGetVirtualizationMode": virtualization,
    "nvmlDeviceGetMigMode": mig_mode,
    "nvmlDeviceSetMigMode": set_mig_mode,
    "nvmlDeviceGetGpuInstanceProfileInfo": profile_info,
    "nvmlDeviceGetGpuInstanceProfileInfoV": profile_info,
    "nvmlDeviceGetGpuInstancePossiblePlacements_v2": placements,
    "nvmlDeviceCreateGpuInstanceWithPlacement": create_instance,
    "nvmlDeviceGetGpuInstances": instances,
    "nvmlDeviceGetGpuInstanceById": instance_by_id,
    "nvmlGpuInstanceGetInfo": instance_info,
    "nvmlGpuInstanceDestroy": destroy_instance,
    "nvmlGpuInstanceGetComputeInstanceProfileInfo": compute_profile,
    "nvmlGpuInstanceGetComputeInstanceProfileInfoV": compute_profile,
    "nvmlGpuInstanceCreateComputeInstance": create_compute,
    "nvmlGpuInstanceGetComputeInstances": computes,
    "nvmlGpuInstanceGetComputeInstanceById": compute_by_id,
    "nvmlComputeInstanceGetInfo_v2": compute_info,
    "nvmlComputeInstanceDestroy": destroy_compute,
    "nvmlDeviceGetComputeRunningProcesses_v3": processes,
    "nvmlDeviceGetGraphicsRunningProcesses_v3": ignore,
    "nvmlDeviceGetSerial": serial,
    "nvmlDeviceGetModuleId": module_id,
    "nvmlDeviceGetEccMode": ecc,
    "nvmlDeviceGetAddressingMode": addressing,
    "nvmlSystemGetConfComputeState": cc_state,
    "nvmlDeviceGetGpuFabricInfo": fabric,
    "nvmlDeviceGetGpuFabricInfoV": fabric,
    "nvmlDeviceGetNvLinkState": link_state,
    "nvmlDeviceGetNvLinkRemoteDeviceType": link_kind,
    "nvmlDeviceGetNvLinkRemotePciInfo_v2": link_pci,
    "nvmlDeviceGetComputeMode": compute_mode,
    "nvmlDeviceSetComputeMode": set_compute_mode,
    "nvmlEventSetCreate": create_set,
    "nvmlDeviceRegisterEvents": register,
    "nvmlDeviceGetSupportedEventTypes": event_types,
    "nvmlEventSetWait_v2": wait_for_event,
    "nvmlEventSetFree": free_set,
    "nvmlDeviceGetFieldValues": field_values,
}


def host_root(directory: pathlib.Path, hardware: mock.MockGpus) -> pathlib.Path:
    """A root folder with what the kernel tells of the mock GPUs, MIG capabilities excepted."""
    proc, devices = directory / "proc", directory / "sys/bus/pci/devices"
    (proc / "sys/kernel/random").mkdir(parents=True)
    (proc / "sys/kernel/random/boot_id").write_text(f"{hardware.boot_id()}\n")
    majors = hardware.device_majors()
    listing = f"Character devices:\n  1 mem\n{majors.nvidia} nvidia\n{majors.caps} nvidia-caps\n{majors.uvm} nvidia-uvm\n\nBlock devices:\n"
    (proc / "devices").write_text(listing)
    devices.mkdir(parents=True)
    bound = directory / "sys/bus/pci/drivers/nvidia"
    bound.mkdir(parents=True)
    (directory / "sys/module/nvidia").mkdir(parents=True)
    for gpu in hardware.gpus():
        (bound / gpu.pci_bus_id).symlink_to(devices / gpu.pci_bus_id)
        folder = directory / f"sys/devices/{gpu.pcie_root}" / gpu.pci_bus_id
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(f"{-1 if gpu.numa_node is None else gpu.numa_node}\n")
        (devices / gpu.pci_bus_id).symlink_to(folder)
    return directory


def show_capabilities(root: pathlib.Path, hardware: mock.MockGpus) -> None:
    """Bring /proc/driver/nvidia/capabilities up to date with the instances there are."""
    for gpu in hardware.gpus():
        folder = root / f"proc/driver/nvidia/capabilities/gpu{gpu.minor}/mig"
        for stale in folder.glob("gi*/ci*/access"):
            stale.unlink()
        for instance in hardware.gpu_instances(gpu.uuid):
            for compute in hardware.compute_instances(gpu.uuid, instance.id):
                minors = hardware.capability_minors(gpu.uuid, instance.id, compute.id)
                own = folder / f"gi{instance.id}"
                (own / f"ci{compute.id}").mkdir(parents=True, exist_ok=True)
                (own / "access").write_text(access(minors.gpu_instance))
                (own / f"ci{compute.id}" / "access").write_text(access(minors.compute_instance))


def access(minor_number: int) -> str:
    """An access file as the kernel driver writes it."""
    return f"DeviceFileMinor: {minor_number}\nDeviceFileMode: 256\nDeviceFileModify: 1\n"


SMI = """#!{python}
import sys
_, command, flag, gpu, option, number = sys.argv
assert (command, flag, option) == ("compute-policy", "-i", "--set-timeslice"), sys.argv
if {mig!r}.get(gpu, True):
    sys.exit("Setting the time slice is not supported for GPU " + gpu)
with open({told!r}, "a") as log:
    log.write(gpu + " " + number + "\\n")
"""


def smi_root(directory: pathlib.Path, hardware: mock.MockGpus) -> roots.DriverRoot:
    """A driver root whose nvidia-smi notes time slices in ``slices``, and refuses those of a GPU that has MIG mode on now."""
    modes = {gpu.uuid: hardware.mig_mode(gpu.uuid) for gpu in hardware.gpus()}
    program = directory / "usr/bin/nvidia-smi"
    program.parent.mkdir(parents=True)
    on = {uuid: mode is not None and mode.current for uuid, mode in modes.items()}
    program.write_text(SMI.format(python=sys.executable, mig=on, told=str(directory / "slices")))
    program.chmod(0o755)
    return roots.DriverRoot(path=directory)
