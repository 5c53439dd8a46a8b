"""Mock GPUs that outlive the driver: the hardware port on a simulated machine, with its state in a directory.

Any number of processes may use one directory at the same time: drivers, admins and observers see each other's changes, and a killed process leaves
what it created. ``attach``, ``detach`` and ``reset`` act as the machine's other users and its admin; the driver does not call them.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import drakit
from drakit import machines, vfio
from drakit.vfio import mock
from drakit_gpu import driver_root, nvml_errors, port
from drakit_gpu.health import signals
from drakit_gpu.mock import events, fault_injection, machine, mock_driver_root, rules, state

Result = TypeVar("Result")

_DRIVER, _GPU_CLASS, _VENDOR = "nvidia", 0x030200, "10de"
# Guessed: what a machine with few other modules assigns. 195 alone is fixed (Documentation/admin-guide/devices.txt).
_MAJORS = port.DeviceMajors(nvidia=195, uvm=511, caps=510)
# Guessed from listings of /proc/driver/nvidia-caps/mig-minors: 1 and 2 are config and monitor, then 9 minors an instance, 15 instances a GPU.
_FIRST_CAPABILITY = 3
_CAPABILITIES_PER_INSTANCE = 9
_INSTANCES_PER_GPU = 15


class MockGpus(port.GpuPort):
    """The GPUs of a mock machine; raises SettingsError on construction when machine or directory cannot be used."""

    def __init__(self, choice: machines.Choice) -> None:
        self._directory = choice.directory
        self._machine = machine.load(choice)
        self._faults = fault_injection.Faults(choice.directory)
        self._events = events.EventLog(choice.directory)
        boards = self._machine.boards.items()
        initial = state.MachineState(
            machine=self._machine.name,
            owner=choice.owner,
            boot_id=machines.boot_id(choice.directory),
            gpus={uuid: state.GpuState(uuid=uuid, mig_mode=board.mig_mode, instances=()) for uuid, board in boards},
        )
        self._loses_mode = frozenset(uuid for uuid, board in boards if board.gpu.switches_mig_at_once)
        self._state = state.StateFile(choice.directory, initial, self._loses_mode)
        self._state.read()
        functions = [
            vfio.Function(address=board.gpu.pci_bus_id, driver=_DRIVER, group=index + 1, code=_GPU_CLASS, vendor=_VENDOR)
            for index, (_, board) in enumerate(boards)
        ]
        self.bus = mock.MockBus(choice.directory, functions)

    @property
    def whole_beside_partitions(self) -> bool:
        """Whether the machine's file offers an Ampere GPU in MIG mode also as a whole."""
        return self._machine.whole_beside_partitions

    def driver_root(self) -> driver_root.DriverRoot:
        """Return the machine's driver root, created where it is missing; raises SettingsError."""
        try:
            return mock_driver_root.create_driver_root(self._directory, self._machine.versions.driver)
        except OSError as error:
            raise drakit.SettingsError(f"cannot keep a mock machine in {self._directory}: {error.strerror}", key="mock.dir") from error

    def boot_id(self) -> str:
        with self._call("boot_id"):
            return self._state.boot_id()

    def versions(self) -> port.Versions:
        with self._call("versions"):
            return self._machine.versions

    def census(self) -> port.Census:
        call = "gpus"
        with self._call(call):
            now, bound = self._state.read().gpus, self._bound()
            plugged = [gpu for gpu in self.plugged() if gpu.pci_bus_id in bound]
            lost = str(rules.failure(call, nvml_errors.Code.GPU_IS_LOST))
            return port.Census(
                gpus=tuple(gpu for gpu in plugged if not now[gpu.uuid].lost),
                silent=tuple(port.SilentGpu(index=index, error=lost) for index, gpu in enumerate(plugged) if now[gpu.uuid].lost),
            )

    def gpu(self, uuid: port.GpuUuid) -> port.Gpu | None:
        with self._call("gpus"):
            now = self._state.read().gpus.get(uuid)
            return None if now is None or now.lost or now.unplugged or not self._has_driver(uuid) else self._machine.boards[uuid].gpu

    def ping(self, gpu: port.Gpu) -> None:
        with self._call("ping"):
            self._read(gpu.uuid, "ping")

    def mig_mode(self, gpu: port.GpuUuid) -> port.MigMode | None:
        with self._call("mig_mode"):
            now = self._read(gpu, "mig_mode")
            if not self._machine.boards[gpu].model.profiles:
                return None
            return port.MigMode(current=now.mig_mode, pending=now.mig_mode if now.pending_mode is None else now.pending_mode)

    def set_mig_mode(self, gpu: port.GpuUuid, *, enabled: bool) -> None:
        call = "set_mig_mode"
        with self._call(call):
            board = self._board(gpu, call)
            pending = self._change(gpu, lambda now: rules.set_mode(board, now, enabled=enabled))
            self._emit(gpu, signals.EventKind.MIG)
            if pending is not None:
                raise pending

    def gpu_instance_profiles(self, gpu: port.GpuUuid) -> Sequence[port.GpuInstanceProfile]:
        with self._call("gpu_instance_profiles"):
            models = self._board(gpu, "gpu_instance_profiles").model.profiles.values()
            return tuple(sorted((profile for profile, _ in models), key=lambda profile: profile.enum))

    def possible_placements(self, gpu: port.GpuUuid, profile_id: int) -> Sequence[port.Placement]:
        call = "possible_placements"
        with self._call(call):
            profiles = self._board(gpu, call).model.profiles
            if profile_id not in profiles:
                raise rules.failure(call, nvml_errors.Code.INVALID_ARGUMENT, f"no GPU instance profile {profile_id}")
            return profiles[profile_id][1]

    def gpu_instances(self, gpu: port.GpuUuid, profile_id: int | None = None) -> Sequence[port.GpuInstance]:
        with self._call("gpu_instances"):
            present = (instance.instance for instance in self._read(gpu, "gpu_instances").instances)
            return tuple(instance for instance in present if profile_id in {None, instance.profile_id})

    def create_gpu_instance(self, gpu: port.GpuUuid, profile_id: int, placement: port.Placement) -> port.GpuInstance:
        call = "create_gpu_instance"
        with self._call(call):
            model = self._board(gpu, call).model
            made = self._change(gpu, lambda now: rules.create_instance(model, now, profile_id, placement))
            self._emit(gpu, signals.EventKind.MIG)
            return made

    def destroy_gpu_instance(self, gpu: port.GpuUuid, instance_id: int) -> None:
        call = "destroy_gpu_instance"
        with self._call(call):
            self._board(gpu, call)
            self._change(gpu, lambda now: (rules.destroy_instance(now, instance_id), None))
            self._emit(gpu, signals.EventKind.MIG)

    def compute_instance_profiles(self, gpu: port.GpuUuid, instance: port.GpuInstance) -> Sequence[port.ComputeInstanceProfile]:
        call = "compute_instance_profiles"
        with self._call(call):
            return rules.compute_profiles(self._board(gpu, call).model, self._read(gpu, call), instance.id, call)

    def compute_instances(self, gpu: port.GpuUuid, instance_id: int) -> Sequence[port.ComputeInstance]:
        call = "compute_instances"
        with self._call(call):
            instance = rules.find(self._read(gpu, call), instance_id, call)
            return tuple(_visible(gpu, instance_id, compute) for compute in instance.computes)

    def create_compute_instance(self, gpu: port.GpuUuid, instance_id: int, profile_id: int) -> port.ComputeInstance:
        call = "create_compute_instance"
        with self._call(call):
            model = self._board(gpu, call).model
            created = self._change(gpu, lambda now: rules.create_compute(model, now, instance_id, profile_id))
            return _visible(gpu, instance_id, created)

    def destroy_compute_instance(self, gpu: port.GpuUuid, instance_id: int, compute_id: int) -> None:
        call = "destroy_compute_instance"
        with self._call(call):
            self._board(gpu, call)
            self._change(gpu, lambda now: (rules.destroy_compute(now, instance_id, compute_id), None))

    def device_majors(self) -> port.DeviceMajors:
        with self._call("device_majors"):
            return _MAJORS

    def capability_minors(self, gpu: port.GpuUuid, instance_id: int, compute_id: int) -> port.CapabilityMinors:
        call = "capability_minors"
        with self._call(call):
            rules.find_compute(rules.find(self._read(gpu, call), instance_id, call), compute_id, call)
            per_gpu = _INSTANCES_PER_GPU * _CAPABILITIES_PER_INSTANCE
            first = _FIRST_CAPABILITY + self._board(gpu, call).gpu.minor * per_gpu + instance_id * _CAPABILITIES_PER_INSTANCE
            return port.CapabilityMinors(gpu_instance=first, compute_instance=first + 1 + compute_id)

    def running_processes(self, gpu: port.GpuUuid, instance_id: int | None = None) -> Sequence[int]:
        with self._call("running_processes"):
            clients = self._read(gpu, "running_processes").clients
            return tuple(sorted({client.pid for client in clients if instance_id is None or client.instance_id == instance_id}))

    def compute_mode(self, gpu: port.GpuUuid) -> port.ComputeMode | None:
        with self._call("compute_mode"):
            return self._read(gpu, "compute_mode").compute_mode

    def set_compute_mode(self, gpu: port.GpuUuid, mode: port.ComputeMode) -> None:
        call = "set_compute_mode"
        with self._call(call):
            self._board(gpu, call)
            self._change(gpu, lambda now: (dataclasses.replace(now, compute_mode=mode), None))

    def set_time_slice(self, gpu: port.GpuUuid, interval: port.TimeSlice) -> None:
        call = "set_time_slice"
        with self._call(call):
            board = self._board(gpu, call)
            self._change(gpu, lambda now: (rules.set_time_slice(board, now, interval), None))

    def recovery_action(self, gpu: port.GpuUuid) -> signals.RecoveryAction | None:
        with self._call("recovery_action"):
            return self._read(gpu, "recovery_action").recovery

    def fabric(self, gpu: port.GpuUuid) -> port.Fabric | None:
        with self._call("fabric"):
            return self._board(gpu, "fabric").gpu.fabric

    def sensors(self, gpu: port.GpuUuid) -> port.Sensors:
        """Return no reading: a mock GPU measures nothing."""
        with self._call("sensors"):
            self._read(gpu, "sensors")
            return port.NO_SENSORS

    def events(self) -> signals.Events:
        with self._call("events"):
            return self._events.open()

    def is_plugged(self, gpu: port.Gpu) -> bool:
        with self._call("is_plugged"):
            gpus = self._state.read().gpus
            return gpu.uuid in gpus and not gpus[gpu.uuid].unplugged

    def population(self) -> str:
        with self._call("population"):
            now = self._state.read()
            bound, boards = self._bound(), self._machine.boards
            present = (uuid for uuid, gpu in now.gpus.items() if not gpu.unplugged and boards[uuid].gpu.pci_bus_id in bound)
            return f"{now.loads} {' '.join(present)}"

    def renew(self) -> None:
        with self._call("renew"):
            self._state.read()

    def lock_for_unbinding(self, pci_bus_id: str) -> None:
        call = "lock_for_unbinding"
        with self._call(call):
            for uuid, board in self._machine.boards.items():
                if board.gpu.pci_bus_id == pci_bus_id and self._read(uuid, call).clients:
                    raise rules.failure(call, nvml_errors.Code.IN_USE, pci_bus_id)

    def unlock(self, pci_bus_id: str) -> None:
        del pci_bus_id
        with self._call("unlock"):
            self._state.read()

    def plugged(self) -> Sequence[port.Gpu]:
        """Return the GPUs in the machine by minor number, for observers: also those that are lost."""
        now = self._state.read().gpus
        return tuple(board.gpu for uuid, board in self._machine.boards.items() if not now[uuid].unplugged)

    def time_slice(self, gpu: port.GpuUuid) -> port.TimeSlice:
        """Return the time slice now, for observers: the driver cannot read it."""
        return self._read(gpu, "set_time_slice").time_slice

    def attach(self, gpu: port.GpuUuid, pid: int, instance_id: int | None = None) -> None:
        """Register a process as a client of the GPU, or of one of its instances."""
        self._clients(gpu, lambda clients: {*clients, state.Client(pid=pid, instance_id=instance_id)})

    def detach(self, gpu: port.GpuUuid, pid: int) -> None:
        """Remove a process from the GPU's clients."""
        self._clients(gpu, lambda clients: {client for client in clients if client.pid != pid})

    def reset(self, gpu: port.GpuUuid) -> None:
        """Reset the GPU. A pending MIG mode takes effect, instances and clients are gone, and the GPU is healthy and answers again."""
        self._change(gpu, lambda now: (now.after_reset(), None))
        self._emit(gpu, signals.EventKind.RECOVERY)

    def report_xid(
        self,
        gpu: port.GpuUuid,
        xid: int,
        *,
        instance_id: int | None = None,
        recovery: signals.RecoveryAction = signals.RecoveryAction.NONE,
    ) -> None:
        """Report an Xid of the GPU or of one of its instances. The GPU requests the action ``recovery`` until it is reset."""
        if recovery is not signals.RecoveryAction.NONE:
            self._change(gpu, lambda now: (dataclasses.replace(now, recovery=recovery), None))
        self._emit(gpu, signals.EventKind.XID, xid=xid, instance_id=instance_id)

    def lose(self, gpu: port.GpuUuid) -> None:
        """Make the GPU stop answering until it is reset or the machine reboots."""
        self._change(gpu, lambda now: (dataclasses.replace(now, lost=True), None))
        self._emit(gpu, signals.EventKind.UNAVAILABLE)

    def unplug(self, gpu: port.GpuUuid) -> None:
        """Remove the GPU from the machine."""
        self._change(gpu, lambda now: (state.GpuState(uuid=gpu, mig_mode=now.mig_mode, instances=(), unplugged=True), None))

    def plug(self, gpu: port.GpuUuid) -> None:
        """Insert a removed GPU again."""
        self._change(gpu, lambda now: (dataclasses.replace(now, unplugged=False), None))

    def reload(self) -> None:
        """Reload the GPU driver. This resets all GPUs, and clears MIG mode where a reboot would clear it."""
        self._state.change(lambda now: (now.reloaded(self._loses_mode), None))

    def _emit(self, gpu: port.GpuUuid, kind: signals.EventKind, *, xid: int | None = None, instance_id: int | None = None) -> None:
        self._events.append(signals.Event(gpu=gpu, kind=kind, xid=xid, instance_id=instance_id))

    def _clients(self, gpu: port.GpuUuid, change: Callable[[set[state.Client]], set[state.Client]]) -> None:
        def update(now: state.GpuState) -> tuple[state.GpuState, None]:
            after = sorted(change(set(now.clients)), key=lambda client: (client.pid, client.instance_id or 0))
            return dataclasses.replace(now, clients=tuple(after)), None

        self._board(gpu, "running_processes")
        self._change(gpu, update)

    @contextlib.contextmanager
    def _call(self, call: str) -> Iterator[None]:
        """Run one call with its faults and latency. Faults act outside the lock on the state; an OSError becomes a CallError."""
        try:
            self._faults.trigger(call, fault_injection.Moment.BEFORE)
            if call in self._machine.latencies:
                time.sleep(self._machine.latencies[call])
            yield
            self._faults.trigger(call, fault_injection.Moment.AFTER)
        except OSError as error:
            raise rules.failure(call, nvml_errors.Code.UNKNOWN, str(error)) from error

    def _board(self, gpu: port.GpuUuid, call: str) -> machine.Board:
        """Return the board of a GPU that answers."""
        self._read(gpu, call)
        return self._machine.boards[gpu]

    def _read(self, gpu: port.GpuUuid, call: str) -> state.GpuState:
        """Return the state of a GPU that answers."""
        now = self._state.read().gpus.get(gpu)
        if now is None or gpu not in self._machine.boards or now.unplugged or not self._has_driver(gpu):
            raise rules.failure(call, nvml_errors.Code.NOT_FOUND, gpu)
        if now.lost:
            raise rules.failure(call, nvml_errors.Code.GPU_IS_LOST)
        return now

    def _bound(self) -> frozenset[str]:
        """Return the PCI addresses of the GPUs that NVIDIA's driver has."""
        return frozenset(function.address for function in self.bus.functions() if function.driver == _DRIVER)

    def _has_driver(self, gpu: port.GpuUuid) -> bool:
        """Return whether NVIDIA's driver has the GPU, and no virtual machine."""
        function = self.bus.function(self._machine.boards[gpu].gpu.pci_bus_id) if gpu in self._machine.boards else None
        return function is None or function.driver == _DRIVER

    def _change(self, gpu: port.GpuUuid, move: Callable[[state.GpuState], tuple[state.GpuState, Result]]) -> Result:
        def update(now: state.MachineState) -> tuple[state.MachineState, Result]:
            after, result = move(now.gpus[gpu])
            return now.with_gpu(after), result

        return self._state.change(update)


def _visible(gpu: port.GpuUuid, instance_id: int, compute: state.Compute) -> port.ComputeInstance:
    mig_uuid = rules.mig_uuid(gpu, instance_id, compute.id)
    return port.ComputeInstance(id=compute.id, profile_id=compute.profile_id, mig_uuid=mig_uuid)
