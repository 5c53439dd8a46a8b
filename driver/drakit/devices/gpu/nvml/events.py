"""NVML's events, and the recovery action that a GPU requests."""

import contextlib
import ctypes
import logging
import threading
from collections.abc import Mapping
from typing import Self

import pynvml

from drakit.devices.gpu import port
from drakit.devices.gpu.health import signals
from drakit.devices.gpu.nvml import session

_log = logging.getLogger(__name__)

_KINDS: Mapping[int, signals.EventKind] = {
    pynvml.nvmlEventTypeXidCriticalError: signals.EventKind.XID,
    pynvml.nvmlEventTypeDoubleBitEccError: signals.EventKind.DOUBLE_BIT_ECC,
    pynvml.nvmlEventMigConfigChange: signals.EventKind.MIG,
    pynvml.nvmlEventTypeGpuUnavailableError: signals.EventKind.UNAVAILABLE,
    pynvml.nvmlEventTypeGpuRecoveryAction: signals.EventKind.RECOVERY,
}
_WANTED = sum(_KINDS)
_NO_INSTANCE = pynvml.NVML_GPU_INSTANCE_ID_ANY


class NvmlEvents(signals.Events):
    """A set of events, registered for all GPUs that can be registered; ``unmonitored`` are those that send none, or no Xids, which is logged too.

    The set belongs to the session ``number`` of ``sessions``. ``known`` names the GPU of a handle, also of one that fell silent meanwhile.
    """

    def __init__(
        self,
        handles: Mapping[port.GpuUuid, pynvml.c_nvmlDevice_t],
        sessions: session.SessionCounter,
        number: int,
        known: Mapping[int, port.GpuUuid],
    ) -> None:
        self._sessions, self._number, self._known = sessions, number, known
        self._guard = threading.Lock()
        with sessions.using(number), session.calling("events"):
            self._set: pynvml.c_nvmlEventSet_t | None = pynvml.nvmlEventSetCreate()
            self._unmonitored: frozenset[str] = frozenset(uuid for uuid, handle in handles.items() if not self._register(uuid, handle))

    @property
    def unmonitored(self) -> frozenset[str]:
        return self._unmonitored

    def _register(self, uuid: port.GpuUuid, handle: pynvml.c_nvmlDevice_t) -> bool:
        """Register for a GPU's events; return whether it sends Xids."""
        try:
            with session.calling("events"):
                known = _WANTED & pynvml.nvmlDeviceGetSupportedEventTypes(handle)
                pynvml.nvmlDeviceRegisterEvents(handle, known, self._set)
        except port.CallError as error:
            _log.warning("GPU sends no events: its health is polled only", extra={"gpu": uuid, "error": str(error)})
            return False
        if not known & pynvml.nvmlEventTypeXidCriticalError:
            _log.warning("GPU sends no Xids: its health is polled only", extra={"gpu": uuid})
        return bool(known & pynvml.nvmlEventTypeXidCriticalError)

    def wait(self, seconds: float) -> signals.Event | None:
        with self._sessions.using(self._number), self._guard, session.calling("events"):
            if self._set is None:
                raise port.CallError(port.CALLS["events"], port.Code.UNINITIALIZED, "closed")
            try:
                data = pynvml.nvmlEventSetWait_v2(self._set, round(seconds * 1000))
            except pynvml.NVMLError as error:
                if session.code_of(error) is port.Code.TIMEOUT:
                    return None
                raise
            return self._event(data)

    def close(self) -> None:
        """Free the set, once no thread waits for it; a set of an earlier session went with that session."""
        with self._guard:
            closing, self._set = self._set, None
        with contextlib.suppress(pynvml.NVMLError, port.CallError), self._sessions.using(self._number):
            if closing is not None:
                pynvml.nvmlEventSetFree(closing)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _event(self, data: pynvml.c_nvmlEventData_t) -> signals.Event | None:
        kind = _KINDS.get(data.eventType)
        xid = data.eventData if kind is signals.EventKind.XID else None
        gpu = None if kind is None else self._gpu(data, xid)
        if kind is None or gpu is None:
            return None
        return signals.Event(gpu=gpu, kind=kind, xid=xid, instance_id=None if data.gpuInstanceId == _NO_INSTANCE else data.gpuInstanceId)

    def _gpu(self, data: pynvml.c_nvmlEventData_t, xid: int | None) -> port.GpuUuid | None:
        """Return the GPU of an event; None, with a log line, where it was never identified. A lost GPU is not read: it would not answer."""
        known = self._known.get(address(data.device))
        if known is not None:
            return known
        try:
            return port.GpuUuid(pynvml.nvmlDeviceGetUUID(data.device))
        except pynvml.NVMLError as error:
            _log.warning("event of an unknown GPU ignored", extra={"xid": xid, "error": str(error)})
            return None


def recovery_action(handle: pynvml.c_nvmlDevice_t) -> signals.RecoveryAction | None:
    """Return the requested action; None where GPU or library do not report it, and for an unknown action."""
    values = session.optional(lambda: pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]))
    if values is None:
        return None
    field = values[0]
    if field.nvmlReturn != pynvml.NVML_SUCCESS:
        return session.optional(lambda: _refuse(field.nvmlReturn))
    return signals.ACTIONS.get(field.value.uiVal)


def _refuse(code: int) -> None:
    raise pynvml.NVMLError(code)


def address(handle: pynvml.c_nvmlDevice_t) -> int:
    """Return the address of a handle, which identifies it."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
