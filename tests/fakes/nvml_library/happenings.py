"""Events, and what a GPU asks to be done to it."""

import ctypes

from drakit_gpu import nvml_errors, port
from drakit_gpu.health import signals
from fakes.nvml_library import cells

# nvml.h: bits of event types, and the field that holds the recovery action.
EVENTS = {
    signals.EventKind.DOUBLE_BIT_ECC: 0x2,
    signals.EventKind.XID: 0x8,
    signals.EventKind.MIG: 0x100,
    signals.EventKind.UNAVAILABLE: 0x4000,
    signals.EventKind.RECOVERY: 0x8000,
}
EVENT_TYPES = sum(EVENTS.values())
RECOVERY_ACTION = 230


def create_set(library: cells.Library, pointer: object) -> None:
    library.event_sets.append(library.hardware.events())
    library.give(pointer, ("event set", len(library.event_sets) - 1))


def event_set(library: cells.Library, handle: object) -> signals.Events:
    meaning = library.meant(handle)
    assert isinstance(meaning, tuple)
    return library.event_sets[meaning[1]]


def register(library: cells.Library, handle: object, mask: object, set_handle: object) -> None:
    event_set(library, set_handle)
    gpu = library.gpu(handle).uuid
    if library.event_kinds.get(gpu, EVENT_TYPES) is None:
        raise nvml_errors.CallError("", nvml_errors.Code.NOT_SUPPORTED)
    library.registered[gpu] = cells.number(mask)


def event_types(library: cells.Library, handle: object, pointer: object) -> None:
    known = library.event_kinds.get(library.gpu(handle).uuid, EVENT_TYPES)
    cells.write(pointer, EVENT_TYPES if known is None else known)


def wait_for_event(library: cells.Library, set_handle: object, pointer: object, milliseconds: object) -> int | None:
    """The mock's next event of a kind and a GPU that was registered for."""
    event = event_set(library, set_handle).wait(cells.number(milliseconds) / 1000)
    if event is None or not library.registered.get(port.GpuUuid(event.gpu), 0) & EVENTS[event.kind]:
        return cells.TIMEOUT
    result = cells.target(pointer)
    library.give(ctypes.c_void_p.from_buffer(result, type(result).device.offset), event.gpu)  # type: ignore[attr-defined]
    cells.fill(pointer, eventType=EVENTS[event.kind], eventData=event.xid or 0, computeInstanceId=cells.ANY)
    cells.fill(pointer, gpuInstanceId=cells.ANY if event.instance_id is None else event.instance_id)
    return None


def free_set(library: cells.Library, set_handle: object) -> None:
    event_set(library, set_handle).close()


def field_values(library: cells.Library, handle: object, length: object, values: object) -> None:
    """The one field there is; others are not supported, field by field."""
    result = library.hardware.recovery_action(library.gpu(handle).uuid)
    known = {number: action for number, action in signals.ACTIONS.items() if action is result}
    for index in range(cells.number(length)):
        value = cells.target(values)[index]  # type: ignore[index]
        value.nvmlReturn = cells.SUCCESS if known and value.fieldId == RECOVERY_ACTION else cells.NOT_SUPPORTED
        value.value.uiVal = next(iter(known), 0)
