"""The state that the dashboard and ``drakit top`` show, as values that become JSON."""

import dataclasses
from collections.abc import Mapping

from drakit.core import quantity

EVENTS_MAX = 50
POD, CLAIM = "Pod", "Claim"
"""The kinds of what waits."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Use:
    """A claim that uses a device, and its pods as namespace/name. ``since`` is when the claim was created, RFC 3339; empty if unknown."""

    claim: str
    pods: tuple[str, ...] = ()
    since: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Holding:
    """A device that a claim holds, exclusively or with a ``share`` and its consumed capacity.

    ``state`` is the claim's state; ``done`` is true if the device is prepared, None if that is unknown. ``interface`` is the name of its network
    interface in the pod; empty if unknown.
    """

    device: str
    claim: str
    uid: str
    request: str = ""
    share: str = ""
    consumed: Mapping[str, quantity.Quantity] = dataclasses.field(default_factory=dict)
    admin: bool = False
    state: str = "allocated"
    done: bool | None = None
    pods: tuple[str, ...] = ()
    since: str = ""
    pool: str = ""
    interface: str = ""

    @property
    def use(self) -> Use:
        """Return who uses the device."""
        return Use(claim=self.claim, pods=self.pods, since=self.since)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Taint:
    """A taint as ``key=value:effect``, the time of its addition (RFC 3339; empty if unknown), and the DeviceTaintRule that adds it, if one does."""

    text: str
    since: str = ""
    rule: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Health:
    """The health of a device, with the reason and its taints."""

    state: str = ""
    message: str = ""
    taints: tuple[Taint, ...] = ()

    @property
    def is_well(self) -> bool:
        """Return whether the device has no problem."""
        return self.state in ("", "Healthy") and not self.taints


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """The product, the memory and the UUID of a device, as its driver publishes them; empty if it does not."""

    model: str = ""
    memory: str = ""
    uuid: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Readings:
    """What a GPU's sensors report now; None if the GPU does not report it.

    ``utilization`` is from 0 to 1, ``memory_used`` in bytes, ``temperature`` in degrees Celsius, ``power`` and its limit in watts.
    """

    utilization: float | None = None
    memory_used: float | None = None
    temperature: float | None = None
    power: float | None = None
    power_limit: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Span:
    """Neighbouring memory slices of one GPU that one device has; those of others' instances have no device and no use.

    ``memory`` is the device's, in bytes, and ``left`` what claims that share it have not yet; 0 for a device that is not shared.
    """

    start: int
    size: int
    device: str = ""
    kind: str = ""
    uses: tuple[Use, ...] = ()
    memory: int = 0
    left: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gpu:
    """The memory slices of one GPU: their number ``width``, the spans in use, and what still fits.

    ``together`` has a few sets of kinds that fit at the same time, ``alone`` each kind without the others, ``fragmented`` what would fit after moves.
    ``largest`` is the set with the largest kinds first, ``smallest`` that with the smallest first. ``has_room`` is set if anything fits, a share too.
    """

    name: str
    width: int
    spans: tuple[Span, ...]
    together: tuple[Mapping[str, int], ...]
    largest: Mapping[str, int]
    smallest: Mapping[str, int]
    alone: Mapping[str, int]
    fragmented: str
    health: Health
    facts: Facts = Facts()
    readings: Readings = Readings()
    has_room: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Share:
    """A share of a NIC; ``amount`` in bits per second. ``sent`` and ``received`` are counters in bytes, -1 if unknown.

    ``interface`` is its name in the pod, empty if unknown.
    """

    use: Use
    share: str
    amount: int
    sent: int = -1
    received: int = -1
    interface: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Nic:
    """A device with shared bandwidth; ``capacity`` in bits per second. ``interface`` is its name on the node, empty if unknown."""

    name: str
    capacity: int
    shares: tuple[Share, ...]
    health: Health
    interface: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OtherDevice:
    """A device that is neither part of a GPU's map nor a NIC. ``memory`` is in bytes, 0 if it publishes none."""

    name: str
    kind: str
    uses: tuple[Use, ...]
    health: Health
    facts: Facts = Facts()
    readings: Readings = Readings()
    memory: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pool:
    """The devices of one driver in one pool. ``slices`` is the number of published slices, such as ``2 of 3``; empty if unknown.

    ``is_down`` is set if its driver does not run or its slices are gone; ``note`` says so then. ``unpublished`` are the devices that
    claims have while its slices are gone; nothing but their names is known.
    """

    driver: str
    name: str
    generation: int = 0
    slices: str = ""
    note: str = ""
    is_down: bool = False
    gpus: tuple[Gpu, ...] = ()
    nics: tuple[Nic, ...] = ()
    others: tuple[OtherDevice, ...] = ()
    unpublished: tuple[OtherDevice, ...] = ()

    @property
    def unwell(self) -> int:
        """Return the number of devices that are not well, with one more for a driver that is down."""
        healths = [gpu.health for gpu in self.gpus] + [nic.health for nic in self.nics] + [device.health for device in self.others]
        return sum(not health.is_well for health in healths) + self.is_down


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """A node with its pools. Pools that belong to no node have an empty name. ``notes`` say why pods do not come here, such as a cordon."""

    name: str
    pools: tuple[Pool, ...]
    notes: tuple[str, ...] = ()

    @property
    def closed(self) -> str:
        """Return why pods do not come here in a few words, such as ``cordoned``; empty if they do."""
        return ", ".join(note.partition(":")[0] for note in self.notes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Waiting:
    """A pod or a claim that waits for devices: its kind and namespace/name, what it asks for, and why it waits.

    ``node`` is the node of a pod that was scheduled: its devices are allocated, and it waits for the kubelet.
    """

    kind: str
    name: str
    asks: str
    reason: str
    since: str = ""
    node: str = ""

    @property
    def waits_for_allocation(self) -> bool:
        """Return whether it is a pod that no scheduler placed yet, so that ``drakit allocate --live --why`` explains it."""
        return self.kind == POD and not self.node


@dataclasses.dataclass(frozen=True, kw_only=True)
class Free:
    """What is free of one model of a driver on all nodes: how many of its GPUs or devices nobody uses, out of how many.

    ``closed`` of them are on nodes to which no pods come, so they are not free.
    ``sets`` has kinds that fit at the same time: the largest first, and the smallest first; for devices without partitions nothing.
    ``left`` is the memory, in bytes, that is left to share of GPUs in use.
    """

    driver: str
    model: str
    unused: int
    total: int
    sets: tuple[Mapping[str, int], ...] = ()
    closed: int = 0
    left: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Granted:
    """A device that a claim has, exclusively or with a ``share``, for one of its requests.

    ``kind`` is the device's profile or type, or a NIC's interface; empty if no slice offers it any more, and ``published`` is unset. ``memory`` in
    bytes, ``bandwidth`` in bits per second (0 if there is none) and ``consumed``, of other capacity, are what the claim has of it. ``prepared``
    is None if it is unknown. ``interface`` is the name of its network interface in the pod; empty if unknown.
    """

    device: str
    driver: str
    node: str = ""
    request: str = ""
    kind: str = ""
    share: str = ""
    memory: int = 0
    bandwidth: int = 0
    consumed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    admin: bool = False
    prepared: bool | None
    interface: str = ""
    published: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClaimRow:
    """One claim with its devices of all drivers; none if it waits."""

    claim: str
    uid: str
    state: str
    devices: tuple[Granted, ...] = ()
    pods: tuple[str, ...] = ()
    since: str = ""

    @property
    def node(self) -> str:
        """Return the names of the nodes of its devices."""
        return ", ".join(filter(None, dict.fromkeys(device.node for device in self.devices)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Namespace:
    """What the claims of one namespace have, without admin access.

    ``devices`` counts devices and shares by kind, ``memory`` is in bytes, ``bandwidth`` in bits per second, and ``waiting`` counts pods that wait.
    ``not_counted`` is the number of devices and shares that are in no sum, because no slice offers them any more.
    """

    name: str
    claims: int
    devices: Mapping[str, int]
    memory: int
    bandwidth: int
    waiting: int
    not_counted: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """A Kubernetes event; ``time`` is RFC 3339."""

    time: str
    warning: bool
    reason: str
    about: str
    message: str
    count: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """The state that the page shows. ``problem`` is why the state may be incomplete or old, ``note`` what this cluster does not have.

    ``waiting_is_known`` is unset where pods are unknown, as on a node.
    ``reading`` names the kinds that are not listed yet; there is nothing else then. ``is_old`` is set while the API server does not answer.
    """

    title: str
    nodes: tuple[Node, ...] = ()
    claims: tuple[ClaimRow, ...] = ()
    events: tuple[Event, ...] = ()
    problem: str = ""
    waiting: tuple[Waiting, ...] = ()
    waiting_is_known: bool = True
    free: tuple[Free, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    note: str = ""
    reading: tuple[str, ...] = ()
    is_old: bool = False

    @property
    def waiting_pods(self) -> tuple[Waiting, ...]:
        """Return the pods that wait."""
        return tuple(row for row in self.waiting if row.kind == POD)

    @property
    def waiting_claims(self) -> tuple[Waiting, ...]:
        """Return the claims without devices that no waiting pod names."""
        return tuple(row for row in self.waiting if row.kind != POD)
