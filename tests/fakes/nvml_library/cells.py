"""The ground of the library: handles that mean something, and what is written through C's pointers."""

import ctypes
import itertools
from collections.abc import Callable, Mapping
from typing import ClassVar, cast

from drakit_gpu import nvml_errors, port
from drakit_gpu.health import signals
from drakit_gpu.mock import mock_gpus

SUCCESS, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE, TIMEOUT, GPU_IS_LOST = 0, 2, 3, 6, 7, 10, 15
ANY = 0xFFFFFFFF  # nvml.h: no instance.
Instance = tuple[port.GpuUuid, int]
Compute = tuple[port.GpuUuid, int, int]
Function = Callable[..., int | None]


class Library:
    """The loaded library; ``calls`` are the symbols called, in order, ``functions`` those there are.

    ``event_kinds`` are the events that a GPU knows, where these are not all; None: it cannot be registered for any.
    ``memory_nodes`` are the NUMA nodes nearest to a GPU; a GPU without any does not report them.
    ``fabric_masks`` are the health masks of the NVLink fabric. ``sensors`` are what GPUs measure; a reading that is not there is not supported.
    """

    functions: ClassVar[Mapping[str, Function]] = {}

    def __init__(self, hardware: mock_gpus.MockGpus, *, missing: frozenset[str] = frozenset()) -> None:
        self.hardware = hardware
        self.missing = missing
        self.is_installed = True
        self.loads = 0
        self.returns: dict[str, int] = {}
        self.calls: list[str] = []
        self.event_sets: list[signals.Events] = []
        self.registered: dict[port.GpuUuid, int] = {}
        self.event_kinds: dict[port.GpuUuid, int | None] = {}
        self.memory_nodes: dict[port.GpuUuid, tuple[int, ...]] = {}
        self.fabric_masks: dict[port.GpuUuid, int] = {}
        self.sensors: dict[port.GpuUuid, port.Sensors] = {}
        self._numbers = itertools.count(0x1000, 16)
        self._meanings: dict[int, object] = {}

    def __getattr__(self, symbol: str) -> Callable[..., int]:
        found = self.functions.get(symbol)
        if found is None or symbol in self.missing:
            raise AttributeError(symbol)

        def called(*args: object) -> int:
            self.calls.append(symbol)
            if symbol in self.returns:
                return self.returns[symbol]
            try:
                return found(self, *args) or SUCCESS
            except nvml_errors.CallError as error:
                return error.code.value
            except KeyError:
                return INVALID_ARGUMENT

        return called

    def load(self) -> "Library":
        """The library, as the adapter loads it for a session; CallError while it is not installed."""
        if not self.is_installed:
            raise nvml_errors.CallError("dlopen", nvml_errors.Code.LIBRARY_NOT_FOUND, "not installed")
        self.loads += 1
        return self

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
        found = self.hardware.gpu(cast("port.GpuUuid", meaning))
        if found is None:
            raise nvml_errors.CallError("", nvml_errors.Code.GPU_IS_LOST)
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


def place(library: Library, array: object, meanings: list[tuple[object, ...]]) -> None:
    """Write handles into an array of them."""
    for index, meaning in enumerate(meanings):
        cell = ctypes.c_void_p.from_buffer(array, index * ctypes.sizeof(ctypes.c_void_p))  # type: ignore[arg-type]
        library.give(cell, meaning)
