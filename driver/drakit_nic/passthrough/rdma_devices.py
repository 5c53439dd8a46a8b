"""The RDMA device of a whole interface: its record, its move into the pod's namespace, and its return.

In exclusive mode the device is moved with its interface. In shared mode every namespace has it already, so the pod needs only its character devices.
RDMA traffic bypasses the kernel's queues, so an interface's device goes only to a claim of the whole interface, and only where no port of the device
belongs to another interface.

The device's index is its identity, because a pod with NET_ADMIN can rename the device. The kernel returns the device to the host when the namespace
that has it ends. It deletes a software device (rxe, siw) when the interface moves, so such an interface is not moved. Functions raise OSError.
"""

import contextlib
import dataclasses
import errno
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

from drakit import wire
from drakit_nic.netlink import namespaces, rdma_requests

NODES = "/dev/infiniband"
_CONNECTION_MANAGER = "rdma_cm"
_NO_MOVE = (
    "the kernel driver of the RDMA device {name} cannot move it to a pod (RDMA is in exclusive mode); "
    "run on the host while no pod is running: rdma system set netns shared; or remove the device"
)
_BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id")
_GONE = "the RDMA device {name} that the claim was prepared with is gone; delete the pod, so that the claim is prepared again"
_CHANGED = (
    "the kernel gave the RDMA device {name} other device nodes ({present}) than the claim was prepared with ({planned}); "
    "delete the pod, so that the claim is prepared again"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RdmaDevice:
    """The RDMA device of an interface, as it was on the host when the claim was planned.

    ``nodes`` are the names of its character devices in /dev/infiniband. ``exclusive`` is set where RDMA was in exclusive mode, ``software`` for a
    device without hardware. ``index`` is the device's in this boot only; ``boot_id`` is empty in a record of an earlier version.
    """

    name: str
    index: int
    boot_id: Annotated[str, wire.Field(name="boot_id")] = ""
    nodes: tuple[str, ...] = ()
    exclusive: bool = False
    software: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subsystem:
    """The RDMA subsystem of a namespace: its mode, and the names of its devices."""

    exclusive: bool
    names: tuple[str, ...]


def subsystem(namespace: str | int | None) -> Subsystem | None:
    """Return the RDMA subsystem of a namespace, None where no RDMA driver is loaded."""
    if not rdma_requests.is_loaded():
        return None
    with rdma_requests.Socket.open(namespace) as sock:
        return Subsystem(exclusive=rdma_requests.is_exclusive(sock), names=tuple(sorted(rdma_requests.names(sock).values())))


def of_interface(
    ifindex: int, bus_id: str, devices: Iterable[rdma_requests.Device], classes: pathlib.Path = rdma_requests.CLASSES
) -> rdma_requests.Device | None:
    """Return the RDMA device of an interface at a PCI address, None if it has none.

    All its ports are the interface's. A driver that links no port to an interface has its device at the interface's PCI function.
    """
    for device in devices:
        ports = set(device.interfaces)
        if ports == {ifindex} or (ports <= {0} and (classes / "infiniband" / device.name / "device").resolve().name == bus_id):
            return device
    return None


def is_software(name: str, classes: pathlib.Path = rdma_requests.CLASSES) -> bool:
    """Return whether an RDMA device of the host has no hardware."""
    return not (classes / "infiniband" / name / "device").exists()


def nodes_of(name: str, classes: pathlib.Path = rdma_requests.CLASSES) -> tuple[str, ...]:
    """Return the names of the character devices of an RDMA device: uverbs, and where the host has them umad and the shared rdma_cm.

    Empty where the device has no uverbs. The classes of these devices are the same in every namespace.
    """
    verbs = _named(classes / "infiniband_verbs", "uverbs", name)
    manager = [_CONNECTION_MANAGER] if (classes / "misc" / _CONNECTION_MANAGER).exists() else []
    return (*verbs, *_named(classes / "infiniband_mad", "umad", name), *manager) if verbs else ()


def read(namespace: str | int | None, ifindex: int, bus_id: str) -> RdmaDevice | None:
    """Return the RDMA device of an interface of a namespace, None if it has none that containers can use."""
    if not rdma_requests.is_loaded():
        return None
    with rdma_requests.Socket.open(namespace) as sock:
        device = of_interface(ifindex, bus_id, rdma_requests.devices(sock))
        if device is None:
            return None
        nodes, software = nodes_of(device.name), is_software(device.name)
        exclusive = rdma_requests.is_exclusive(sock)
    known = RdmaDevice(name=device.name, index=device.index, boot_id=_boot_id(), nodes=nodes, exclusive=exclusive, software=software)
    return known if nodes or software else None


def move_in(device: RdmaDevice, host: str | int | None, pod: int, after_effect: Callable[[], None]) -> None:
    """Move the device into the pod's namespace, where RDMA is in exclusive mode. A device that is there already stays.

    Raises OSError where the pod's containers could not use the device afterwards.
    """
    with rdma_requests.Socket.open(host) as sock:
        if not rdma_requests.is_exclusive(sock):
            return
        is_on_host = device.index in rdma_requests.names(sock)
    if is_on_host:
        try:
            _move(host, device.index, pod, after_effect)
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                raise OSError(error.errno, _NO_MOVE.format(name=device.name)) from error
            raise
    with rdma_requests.Socket.open(pod) as sock:
        name = rdma_requests.names(sock).get(device.index)
    if name is None:
        raise OSError(errno.ENODEV, _GONE.format(name=device.name))
    present = nodes_of(name)
    if not set(device.nodes) <= set(present):
        raise OSError(errno.ESTALE, _CHANGED.format(name=device.name, present=", ".join(present), planned=", ".join(device.nodes)))


def return_to_host(
    device: RdmaDevice, host: str | int | None, descriptor: int, pods: Callable[[], Iterable[str | int]], after_effect: Callable[[], None]
) -> bool:
    """Return the device to the host's namespace ``descriptor`` under its name, from whichever of the pods' namespaces has it.

    Return False where it is in a namespace that was not found, so it is about to return. A device that no longer exists is ignored, also where its
    driver was loaded again and made another one of its name. After a reboot every device is on the host, and the index may be another's.
    """
    if not rdma_requests.is_loaded() or device.boot_id not in {"", _boot_id()}:
        return True
    with rdma_requests.Socket.open(host) as sock:
        present = rdma_requests.names(sock)
        if device.index not in present:
            if not rdma_requests.is_exclusive(sock):
                return True
            if not _fetch(device, descriptor, pods(), after_effect):
                return device.name in present.values() or not nodes_of(device.name)
            present = rdma_requests.names(sock)
    if present.get(device.index, device.name) != device.name and device.name not in present.values():
        with rdma_requests.Socket.open(host, after_effect) as sock:
            rdma_requests.rename(sock, device.index, device.name)
    return True


def _fetch(device: RdmaDevice, descriptor: int, pods: Iterable[str | int], after_effect: Callable[[], None]) -> bool:
    for pod in pods:
        with contextlib.suppress(OSError), rdma_requests.Socket.open(pod) as sock:
            if device.index in rdma_requests.names(sock):
                _move(pod, device.index, descriptor, after_effect)
                return True
    return False


def _move(source: str | int | None, index: int, target: int, after_effect: Callable[[], None]) -> None:
    """Move a device by a thread in the namespace that has it, because the kernel compares the thread's namespace, not the socket's."""

    def work() -> None:
        with rdma_requests.Socket.open(None, after_effect) as sock:
            rdma_requests.move(sock, index, target)

    namespaces.run_in(source, work)


def _boot_id() -> str:
    return _BOOT_ID.read_text("ascii").strip()


def _named(folder: pathlib.Path, prefix: str, device: str) -> Sequence[str]:
    """Return the character devices of an RDMA device in a class."""
    if not folder.is_dir():
        return ()
    return [entry.name for entry in sorted(folder.iterdir()) if entry.name.startswith(prefix) and _text(entry / "ibdev") == device]


def _text(file: pathlib.Path) -> str:
    try:
        return file.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""
