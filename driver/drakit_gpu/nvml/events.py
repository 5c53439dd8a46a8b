"""The events of one NVML session: which GPUs send them, and how they are received.

NVML frees an event set together with its session. So a session does not end while a thread uses an event set of it.
"""

import contextlib
import threading
from collections.abc import Mapping
from typing import Self

import pynvml

import drakit
from drakit_gpu import nvml_errors, port
from drakit_gpu.health import signals
from drakit_gpu.nvml import session

_log = drakit.get_logger(__name__)

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

    The set belongs to the session ``number`` of ``sessions``. ``names`` has the GPU of each handle, also of GPUs that stopped answering.
    """

    def __init__(
        self,
        handles: Mapping[port.GpuUuid, pynvml.c_nvmlDevice_t],
        sessions: session.SessionCounter,
        number: int,
        names: Mapping[int, port.GpuUuid],
    ) -> None:
        self._sessions, self._number, self._names = sessions, number, names
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
                supported = _WANTED & pynvml.nvmlDeviceGetSupportedEventTypes(handle)
                pynvml.nvmlDeviceRegisterEvents(handle, supported, self._set)
        except nvml_errors.CallError as error:
            _log.warning("GPU sends no events: its health is polled only", gpu=uuid, error=str(error))
            return False
        if not supported & pynvml.nvmlEventTypeXidCriticalError:
            _log.warning("GPU sends no Xids: its health is polled only", gpu=uuid)
        return bool(supported & pynvml.nvmlEventTypeXidCriticalError)

    def wait(self, seconds: float) -> signals.Event | None:
        with self._sessions.using(self._number), self._guard, session.calling("events"):
            if self._set is None:
                raise nvml_errors.CallError(nvml_errors.CALLS["events"], nvml_errors.Code.UNINITIALIZED, "closed")
            try:
                data = pynvml.nvmlEventSetWait_v2(self._set, round(seconds * 1000))
            except pynvml.NVMLError as error:
                if session.code_of(error) is nvml_errors.Code.TIMEOUT:
                    return None
                raise
            return self._event(data)

    def close(self) -> None:
        """Free the set once no thread waits for it. NVML freed the set of an earlier session with that session."""
        with self._guard:
            closing, self._set = self._set, None
        with contextlib.suppress(pynvml.NVMLError, nvml_errors.CallError), self._sessions.using(self._number):
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
        uuid = self._names.get(session.address(data.device))
        if uuid is not None:
            return uuid
        try:
            return port.GpuUuid(pynvml.nvmlDeviceGetUUID(data.device))
        except pynvml.NVMLError as error:
            _log.warning("event of an unknown GPU ignored", xid=xid, error=str(error))
            return None
