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
from drakit_gpu import nvml_errors

Result = TypeVar("Result")

_log = drakit.get_logger(__name__)

# nvml.h: GPU_NOT_FOUND is the error of newer libraries for an unknown UUID.
CODES: Mapping[int, nvml_errors.Code] = {**{code.value: code for code in nvml_errors.Code}, 28: nvml_errors.Code.NOT_FOUND}
# The errors of a GPU or library that does not support a call.
ABSENT = frozenset({nvml_errors.Code.NOT_SUPPORTED, nvml_errors.Code.FUNCTION_NOT_FOUND, nvml_errors.Code.ARGUMENT_VERSION_MISMATCH})
# Errors of the GPU or the session, which every other call would return too.
_GRAVE = frozenset(
    {nvml_errors.Code.GPU_IS_LOST, nvml_errors.Code.RESET_REQUIRED, nvml_errors.Code.UNINITIALIZED, nvml_errors.Code.DRIVER_NOT_LOADED}
)
_FIXES: Mapping[nvml_errors.Code, str] = {
    nvml_errors.Code.DRIVER_NOT_LOADED: "load the NVIDIA kernel driver (nvidia-smi must work), or choose a mock machine",
    nvml_errors.Code.LIB_RM_VERSION_MISMATCH: "library and kernel driver differ: reboot, or reload the kernel driver",
    nvml_errors.Code.NO_PERMISSION: "run as root, or give access to /dev/nvidiactl",
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
        raise nvml_errors.CallError("nvmlInitWithFlags", code, _FIXES.get(code, str(error))) from error


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
        raise nvml_errors.CallError(nvml_errors.CALLS[call], code_of(error), str(error)) from error


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


def code_of(error: pynvml.NVMLError) -> nvml_errors.Code:
    """Return the port's code of an error."""
    return CODES.get(error.value, nvml_errors.Code.UNKNOWN)


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
                raise nvml_errors.CallError(
                    nvml_errors.CALLS["events"], nvml_errors.Code.UNINITIALIZED, "the NVML session was replaced; open events again"
                )
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
    def _hangs() -> nvml_errors.CallError:
        return nvml_errors.CallError(
            nvml_errors.CALLS["renew"], nvml_errors.Code.TIMEOUT, "a thread hangs in a call to NVML, so its session cannot be replaced"
        )


def address(handle: pynvml.c_nvmlDevice_t) -> int:
    """Return the address of a handle, which identifies it."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
