"""MIG: modes, profiles, instances, and who uses them."""

import ctypes

from drakit_gpu import nvml_errors, port
from fakes.nvml_library import cells


def mig_mode(library: cells.Library, handle: object, current: object, pending: object) -> int | None:
    mode = library.hardware.mig_mode(library.gpu(handle).uuid)
    if mode is None:
        return cells.NOT_SUPPORTED
    cells.write(current, int(mode.current))
    cells.write(pending, int(mode.pending))
    return None


def set_mig_mode(library: cells.Library, handle: object, mode: object, status: object) -> None:
    """A mode that cannot be active yet is told by the activation status, not by the return code, unless instances are in the way."""
    gpu = library.gpu(handle).uuid
    cells.write(status, cells.SUCCESS)
    try:
        library.hardware.set_mig_mode(gpu, enabled=cells.number(mode) == 1)
    except nvml_errors.CallError as error:
        if error.code is not nvml_errors.Code.IN_USE or library.hardware.gpu_instances(gpu):
            raise
        cells.write(status, error.code.value)


def profile_info(library: cells.Library, handle: object, enum: object, pointer: object) -> int | None:
    gpu = library.gpu(handle).uuid
    if not 0 <= cells.number(enum) < 18:
        return cells.INVALID_ARGUMENT
    found = next((item for item in library.hardware.gpu_instance_profiles(gpu) if item.enum == cells.number(enum)), None)
    if found is None:
        return cells.NOT_SUPPORTED
    cells.fill(pointer, id=found.id, sliceCount=found.slices, instanceCount=found.instances, multiprocessorCount=found.multiprocessors)
    cells.fill(pointer, copyEngineCount=found.copy_engines, decoderCount=found.decoders, encoderCount=found.encoders)
    cells.fill(pointer, jpegCount=found.jpeg_engines, ofaCount=found.ofa_engines, memorySizeMB=found.memory_mib)
    if hasattr(cells.target(pointer), "version"):
        cells.fill(pointer, name=f"MIG {found.name}".encode())
    return None


def placements(library: cells.Library, handle: object, profile: object, array: object, length: object) -> None:
    found = library.hardware.possible_placements(library.gpu(handle).uuid, cells.number(profile))
    if array is not None:
        for index, item in enumerate(found):
            array[index].start, array[index].size = item.start, item.size  # type: ignore[index]
    cells.write(length, len(found))


def create_instance(library: cells.Library, handle: object, profile: object, placement: object, pointer: object) -> None:
    wanted = cells.target(placement)
    lies = port.Placement(start=wanted.start, size=wanted.size)  # type: ignore[attr-defined]
    gpu = library.gpu(handle).uuid
    library.give(pointer, (gpu, library.hardware.create_gpu_instance(gpu, cells.number(profile), lies).id))


def instances(library: cells.Library, handle: object, profile: object, array: object, length: object) -> int | None:
    gpu = library.gpu(handle).uuid
    mode = library.hardware.mig_mode(gpu)
    if mode is None or not mode.current:
        return cells.NOT_SUPPORTED
    found = [item for item in library.hardware.gpu_instances(gpu) if item.profile_id == cells.number(profile)]
    if len(found) > cells.target(length).value:  # type: ignore[attr-defined]
        return cells.INSUFFICIENT_SIZE
    cells.place(library, array, [(gpu, item.id) for item in found])
    cells.write(length, len(found))
    return None


def instance_by_id(library: cells.Library, handle: object, identity: object, pointer: object) -> int | None:
    gpu = library.gpu(handle).uuid
    mode = library.hardware.mig_mode(gpu)
    if mode is None or not mode.current:
        return cells.NOT_SUPPORTED
    if all(item.id != cells.number(identity) for item in library.hardware.gpu_instances(gpu)):
        return cells.NOT_FOUND
    library.give(pointer, (gpu, cells.number(identity)))
    return None


def instance_info(library: cells.Library, handle: object, pointer: object) -> None:
    gpu, identity = library.instance(handle)
    found = next(item for item in library.hardware.gpu_instances(gpu) if item.id == identity)
    cells.fill(pointer, id=found.id, profileId=found.profile_id)
    placement = cells.target(pointer).placement  # type: ignore[attr-defined]
    placement.start, placement.size = found.placement.start, found.placement.size


def destroy_instance(library: cells.Library, handle: object) -> None:
    library.hardware.destroy_gpu_instance(*library.instance(handle))


def compute_profile(library: cells.Library, handle: object, enum: object, engines: object, pointer: object) -> int | None:
    gpu, identity = library.instance(handle)
    instance = next(item for item in library.hardware.gpu_instances(gpu) if item.id == identity)
    found = {item.enum: item for item in library.hardware.compute_instance_profiles(gpu, instance)}
    if cells.number(engines) != 0 or cells.number(enum) not in found:
        return cells.NOT_SUPPORTED
    most = max(item.slices for item in found.values())
    result = found[cells.number(enum)]
    cells.fill(pointer, id=result.id, sliceCount=result.slices, instanceCount=most // result.slices)
    return None


def create_compute(library: cells.Library, handle: object, profile: object, pointer: object) -> None:
    gpu, identity = library.instance(handle)
    library.give(pointer, (gpu, identity, library.hardware.create_compute_instance(gpu, identity, cells.number(profile)).id))


def computes(library: cells.Library, handle: object, profile: object, array: object, length: object) -> None:
    gpu, identity = library.instance(handle)
    found = [item for item in library.hardware.compute_instances(gpu, identity) if item.profile_id == cells.number(profile)]
    cells.place(library, array, [(gpu, identity, item.id) for item in found])
    cells.write(length, len(found))


def compute_by_id(library: cells.Library, handle: object, compute: object, pointer: object) -> int | None:
    gpu, identity = library.instance(handle)
    if all(item.id != cells.number(compute) for item in library.hardware.compute_instances(gpu, identity)):
        return cells.NOT_FOUND
    library.give(pointer, (gpu, identity, cells.number(compute)))
    return None


def compute_info(library: cells.Library, handle: object, pointer: object) -> None:
    gpu, identity, compute = library.compute(handle)
    found = next(item for item in library.hardware.compute_instances(gpu, identity) if item.id == compute)
    cells.fill(pointer, id=found.id, profileId=found.profile_id)
    result = cells.target(pointer)
    cell = ctypes.c_void_p.from_buffer(result, type(result).device.offset)  # type: ignore[attr-defined]
    library.give(cell, found.mig_uuid)


def destroy_compute(library: cells.Library, handle: object) -> None:
    gpu, identity, compute = library.compute(handle)
    library.hardware.destroy_compute_instance(gpu, identity, compute)


def processes(library: cells.Library, handle: object, length: object, array: object) -> int | None:
    gpu = library.gpu(handle).uuid
    ids = [None, *(item.id for item in library.hardware.gpu_instances(gpu))]
    everyone = set(library.hardware.running_processes(gpu))
    found = [(pid, identity) for identity in ids[1:] for pid in library.hardware.running_processes(gpu, identity)]
    found += [(pid, None) for pid in sorted(everyone - {pid for pid, _ in found})]
    if array is None:
        cells.write(length, len(found))
        return cells.INSUFFICIENT_SIZE if found else cells.SUCCESS
    for index, (pid, identity) in enumerate(found):
        array[index].pid = pid  # type: ignore[index]
        array[index].gpuInstanceId = 0xFFFFFFFF if identity is None else identity  # type: ignore[index]
    cells.write(length, len(found))
    return None
