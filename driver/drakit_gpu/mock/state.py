"""The state of mock GPUs, shared by processes: one file in the machine's directory, replaced whole.

A change holds an flock, writes a new file, syncs it, renames it over the old one, and syncs the directory. So a killed process leaves the state
before or after its change, and several processes change it in turn. Reads need no lock. After a reboot of the machine, instances and processes are
gone. MIG mode then becomes the pending one, or is off where the hardware does not keep it.
"""

import contextlib
import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Annotated, Literal, TypeVar

import drakit
from drakit import machines, wire
from drakit_gpu import port
from drakit_gpu.health import signals

Result = TypeVar("Result")

_FILE = "gpus.json"
_LOCK = "gpus.lock"
# A later version may add fields. A field without a default is always written, because earlier versions require it.
_FORMAT = wire.Format(ignore_unknown=True)
_MODE = _FORMAT.converter(bool)
_PENDING_MODE = wire.Converter(
    lambda row: _MODE.decode(row["pendingMode"]) if "pendingMode" in row else None,
    lambda mode: {} if mode is None else {"pendingMode": mode},
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compute:
    """A compute instance."""

    id: int
    profile_id: Annotated[int, wire.Field(name="profile")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Instance:
    """A GPU instance at a place, and its compute instances."""

    id: int
    profile_id: Annotated[int, wire.Field(name="profile")]
    start: int
    size: int
    computes: tuple[Compute, ...]

    @property
    def instance(self) -> port.GpuInstance:
        """Return the GPU instance as the port has it."""
        return port.GpuInstance(id=self.id, profile_id=self.profile_id, placement=port.Placement(start=self.start, size=self.size))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Client:
    """A process with a context on a GPU; ``instance_id`` is that of its GPU instance, or None when it has the whole GPU open."""

    pid: int
    instance_id: Annotated[int | None, wire.Field(name="instance")] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuState:
    """The state of one GPU; instances by placement. ``pending_mode`` is the MIG mode after the next reset, None if it stays.

    ``recovery`` is the action that it requests. A ``lost`` GPU answers no call; an ``unplugged`` one is not in the machine.
    """

    uuid: port.GpuUuid
    mig_mode: bool
    # Inline, because a member that is false and not required is left out.
    pending_mode: Annotated[bool | None, wire.Field(inline=True, converter=_PENDING_MODE)] = None
    instances: tuple[Instance, ...]
    clients: tuple[Client, ...] = ()
    compute_mode: port.ComputeMode = port.ComputeMode.DEFAULT
    time_slice: port.TimeSlice = port.TimeSlice.DEFAULT
    recovery: signals.RecoveryAction = signals.RecoveryAction.NONE
    lost: bool = False
    unplugged: bool = False

    def after_reset(self) -> "GpuState":
        """Return the GPU after a reset."""
        mode = self.mig_mode if self.pending_mode is None else self.pending_mode
        return GpuState(uuid=self.uuid, mig_mode=mode, instances=(), unplugged=self.unplugged)

    def without_memory(self) -> "GpuState":
        """Return the GPU after a power cycle, which also clears MIG mode."""
        return GpuState(uuid=self.uuid, mig_mode=False, instances=(), unplugged=self.unplugged)


_LISTED = _FORMAT.converter(tuple[GpuState, ...])
_GPUS = wire.Converter(lambda listed: {state.uuid: state for state in _LISTED.decode(listed)}, lambda gpus: _LISTED.encode(gpus.values()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class MachineState:
    """The state of all GPUs of a machine. ``machine`` and ``owner`` identify it; ``loads`` counts reloads of the driver."""

    version: Literal[1] = 1
    machine: str
    owner: str
    boot_id: Annotated[str, wire.Field(name="bootID")]
    gpus: Annotated[Mapping[port.GpuUuid, GpuState], wire.Field(converter=_GPUS)]
    loads: int = 0

    def with_gpu(self, state: GpuState) -> "MachineState":
        """Return the machine with one GPU changed."""
        return dataclasses.replace(self, gpus={**self.gpus, state.uuid: state})

    def booted(self, boot_id: str, loses_mode: frozenset[port.GpuUuid]) -> "MachineState":
        """Return the machine in a boot: unchanged in the same boot, reset in another. GPUs of ``loses_mode`` also lose their MIG mode."""
        if boot_id == self.boot_id:
            return self
        return dataclasses.replace(self, boot_id=boot_id, gpus=self._after_restart(loses_mode))

    def reloaded(self, loses_mode: frozenset[port.GpuUuid]) -> "MachineState":
        """Return the machine after a reload of the GPU driver."""
        return dataclasses.replace(self, gpus=self._after_restart(loses_mode), loads=self.loads + 1)

    def _after_restart(self, loses_mode: frozenset[port.GpuUuid]) -> Mapping[port.GpuUuid, GpuState]:
        return {uuid: state.without_memory() if uuid in loses_mode else state.after_reset() for uuid, state in self.gpus.items()}


_FORMAT.converter(MachineState)  # compiled at import, as the identities of devices are


class StateFile:
    """The state in a directory; ``initial`` is that of an unused machine, and identifies the machine.

    ``loses_mode`` has the GPUs that do not keep their MIG mode over a reboot.
    """

    def __init__(self, directory: pathlib.Path, initial: MachineState, loses_mode: frozenset[port.GpuUuid] = frozenset()) -> None:
        self._directory = directory
        self._path = directory / _FILE
        self._initial = initial
        self._loses_mode = loses_mode
        self._boot, self._file = machines.Mirror(directory / machines.BOOT_ID), machines.Mirror(self._path)

    def read(self) -> MachineState:
        """Return the present state. Raises SettingsError if the file belongs to another machine or is invalid."""
        boot_id = self.boot_id()
        text = self._file.text()
        if text is None:
            return dataclasses.replace(self._initial, boot_id=boot_id)
        state = _decode(text, str(self._path))
        if (state.machine, state.owner) != (self._initial.machine, self._initial.owner):
            actual, wanted = f"{state.machine!r} of {state.owner!r}", f"{self._initial.machine!r} of {self._initial.owner!r}"
            raise drakit.SettingsError(f"is the state of machine {actual}, not of {wanted}; use another directory", key=str(self._path))
        return state.booted(boot_id, self._loses_mode)

    def change(self, move: Callable[[MachineState], tuple[MachineState, Result]]) -> Result:
        """Apply a change to the state durably. If ``move`` raises, the state stays."""
        self.boot_id()
        with machines.locked(self._directory, _LOCK):
            after, result = move(self.read())
            machines.rewrite(self._path, f"{json.dumps(_FORMAT.encode(after), indent=1)}\n")
        return result

    def boot_id(self) -> str:
        """Return the id of the present boot. Boot the machine if it has none. Raises SettingsError if the file cannot be read."""
        with contextlib.suppress(OSError):
            text = self._boot.text()
            if text is not None:
                return text.strip()
        return machines.boot_id(self._directory)


@functools.lru_cache(maxsize=16)
def _decode(text: str, origin: str) -> MachineState:
    try:
        return _FORMAT.decode(MachineState, json.loads(text))
    except (ValueError, drakit.ConfigError) as error:
        raise drakit.SettingsError(f"is no state of a mock machine ({error}); use another directory", key=origin) from error
