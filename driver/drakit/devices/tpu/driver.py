"""The TPU driver of one node: makes this node's chips usable for a slice of which the node is a part.

The devices are slices of a grid of nodes, and a publisher of the whole cluster offers them (``offer``); the node itself offers nothing. A pod of the
claim may run on every node of the slice, and each node prepares its own chips, says which worker it is, and reports its part of the device's status:
the claim's condition Ready holds when every node of the slice is prepared.
"""

from drakit.core import claim_status, driver, errors, inventory
from drakit.core import context as contexts
from drakit.core import device as devices
from drakit.devices.tpu import edits, machine, offer, port, topology

NAME = "tpu.drakit.dev"


class TpuDriver(driver.Driver[driver.NoConfig]):
    """Prepares the chips of ``node`` for slices of the node pool ``found``; a node that is not of the pool has no part in any slice."""

    def __init__(self, found: machine.NodePool, chips: port.Port, *, node: str, name: str = NAME) -> None:
        self.name = name
        self._found = found
        self._chips = chips
        self._node = node
        self._context: contexts.DriverContext | None = None
        place = found.place_of(node)
        mine = {one.name: one for one in found.grid.placements() if place in one.nodes}
        self._placements = mine
        self._devices = {(pool.name, item.name): item for pool in offer.of(found) for item in pool.inventory.devices if item.name in mine}

    def discover(self) -> inventory.Inventory:
        """Nothing: no slice is this node's alone to offer."""
        return inventory.Inventory()

    def cluster_device(self, pool: str, name: str) -> devices.Device | None:
        return self._devices.get((pool, name))

    def start(self, context: contexts.DriverContext) -> None:
        self._context = context

    def stop(self) -> None:
        self._context = None

    def prepare(self, grant: driver.Grant[driver.NoConfig]) -> driver.Prepared:
        """Attach the chips and say which worker this node is. Admin access is told the same and given no chips."""
        one = self._placements.get(grant.device.name)
        if one is None or (grant.pool, grant.device.name) not in self._devices:
            raise errors.DeviceGoneError(f"node {self._node} has no part in {grant.pool}/{grant.device.name} any more")
        names = self._nodes_of(one)
        worker = names.index(self._node)
        if not grant.admin_access:
            self._chips.attach(_user(grant))
        told = edits.of(
            one,
            worker=worker,
            names=names,
            generation=self._found.generation,
            host=self._found.grid.host,
            chips=() if grant.admin_access else self._chips.chips(),
        )
        self._report(grant, worker=worker, nodes=len(names))
        return driver.Prepared(edits=told, record={"worker": worker})

    def unprepare(self, grant: driver.Grant[driver.NoConfig]) -> None:
        if not grant.admin_access:
            self._chips.detach(_user(grant))

    def _nodes_of(self, one: topology.Placement) -> tuple[str, ...]:
        return tuple(self._found.nodes[node] for node in one.nodes)

    def _report(self, grant: driver.Grant[driver.NoConfig], *, worker: int, nodes: int) -> None:
        """Say this node's part of the device's status; the other nodes say theirs, and all of it goes when the claim is unprepared."""
        if self._context is None or grant.admin_access:
            return
        ready = claim_status.Condition(type="Ready", status=True, reason="Prepared")
        said = claim_status.DeviceStatus(
            device=grant.device.name, pool=grant.pool, conditions=(ready,), values={"worker": worker}, nodes=nodes
        )
        self._context.set_status(grant.claim, said)


def _user(grant: driver.Grant[driver.NoConfig]) -> str:
    return f"{grant.claim.uid}/{grant.device.name}"
