"""The adapter of ``port.Port`` for Linux: the network interfaces of one network namespace.

Every plan and prepare reads one interface by its name, which is O(1) in the number of interfaces: addresses and routes are requested by its index
(NETLINK_GET_STRICT_CHK; an older kernel returns all, and the others are skipped). Constants: linux/if_link.h.
"""

import dataclasses
import functools
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, TypeVar

from drakit_nic import interface_identity, port
from drakit_nic.attach import attachment_records
from drakit_nic.discovery import hardware, host_use
from drakit_nic.netlink import link_requests, namespaces, rdma_requests, rtnetlink
from drakit_nic.passthrough import kernel_pods, locator, rdma_devices, sriov
from drakit_nic.shaping import ifb_links, kernel_shares, parts, tc_messages

Answer = TypeVar("Answer")

_LOOPBACK = 0x8
_NUM_TX_QUEUES = 31
_ENCAPSULATIONS = {1: port.ETHERNET, 772: port.LOOPBACK, 32: "infiniband", 65534: "none", 512: "ppp", 768: "ipip", 776: "sit"}


class KernelPort(kernel_shares.KernelShares, kernel_pods.KernelPods, sriov.KernelFunctions):
    """The interfaces of one network namespace: None for the process's own, else a name under /run/netns, a path, or an open descriptor."""

    def interfaces(self, own_namespaces: Callable[[], Collection[int]] = tuple) -> tuple[port.Interface, ...]:
        with rtnetlink.failing_as("open"), namespaces.opened(self._namespace or namespaces.OWN) as descriptor:
            return self._inside(functools.partial(_read_all, driver=self._driver, descriptor=descriptor, own_namespaces=own_namespaces))

    def interface(self, name: str) -> port.Interface | None:
        if len(name.encode()) > link_requests.NAME_BYTES_MAX:
            return None
        return self._inside(functools.partial(_read, name=name, driver=self._driver))

    def is_plugged(self, interface: port.Interface) -> bool:
        return interface.pci is None or locator.is_plugged(interface_identity.Identity(place=interface.pci.bus_id))

    def _inside(self, read: Callable[[rtnetlink.Socket, socket.socket], Answer]) -> Answer:
        """Return the result of ``read`` with two sockets of the namespace, one for rtnetlink and one for ethtool. Raises HardwareError."""

        def work() -> Answer:
            with (
                rtnetlink.failing_as("RTM_GETLINK"),
                rtnetlink.Socket.open() as route,
                socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ethtool_socket,
            ):
                return read(route, ethtool_socket)

        if self._namespace is None:
            return work()
        with rtnetlink.failing_as("open"), namespaces.opened(self._namespace) as descriptor, rtnetlink.failing_as("setns"):
            return namespaces.run_in(descriptor, work)


class _Tables(NamedTuple):
    """The addresses, default routes, root qdiscs, ifbs and other uses of interfaces, by index, and the RDMA devices that a PCI function may have."""

    addressed: Collection[int]
    uplinks: Collection[int]
    roots: Mapping[int, tc_messages.Qdisc | None]
    ifbs: Mapping[int, link_requests.Link | None]
    uses: Mapping[int, str]
    rdma_devices: Callable[[str], Sequence[rdma_requests.Device]]


def _read(route: rtnetlink.Socket, ethtool_socket: socket.socket, *, name: str, driver: str) -> port.Interface | None:
    """Return the interface of this name, None if no interface has it or only as an alternative name."""
    link = link_requests.find(route, name)
    if link is None:
        return None
    index = link.ifindex
    roots = {index: tc_messages.qdisc(route, index, tc_messages.AT_ROOT)}
    ifbs = {index: ifb_links.find(route, index)} if driver else {}
    tables = _Tables(
        addressed=link_requests.addressed(route, index),
        uplinks=host_use.default_interfaces(route, index),
        roots=roots,
        ifbs=ifbs,
        uses={},
        rdma_devices=lambda bus_id: _rdma_devices(hardware.rdma_names(bus_id)),
    )
    return _interface(link, ethtool_socket, tables, driver)


def _read_all(
    route: rtnetlink.Socket,
    ethtool_socket: socket.socket,
    *,
    driver: str,
    descriptor: int,
    own_namespaces: Callable[[], Collection[int]],
) -> tuple[port.Interface, ...]:
    links, devices = sorted(link_requests.links(route), key=lambda link: link.ifindex), _rdma_devices()
    host = locator.Host(sock=route, descriptor=descriptor)
    tables = _Tables(
        addressed=link_requests.addressed(route),
        uplinks=host_use.default_interfaces(route),
        roots=tc_messages.roots(route),
        ifbs=ifb_links.ours(route) if driver else {},
        uses=host_use.read(host, links, is_own=_has_mark, own_namespaces=own_namespaces),
        rdma_devices=lambda _: devices,
    )
    return tuple(_interface(link, ethtool_socket, tables, driver) for link in links)


def _interface(link: link_requests.Link, ethtool_socket: socket.socket, tables: _Tables, driver: str) -> port.Interface:
    report = hardware.ethtool(ethtool_socket, link.name)
    return port.Interface(
        ifindex=link.ifindex,
        name=link.name,
        altnames=link.altnames,
        mac=link.mac,
        mtu=link.mtu,
        kind=port.LOOPBACK if link.flags & _LOOPBACK else link.kind or port.PHYSICAL,
        encapsulation=_ENCAPSULATIONS.get(link.layer, f"type-{link.layer}"),
        speed=report.speed,
        carrier=link.carrier,
        state=link.state,
        up=link.up,
        driver=report.driver,
        pci=_pci_function(report.bus_id, link.ifindex, tables.rdma_devices(report.bus_id)) if report.bus_id else None,
        master=link.master,
        lower=None if link.kind in interface_identity.PAIRS or link.other_nsid is not None else link.lower or None,
        default_route=link.ifindex in tables.uplinks,
        addressed=link.ifindex in tables.addressed,
        used=tables.uses.get(link.ifindex, ""),
        transmit_queues=rtnetlink.as_number(link.attributes[_NUM_TX_QUEUES]) if _NUM_TX_QUEUES in link.attributes else 1,
        queueing=parts.chosen_by_others(tables.roots.get(link.ifindex)),
        other_driver=parts.other_driver(tables.ifbs.get(link.ifindex), driver),
    )


def _rdma_devices(only: Collection[str] | None = None) -> Sequence[rdma_requests.Device]:
    """Return the RDMA devices of the calling thread's namespace, or ``only`` those of these names: each costs a request."""
    if not rdma_requests.is_loaded() or (only is not None and not only):
        return ()
    with rdma_requests.Socket.open() as sock:
        return rdma_requests.devices(sock, only)


def _pci_function(bus_id: str, ifindex: int, devices: Sequence[rdma_requests.Device]) -> port.PciFunction:
    device = rdma_devices.of_interface(ifindex, bus_id, devices)
    name = "" if device is None or rdma_devices.is_software(device.name) else device.name
    return dataclasses.replace(hardware.pci_function(bus_id), rdma_device=name)


def _has_mark(link: link_requests.Link) -> bool:
    """Return whether a link has the mark of a share of a driver."""
    return bool(attachment_records.share_of(link.alias))
