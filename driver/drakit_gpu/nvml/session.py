"""The NVML session: loading the library, errors of NVML as the port's errors, replacing the session, and the events of one session.

NVML frees an event set together with its session. So a session does not end while a thread uses an event set of it.
"""

import contextlib
import ctypes
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Self, TypeVar

import pynvml

from drakit_gpu import port
from drakit_gpu.health import signals

Result = TypeVar("Result")

_log = logging.getLogger(__name__)

# nvml.h: GPU_NOT_FOUND is the error of newer libraries for an unknown UUID.
CODES: Mapping[int, port.Code] = {**{code.value: code for code in port.Code}, 28: port.Code.NOT_FOUND}
# The errors of a GPU or library that does not support a call.
ABSENT = frozenset({port.Code.NOT_SUPPORTED, port.Code.FUNCTION_NOT_FOUND, port.Code.ARGUMENT_VERSION_MISMATCH})
# Errors of the GPU or the session, which every other call would return too.
_GRAVE = frozenset({port.Code.GPU_IS_LOST, port.Code.RESET_REQUIRED, port.Code.UNINITIALIZED, port.Code.DRIVER_NOT_LOADED})
_FIXES: Mapping[port.Code, str] = {
    port.Code.DRIVER_NOT_LOADED: "load the NVIDIA kernel driver (nvidia-smi must work), or choose a mock machine",
    port.Code.LIB_RM_VERSION_MISMATCH: "library and kernel driver differ: reboot, or reload the kernel driver",
    port.Code.NO_PERMISSION: "run as root, or give access to /dev/nvidiactl",
}


def use(library: object) -> None:
    """Make the binding use this loaded library.

    The binding offers no other way to choose one, and keeps the functions of the one it first used.
    """
    pynvml.nvmlLib = library
    pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - the binding has no public way to clear them


def start() -> None:
    """Start the session. Without the flag, NVML does not start on a machine whose last GPU is gone."""
    try:
        pynvml.nvmlInitWithFlags(pynvml.NVML_INIT_FLAG_NO_GPUS)
    except pynvml.NVMLError as error:
        code = code_of(error)
        raise port.CallError("nvmlInitWithFlags", code, _FIXES.get(code, str(error))) from error


def end() -> None:
    """End the session. Safe to call after its end."""
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()


@contextlib.contextmanager
def calling(call: str) -> Iterator[None]:
    """Convert NVML's errors into CallError, under the name of a method of the port."""
    try:
        yield
    except pynvml.NVMLError as error:
        raise port.CallError(port.CALLS[call], code_of(error), str(error)) from error


def optional(read: Callable[[], Result]) -> Result | None:
    """Return the result of ``read``; None where GPU or library do not support the call."""
    try:
        return read()
    except pynvml.NVMLError as error:
        if code_of(error) in ABSENT:
            return None
        raise


def detail(read: Callable[[], Result]) -> Result | None:
    """Return the result of ``read``; None where it fails, because the property is optional. Errors of GPU or session are raised."""
    try:
        return read()
    except pynvml.NVMLError as error:
        code = code_of(error)
        if code in _GRAVE:
            raise
        if code not in ABSENT:
            _log.debug("GPU property unreadable", extra={"error": str(error)})
        return None


def code_of(error: pynvml.NVMLError) -> port.Code:
    """Return the port's code of an error."""
    return CODES.get(error.value, port.Code.UNKNOWN)


# A wait for an event takes a second at most, so a call that takes longer than this hangs.
_PATIENCE = 10.0


class SessionCounter:
    """Counts the sessions of one adapter. A thread that replaces the session waits for the threads that use it."""

    def __init__(self, patience: float = _PATIENCE) -> None:
        self._changed = threading.Condition()
        self._patience = patience
        self._users = 0
        self._is_ending = False
        self._number = 0

    @property
    def number(self) -> int:
        """The number of the present session."""
        return self._number

    @contextlib.contextmanager
    def using(self, number: int) -> Iterator[None]:
        """Keep the session of that number from ending; raises CallError (UNINITIALIZED) when it has ended."""
        with self._changed:
            if self._is_ending or number != self._number:
                raise port.CallError(port.CALLS["events"], port.Code.UNINITIALIZED, "the NVML session was replaced; open events again")
            self._users += 1
        try:
            yield
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def replacing(self, number: int) -> Iterator[bool]:
        """End the session of that number in this context; False when another thread has replaced it meanwhile.

        Raises CallError (TIMEOUT) while a thread hangs in a call on it.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: not self._is_ending, self._patience):
                raise self._hangs()
            if number != self._number:
                yield False
                return
            self._is_ending = True
            if not self._changed.wait_for(lambda: not self._users, self._patience):
                self._is_ending = False
                raise self._hangs()
        try:
            yield True
        finally:
            with self._changed:
                self._number += 1
                self._is_ending = False
                self._changed.notify_all()

    @staticmethod
    def _hangs() -> port.CallError:
        return port.CallError(port.CALLS["renew"], port.Code.TIMEOUT, "a thread hangs in a call to NVML, so its session cannot be replaced")


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
        sessions: SessionCounter,
        number: int,
        names: Mapping[int, port.GpuUuid],
    ) -> None:
        self._sessions, self._number, self._names = sessions, number, names
        self._guard = threading.Lock()
        with sessions.using(number), calling("events"):
            self._set: pynvml.c_nvmlEventSet_t | None = pynvml.nvmlEventSetCreate()
            self._unmonitored: frozenset[str] = frozenset(uuid for uuid, handle in handles.items() if not self._register(uuid, handle))

    @property
    def unmonitored(self) -> frozenset[str]:
        return self._unmonitored

    def _register(self, uuid: port.GpuUuid, handle: pynvml.c_nvmlDevice_t) -> bool:
        """Register for a GPU's events; return whether it sends Xids."""
        try:
            with calling("events"):
                supported = _WANTED & pynvml.nvmlDeviceGetSupportedEventTypes(handle)
                pynvml.nvmlDeviceRegisterEvents(handle, supported, self._set)
        except port.CallError as error:
            _log.warning("GPU sends no events: its health is polled only", extra={"gpu": uuid, "error": str(error)})
            return False
        if not supported & pynvml.nvmlEventTypeXidCriticalError:
            _log.warning("GPU sends no Xids: its health is polled only", extra={"gpu": uuid})
        return bool(supported & pynvml.nvmlEventTypeXidCriticalError)

    def wait(self, seconds: float) -> signals.Event | None:
        with self._sessions.using(self._number), self._guard, calling("events"):
            if self._set is None:
                raise port.CallError(port.CALLS["events"], port.Code.UNINITIALIZED, "closed")
            try:
                data = pynvml.nvmlEventSetWait_v2(self._set, round(seconds * 1000))
            except pynvml.NVMLError as error:
                if code_of(error) is port.Code.TIMEOUT:
                    return None
                raise
            return self._event(data)

    def close(self) -> None:
        """Free the set once no thread waits for it. NVML freed the set of an earlier session with that session."""
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
        uuid = self._names.get(address(data.device))
        if uuid is not None:
            return uuid
        try:
            return port.GpuUuid(pynvml.nvmlDeviceGetUUID(data.device))
        except pynvml.NVMLError as error:
            _log.warning("event of an unknown GPU ignored", extra={"xid": xid, "error": str(error)})
            return None


def address(handle: pynvml.c_nvmlDevice_t) -> int:
    """Return the address of a handle, which identifies it."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
