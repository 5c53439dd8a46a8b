"""The state of mock GPUs, shared by processes: one file in the machine's directory, replaced whole.

A change holds an flock, writes a new file, syncs it, renames it over the old one, and syncs the directory. So a killed process leaves the state
before or after its change, and several processes change it in turn. Reads need no lock. After a reboot of the machine, instances and processes are
gone. MIG mode then becomes the pending one, or is off where the hardware does not keep it.
"""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import TypeVar

import drakit
from drakit import machines, tables
from drakit_gpu import port
from drakit_gpu.health import signals

Result = TypeVar("Result")

_VERSION = 1
_FILE = "gpus.json"
_LOCK = "gpus.lock"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compute:
    """A compute instance."""

    id: int
    profile_id: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Instance:
    """A GPU instance and its compute instances."""

    instance: port.GpuInstance
    computes: tuple[Compute, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Client:
    """A process with a context on a GPU; ``instance_id`` is that of its GPU instance, or None when it has the whole GPU open."""

    pid: int
    instance_id: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuState:
    """The state of one GPU; instances by placement. ``pending_mode`` is the MIG mode after the next reset, None when it is the present one.

    ``recovery`` is the action that it requests. A ``lost`` GPU answers no call; an ``unplugged`` one is not in the machine.
    """

    mig_mode: bool
    pending_mode: bool | None = None
    instances: tuple[Instance, ...] = ()
    clients: tuple[Client, ...] = ()
    compute_mode: port.ComputeMode = port.ComputeMode.DEFAULT
    time_slice: port.TimeSlice = port.TimeSlice.DEFAULT
    recovery: signals.RecoveryAction = signals.RecoveryAction.NONE
    lost: bool = False
    unplugged: bool = False

    def after_reset(self) -> "GpuState":
        """Return the GPU after a reset."""
        return GpuState(mig_mode=self.mig_mode if self.pending_mode is None else self.pending_mode, unplugged=self.unplugged)

    def without_memory(self) -> "GpuState":
        """Return the GPU after a power cycle, which also clears MIG mode."""
        return GpuState(mig_mode=False, unplugged=self.unplugged)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MachineState:
    """The state of all GPUs of a machine. ``machine`` and ``owner`` identify it; ``loads`` counts reloads of the driver."""

    machine: str
    owner: str
    boot_id: str
    gpus: Mapping[port.GpuUuid, GpuState]
    loads: int = 0

    def with_gpu(self, uuid: port.GpuUuid, state: GpuState) -> "MachineState":
        """Return the machine with one GPU changed."""
        return dataclasses.replace(self, gpus={**self.gpus, uuid: state})

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


class StateFile:
    """The state in a directory; ``initial`` is that of an unused machine, and identifies the machine.

    ``loses_mode`` has the GPUs that do not keep their MIG mode over a reboot.
    """

    def __init__(self, directory: pathlib.Path, initial: MachineState, loses_mode: frozenset[port.GpuUuid] = frozenset()) -> None:
        self._directory = directory
        self._initial = initial
        self._loses_mode = loses_mode
        self._boot, self._file = machines.Mirror(directory / machines.BOOT_ID), machines.Mirror(directory / _FILE)
        self._decoded: tuple[str, MachineState] | None = None

    def read(self) -> MachineState:
        """Return the present state. Raises SettingsError if the file belongs to another machine or is invalid."""
        boot_id = self._boot_id()
        file = self._directory / _FILE
        text = self._file.text()
        if text is None:
            return dataclasses.replace(self._initial, boot_id=boot_id)
        cached = self._decoded
        state = cached[1] if cached is not None and cached[0] == text else _decode(text, str(file))
        self._decoded = text, state
        if (state.machine, state.owner) != (self._initial.machine, self._initial.owner):
            actual, wanted = f"{state.machine!r} of {state.owner!r}", f"{self._initial.machine!r} of {self._initial.owner!r}"
            raise drakit.SettingsError(f"is the state of machine {actual}, not of {wanted}; use another directory", key=str(file))
        return state.booted(boot_id, self._loses_mode)

    def change(self, move: Callable[[MachineState], tuple[MachineState, Result]]) -> Result:
        """Apply a change to the state durably. If ``move`` raises, the state stays."""
        machines.boot_id(self._directory)
        with machines.locked(self._directory, _LOCK):
            after, result = move(self.read())
            machines.rewrite(self._directory / _FILE, _encode(after))
        return result

    def _boot_id(self) -> str:
        """Return the id of the present boot. Boot the machine if it has none. Raises SettingsError if the file cannot be read."""
        with contextlib.suppress(OSError):
            text = self._boot.text()
            if text is not None:
                return text.strip()
        return machines.boot_id(self._directory)


def _encode(state: MachineState) -> str:
    document = {
        "version": _VERSION,
        "machine": state.machine,
        "owner": state.owner,
        "bootID": state.boot_id,
        **({"loads": state.loads} if state.loads else {}),
        "gpus": [{"uuid": uuid, **_encode_gpu(gpu)} for uuid, gpu in state.gpus.items()],
    }
    return json.dumps(document, indent=1) + "\n"


def _encode_gpu(gpu: GpuState) -> dict[str, object]:
    document: dict[str, object] = {"migMode": gpu.mig_mode, "instances": [_encode_instance(instance) for instance in gpu.instances]}
    if gpu.pending_mode is not None:
        document["pendingMode"] = gpu.pending_mode
    if gpu.compute_mode is not port.ComputeMode.DEFAULT:
        document["computeMode"] = gpu.compute_mode.value
    if gpu.time_slice is not port.TimeSlice.DEFAULT:
        document["timeSlice"] = gpu.time_slice.value
    if gpu.recovery is not signals.RecoveryAction.NONE:
        document["recovery"] = gpu.recovery.value
    document |= {name: True for name, is_set in (("lost", gpu.lost), ("unplugged", gpu.unplugged)) if is_set}
    if gpu.clients:
        document["clients"] = [{"pid": client.pid, **_if_set("instance", client.instance_id)} for client in gpu.clients]
    return document


def _if_set(field: str, value: int | None) -> dict[str, int]:
    return {} if value is None else {field: value}


def _encode_instance(state: Instance) -> dict[str, object]:
    instance = state.instance
    computes = [{"id": compute.id, "profile": compute.profile_id} for compute in state.computes]
    placement = {"start": instance.placement.start, "size": instance.placement.size}
    return {"id": instance.id, "profile": instance.profile_id, **placement, "computes": computes}


def _decode(text: str, origin: str) -> MachineState:
    try:
        top = tables.Table(json.loads(text), f"{origin}: ")
    except json.JSONDecodeError as error:
        raise drakit.SettingsError(f"is not JSON: {error}", key=origin) from error
    version = top.integer("version")
    if version != _VERSION:
        raise drakit.SettingsError(f"version {version} is not {_VERSION}; use another directory", key=origin)
    state = MachineState(
        machine=top.text("machine"),
        owner=top.maybe_empty("owner"),
        boot_id=top.text("bootID"),
        gpus={port.GpuUuid(row.text("uuid")): _decode_gpu(row) for row in top.rows("gpus")},
        loads=top.optional("loads", top.integer) or 0,
    )
    top.close()
    return state


def _decode_gpu(row: tables.Table) -> GpuState:
    state = GpuState(
        mig_mode=row.flag("migMode"),
        pending_mode=row.optional("pendingMode", row.flag),
        instances=tuple(map(_decode_instance, row.rows("instances"))),
        clients=tuple(map(_decode_client, row.optional("clients", row.rows) or ())),
        compute_mode=port.ComputeMode(row.optional("computeMode", row.text) or port.ComputeMode.DEFAULT),
        time_slice=port.TimeSlice(row.optional("timeSlice", row.text) or port.TimeSlice.DEFAULT),
        recovery=signals.RecoveryAction(row.optional("recovery", row.text) or signals.RecoveryAction.NONE),
        lost=row.optional("lost", row.flag) or False,
        unplugged=row.optional("unplugged", row.flag) or False,
    )
    row.close()
    return state


def _decode_client(row: tables.Table) -> Client:
    client = Client(pid=row.integer("pid", least=1), instance_id=row.optional("instance", row.integer))
    row.close()
    return client


def _decode_instance(row: tables.Table) -> Instance:
    placement = port.Placement(start=row.integer("start"), size=row.integer("size", least=1))
    instance = port.GpuInstance(id=row.integer("id"), profile_id=row.integer("profile"), placement=placement)
    computes = tuple(_decode_compute(compute) for compute in row.rows("computes"))
    row.close()
    return Instance(instance=instance, computes=computes)


def _decode_compute(row: tables.Table) -> Compute:
    compute = Compute(id=row.integer("id"), profile_id=row.integer("profile"))
    row.close()
    return compute
