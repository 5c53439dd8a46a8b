"""The NVML session: loading the library, errors of NVML as the port's errors, and replacing the session.

A session does not end while a thread uses an event set of it (see ``events``).
"""

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import pynvml

import drakit
from drakit_gpu import port

Result = TypeVar("Result")

_log = drakit.get_logger(__name__)

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
    """Return the result of ``read``; None if GPU or library do not support the call."""
    try:
        return read()
    except pynvml.NVMLError as error:
        if code_of(error) in ABSENT:
            return None
        raise


def detail(read: Callable[[], Result]) -> Result | None:
    """Return the result of ``read``; None if it fails, because the property is optional. Errors of GPU or session are raised."""
    try:
        return read()
    except pynvml.NVMLError as error:
        code = code_of(error)
        if code in _GRAVE:
            raise
        if code not in ABSENT:
            _log.debug("GPU property unreadable", error=str(error))
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


def address(handle: pynvml.c_nvmlDevice_t) -> int:
    """Return the address of a handle, which identifies it."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
