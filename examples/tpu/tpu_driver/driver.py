"""The TPU driver of one node. It prepares the node's chips for a slice that includes the node.

The devices are slices of a grid of nodes. A publisher for the whole cluster offers them (``offer``); the node itself offers no device. A pod of the
claim may run on every node of the slice. Each node prepares its own chips, gives its containers their worker number, and reports its part of the
device's status: the claim's condition Ready holds when every node of the slice is prepared.

A container gets the node's chips and the variables that TPU runtimes read:

    TPU_WORKER_ID              the node's place among the slice's nodes, from 0, row by row
    TPU_WORKER_HOSTNAMES       all nodes of the slice, in the order of their workers
    TPU_TOPOLOGY               chips of the slice, rows x columns
    TPU_ACCELERATOR_TYPE       generation and number of chips, for example v5e-16
    TPU_CHIPS_PER_HOST_BOUNDS  chips of each node in x, y and z (columns, rows, 1)
    TPU_HOST_BOUNDS            nodes of the slice in x, y and z

A node is in one slice at a time, so no two claims of a container set a variable differently.
"""

import drakit
import dataclasses
from collections.abc import Sequence
from typing import Protocol

from tpu_driver import machine, offer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chip:
    """One chip of this node: its device node with major and minor number."""

    path: str
    major: int
    minor: int


class Port(Protocol):
    """The chips of one node. All of them are assigned to one user at a time."""

    def chips(self) -> tuple[Chip, ...]:
        """Return all chips of the node; raises HardwareError."""

    def attach(self, user: str) -> None:
        """Assign the chips to a user, unless that user has them. Raises DeviceBusyError while another user has them, HardwareError."""

    def detach(self, user: str) -> None:
        """Release the chips, if the user has them. Raises HardwareError."""


def _edits(
    placement: machine.Placement, *, worker: int, names: Sequence[str], generation: str, host: machine.Size, chips: Sequence[Chip]
) -> drakit.Edits:
    """Return the edits of one node's part; ``names`` are the slice's nodes in order."""
    nodes = placement.shape.over(host)
    environment = {
        "TPU_WORKER_ID": str(worker),
        "TPU_WORKER_HOSTNAMES": ",".join(names),
        "TPU_TOPOLOGY": str(placement.shape),
        "TPU_ACCELERATOR_TYPE": f"{generation}-{placement.shape.area}",
        "TPU_CHIPS_PER_HOST_BOUNDS": f"{host.columns},{host.rows},1",
        "TPU_HOST_BOUNDS": f"{nodes.columns},{nodes.rows},1",
    }
    chip_nodes = (drakit.DeviceNode(path=chip.path, type="c", major=chip.major, minor=chip.minor) for chip in chips)
    return drakit.Edits(env=environment, device_nodes=tuple(chip_nodes))


NAME = "tpu.drakit.dev"


class TpuDriver(drakit.Driver[drakit.NoConfig]):
    """The driver for the chips of ``node`` in a node pool. A node outside the pool has no part of any slice."""

    def __init__(self, node_pool: machine.NodePool, chips: Port, *, node: str, name: str = NAME) -> None:
        self.name = name
        self._node_pool = node_pool
        self._chips = chips
        self._node = node
        self._context: drakit.DriverContext | None = None
        place = node_pool.place_of(node)
        self._placements = {placement.name: placement for placement in node_pool.grid.placements() if place in placement.nodes}
        self._devices = {
            (pool.name, device.name): device
            for pool in offer.of(node_pool)
            for device in pool.inventory.devices
            if device.name in self._placements
        }

    def discover(self) -> drakit.Inventory:
        """Return no devices: every slice belongs to several nodes."""
        return drakit.Inventory()

    def cluster_device(self, pool: str, name: str) -> drakit.Device | None:
        """Return a slice that includes this node; None for any other."""
        return self._devices.get((pool, name))

    def start(self, context: drakit.DriverContext) -> None:
        self._context = context

    def stop(self) -> None:
        self._context = None

    def prepare(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Prepared:
        """Attach the chips, and return the container's edits with its worker number. Admin access gets no chips."""
        placement = self._placements.get(grant.device.name)
        if placement is None or (grant.pool, grant.device.name) not in self._devices:
            raise drakit.DeviceGoneError(f"node {self._node} has no part of {grant.pool}/{grant.device.name} any more")
        names = self._nodes_of(placement)
        worker = names.index(self._node)
        if not grant.admin_access:
            self._chips.attach(_user(grant))
        container_edits = _edits(
            placement,
            worker=worker,
            names=names,
            generation=self._node_pool.generation,
            host=self._node_pool.grid.host,
            chips=() if grant.admin_access else self._chips.chips(),
        )
        self._report(grant, worker=worker, nodes=len(names))
        return drakit.Prepared(edits=container_edits, record={"worker": worker})

    def unprepare(self, grant: drakit.Grant[drakit.NoConfig]) -> None:
        if not grant.admin_access:
            self._chips.detach(_user(grant))

    def _nodes_of(self, placement: machine.Placement) -> tuple[str, ...]:
        return tuple(self._node_pool.nodes[node] for node in placement.nodes)

    def _report(self, grant: drakit.Grant[drakit.NoConfig], *, worker: int, nodes: int) -> None:
        """Report this node's part of the device's status; each node reports its own, and unprepare removes all parts."""
        if self._context is None or grant.admin_access:
            return
        ready = drakit.Condition(type="Ready", status=True, reason="Prepared")
        status = drakit.DeviceStatus(device=grant.device.name, pool=grant.pool, conditions=(ready,), values={"worker": worker}, nodes=nodes)
        self._context.set_status(grant.claim, status)


def _user(grant: drakit.Grant[drakit.NoConfig]) -> str:
    return f"{grant.claim.uid}/{grant.device.name}"
