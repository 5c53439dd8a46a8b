"""Cores of a node, given out exclusively: one device for each NUMA node, shared by as many claims as it has cores.

How many cores a claim gets the scheduler decides (KEP-5075, consumable capacity); which ones is decided here, in ``plan``, before anything else
happens. The choice is in the journal from then on, so it survives the process, and no two grants that live have a core in common. If the journal is
lost, what the containers were told is all that is left of it: ``recall`` reads it back from their CDI files.
"""

from collections.abc import Collection, Sequence

import drakit
from cpu_driver import topology

CORES = "cores"


class CpuDriver(drakit.Driver[drakit.NoConfig]):
    """Offers the cores of ``machine``."""

    name = "cpu.example.com"

    def __init__(self, machine: topology.Topology) -> None:
        self._machine = machine

    def discover(self) -> drakit.Inventory:
        """A device for each NUMA node."""
        return drakit.Inventory.of(_device(node) for node in self._machine.nodes())

    def plan(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Record:
        """The cores of the grant: the lowest that no other grant of the NUMA node was promised."""
        if grant.admin_access:
            return {CORES: []}
        wanted = grant.consumed_capacity[CORES].value
        taken = {core for intent in self.planned(grant.device) for core in cores_of(intent)}
        free = [core for core in self._present(grant.device) if core not in taken]
        if len(free) < wanted:
            raise drakit.DeviceBusyError(f"{grant.device.name} has {len(free)} free cores, the claim has {wanted}")
        return {CORES: free[:wanted]}

    def recall(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Record:
        """The cores that the container was told, if it can have them: they are in the NUMA node, as many as were granted, and nobody else's."""
        if grant.admin_access:
            return {CORES: []}
        told = grant.found.env.get(_variable(grant)) if grant.found else None
        if told is None:
            raise drakit.DeviceGoneError(
                f"the CDI file does not say which cores of {grant.device.name} the claim has; delete the claim's pods"
            )
        cores = _read(told, grant.device.name, self._present(grant.device))
        wanted = grant.consumed_capacity.get(CORES)
        if wanted is not None and len(cores) != wanted.value:
            raise drakit.DeviceGoneError(f"the CDI file says cores {told}, the claim has {wanted} of {grant.device.name}")
        shared = {core for intent in self.planned(grant.device) for core in cores_of(intent)}.intersection(cores)
        if shared:
            raise drakit.DeviceBusyError(f"the CDI file says cores {told}, of which another claim has {topology.written(shared)}")
        return {CORES: cores}

    def prepare(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Prepared:
        """Tell the container its cores. Nothing of the node is changed, so there is nothing to undo."""
        cores = cores_of(grant.intent)
        lost = set(cores).difference(self._present(grant.device))
        if lost:
            raise drakit.DeviceGoneError(f"cores {topology.written(lost)} are not online any more")
        edits = drakit.Edits(env={_variable(grant): topology.written(cores)})
        return drakit.Prepared(edits=edits, record={CORES: topology.written(cores)})

    def _present(self, device: drakit.Device) -> Sequence[int]:
        """The cores that the device's NUMA node has now; none where it is gone."""
        return next((node.cores for node in self._machine.nodes() if _name(node) == device.name), ())


def cores_of(intent: drakit.Record) -> tuple[int, ...]:
    """The cores that ``plan`` chose."""
    chosen = intent.get(CORES)
    return tuple(core for core in chosen if isinstance(core, int)) if isinstance(chosen, Sequence) and not isinstance(chosen, str) else ()


def _read(told: str, device: str, present: Collection[int]) -> list[int]:
    """The cores of a list that anybody may have edited: each is looked at before the next, because it may be long."""
    cores: list[int] = []
    try:
        for core in topology.parse(told):
            if core not in present or core in cores:
                raise drakit.DeviceGoneError(
                    f"the CDI file says core {core}, {'twice' if core in cores else f'which {device} does not have'}"
                )
            cores.append(core)
    except ValueError as error:
        raise drakit.DeviceGoneError(f"the CDI file of a claim of {device}: {error}") from error
    return sorted(cores)


def _variable(grant: drakit.Grant[drakit.NoConfig]) -> str:
    """The name of the variable that tells a container its cores; of several shares in one container each has its own."""
    suffix = grant.device.name.upper().replace("-", "_") + (f"_{grant.share_id[:8]}" if grant.share_id else "")
    return f"CPUSET_{suffix}"


def _name(node: topology.NumaNode) -> str:
    return f"numa-{node.number}"


def _device(node: topology.NumaNode) -> drakit.Device:
    policy = drakit.RequestPolicy(default=1, valid_range=drakit.ValidRange(min=1, step=1))
    # A step beyond the only core would be above the capacity, which the API refuses.
    if len(node.cores) == 1:
        policy = drakit.RequestPolicy(default=1, valid_values=(1,))
    return drakit.Device(
        name=_name(node),
        attributes={"numaNode": node.number, "coreList": topology.written(node.cores)},
        capacity={CORES: drakit.Capacity(value=len(node.cores), policy=policy)},
        allow_multiple_allocations=True,
    )
