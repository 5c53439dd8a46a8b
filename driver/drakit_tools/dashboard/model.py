"""The state that the dashboard shows, as values that become JSON, made from a driver's devices and holdings. Pure."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from drakit.cli import drawing, fits
from drakit.core import device as devices
from drakit.core import inventory, quantity

_BANDWIDTH = "bandwidth"
EVENTS_MAX = 50


@dataclasses.dataclass(frozen=True, kw_only=True)
class Holding:
    """A device that a claim holds, exclusively or with a ``share`` and its consumed capacity.

    ``state`` is the claim's state; ``done`` is true if the device is prepared, None if that is unknown.
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Health:
    """The health of a device, with the reason and its taints."""

    state: str = ""
    message: str = ""
    taints: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gpu:
    """The memory slices of one GPU: their number ``width``, the spans in use, and what still fits.

    ``together`` has a few sets of kinds that fit at the same time, ``alone`` each kind without the others, ``fragmented`` what would fit after moves.
    """

    name: str
    width: int
    spans: tuple[drawing.Span, ...]
    together: tuple[Mapping[str, int], ...]
    alone: Mapping[str, int]
    fragmented: str
    health: Health


@dataclasses.dataclass(frozen=True, kw_only=True)
class Share:
    """A share of a NIC; ``amount`` in bits per second. ``sent`` and ``received`` are counters in bytes, -1 if unknown."""

    claim: str
    share: str
    amount: int
    sent: int = -1
    received: int = -1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Nic:
    """A device with shared bandwidth; ``capacity`` in bits per second."""

    name: str
    capacity: int
    shares: tuple[Share, ...]
    health: Health


@dataclasses.dataclass(frozen=True, kw_only=True)
class OtherDevice:
    """A device that is neither part of a GPU's map nor a NIC."""

    name: str
    kind: str
    claims: tuple[str, ...]
    health: Health


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pool:
    """The devices of one driver in one pool. ``slices`` is the number of published slices, such as ``2 of 3``; empty if unknown."""

    driver: str
    name: str
    generation: int = 0
    slices: str = ""
    note: str = ""
    gpus: tuple[Gpu, ...] = ()
    nics: tuple[Nic, ...] = ()
    others: tuple[OtherDevice, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """A node with its pools. Pools that belong to no node have an empty name."""

    name: str
    pools: tuple[Pool, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClaimRow:
    """One claim with its devices of one driver."""

    claim: str
    uid: str
    state: str
    driver: str
    node: str
    devices: tuple[str, ...]
    steps: tuple[str, ...] = ()


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
    """The state that the page shows. ``problem`` is why the state may be incomplete or old, ``note`` what this cluster does not have."""

    title: str
    nodes: tuple[Node, ...] = ()
    claims: tuple[ClaimRow, ...] = ()
    events: tuple[Event, ...] = ()
    problem: str = ""
    note: str = ""


def pool(
    base: Pool,
    offered: inventory.Inventory,
    holdings: Sequence[Holding],
    health: Mapping[str, Health],
    traffic: Mapping[tuple[str, str], int] | None = None,
    *,
    is_complete: bool = True,
) -> Pool:
    """Return the pool with its devices; ``traffic`` has bytes by share and direction (egress, ingress). Nothing fits in an incomplete pool."""
    flat = offered.flat()
    held: dict[str, list[Holding]] = {}
    for holding in holdings:
        if not holding.admin:
            held.setdefault(holding.device, []).append(holding)
    labels = {name: ", ".join(dict.fromkeys(holding.claim for holding in found)) for name, found in held.items()}
    maps = drawing.gpu_maps(flat, labels)
    mapped = {gpu.counter_set for gpu in maps}
    return dataclasses.replace(
        base,
        gpus=_gpus(flat, maps, labels, health, is_complete=is_complete),
        nics=tuple(
            _nic(device, held.get(device.name, ()), health, traffic or {}) for device in flat.devices if _BANDWIDTH in device.capacity
        ),
        others=tuple(
            OtherDevice(
                name=device.name,
                kind=str(fits.kind_of(device)),
                claims=tuple(dict.fromkeys(holding.claim for holding in held.get(device.name, ()))),
                health=_health_of(device, health),
            )
            for device in flat.devices
            if _BANDWIDTH not in device.capacity and not any(part.counter_set in mapped for part in device.consumes)
        ),
    )


def claim_rows(driver: str, node: str, holdings: Iterable[Holding]) -> list[ClaimRow]:
    """Return a row for each claim, in order of first appearance."""
    by_claim: dict[str, list[Holding]] = {}
    for holding in holdings:
        by_claim.setdefault(holding.uid, []).append(holding)
    return [
        ClaimRow(
            claim=found[0].claim,
            uid=uid,
            state=found[0].state,
            driver=driver,
            node=node,
            devices=tuple(holding.device for holding in found),
            steps=tuple(f"{holding.request} on {holding.device}{_progress(holding)}" for holding in found),
        )
        for uid, found in by_claim.items()
    ]


def _progress(holding: Holding) -> str:
    match holding.done:
        case None:
            return ""
        case True:
            return ": prepared"
    return ": not prepared yet"


def _gpus(
    flat: inventory.Inventory,
    maps: Sequence[drawing.GpuMap],
    labels: Mapping[str, str],
    health: Mapping[str, Health],
    *,
    is_complete: bool,
) -> tuple[Gpu, ...]:
    fitting = fits.by_counter_set(flat, labels) if is_complete else {}
    nothing = fits.Fits(alone={}, together=(), after_moves={})
    by_set: dict[str, list[devices.Device]] = {}
    for device in flat.devices:
        for part in device.consumes:
            by_set.setdefault(part.counter_set, []).append(device)
    return tuple(
        Gpu(
            name=gpu.counter_set.removesuffix("-counter-set"),
            width=gpu.width,
            spans=gpu.spans,
            together=tuple(fits.named(filled.counts) for filled in fitting.get(gpu.counter_set, nothing).together),
            alone=fits.named(fitting.get(gpu.counter_set, nothing).alone),
            fragmented=fitting.get(gpu.counter_set, nothing).verdict,
            health=_worst(_health_of(device, health) for device in by_set.get(gpu.counter_set, ())),
        )
        for gpu in maps
    )


def _nic(device: devices.Device, held: Sequence[Holding], health: Mapping[str, Health], traffic: Mapping[tuple[str, str], int]) -> Nic:
    capacity = device.capacity[_BANDWIDTH].value
    shares = tuple(
        Share(
            claim=holding.claim,
            share=holding.share,
            amount=holding.consumed[_BANDWIDTH].value if _BANDWIDTH in holding.consumed else capacity.value,
            sent=traffic.get((holding.share, "egress"), -1),
            received=traffic.get((holding.share, "ingress"), -1),
        )
        for holding in held
    )
    return Nic(name=device.name, capacity=capacity.value, shares=shares, health=_health_of(device, health))


def _health_of(device: devices.Device, health: Mapping[str, Health]) -> Health:
    known = health.get(device.name, Health())
    return dataclasses.replace(known, taints=tuple(f"{taint.key}:{taint.effect.value}" for taint in device.taints))


def _worst(found: Iterable[Health]) -> Health:
    """Return the health of a GPU: the worst of its devices', with all taints."""
    order = {"Unhealthy": 0, "Unknown": 1, "Healthy": 2, "": 3}
    seen = list(found)
    if not seen:
        return Health()
    first = min(seen, key=lambda entry: order.get(entry.state, 1))
    return dataclasses.replace(first, taints=tuple(dict.fromkeys(taint for entry in seen for taint in entry.taints)))
