"""What each claim and each namespace has: devices with their kind, share, memory and bandwidth. Pure."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from drakit_tools.dashboard import model

MEMORY, BANDWIDTH = "memory", "bandwidth"
_Key = tuple[str, str, str]
"""Driver, pool and device."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Held:
    """The holdings of one driver on one node; ``node`` is empty for pools without a node."""

    driver: str
    node: str
    holdings: Sequence[model.Holding]


def rows(held: Iterable[Held], nodes: Iterable[model.Node]) -> list[model.ClaimRow]:
    """Return a row for each claim, in order of first appearance. ``nodes`` are those whose devices the claims hold."""
    whole = _whole(nodes)
    by_claim: dict[str, list[tuple[Held, model.Holding]]] = {}
    for entry in held:
        for holding in entry.holdings:
            by_claim.setdefault(holding.uid, []).append((entry, holding))
    return [
        model.ClaimRow(
            claim=found[0][1].claim,
            uid=uid,
            state=found[0][1].state,
            devices=tuple(_granted(entry, holding, whole.get((entry.driver, holding.pool, holding.device))) for entry, holding in found),
            pods=found[0][1].pods,
            since=found[0][1].since,
        )
        for uid, found in by_claim.items()
    ]


def namespaces(claims: Iterable[model.ClaimRow], waiting: Iterable[model.Waiting]) -> tuple[model.Namespace, ...]:
    """Return what each namespace has and how many of its pods wait: the one with the most memory first, then the most bandwidth."""
    by_name: dict[str, list[model.ClaimRow]] = {}
    for row in claims:
        by_name.setdefault(_namespace(row.claim), []).append(row)
    pods: dict[str, int] = {}
    for pod in waiting:
        if pod.kind == model.POD:
            pods[_namespace(pod.name)] = pods.get(_namespace(pod.name), 0) + 1
    found = [_total(name, by_name.get(name, ()), pods.get(name, 0)) for name in by_name.keys() | pods.keys()]
    return tuple(sorted(found, key=lambda total: (-total.memory, -total.bandwidth, total.name)))


def _total(name: str, claims: Sequence[model.ClaimRow], waiting: int) -> model.Namespace:
    held = [device for row in claims for device in row.devices if not device.admin]
    has = [device for device in held if device.published]
    counts: dict[str, int] = {}
    for device in has:
        if not device.bandwidth:
            kind = device.kind or "device"
            kind = f"{kind.removesuffix(' shared')} share" if device.share else kind
            counts[kind] = counts.get(kind, 0) + 1
    return model.Namespace(
        name=name,
        claims=len(claims),
        devices=dict(sorted(counts.items())),
        memory=sum(device.memory for device in has),
        bandwidth=sum(device.bandwidth for device in has),
        waiting=waiting,
        not_counted=len(held) - len(has),
    )


def _namespace(label: str) -> str:
    return label.rpartition("/")[0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Whole:
    """A device in use: its kind, and its whole memory and bandwidth."""

    kind: str
    memory: int = 0
    bandwidth: int = 0


def _whole(nodes: Iterable[model.Node]) -> Mapping[_Key, _Whole]:
    found: dict[_Key, _Whole] = {}
    for pool in (pool for node in nodes for pool in node.pools):
        for span in (span for gpu in pool.gpus for span in gpu.spans if span.device):
            found[pool.driver, pool.name, span.device] = _Whole(kind=span.kind, memory=span.memory)
        for nic in pool.nics:
            found[pool.driver, pool.name, nic.name] = _Whole(kind=nic.interface, bandwidth=nic.capacity)
        for device in pool.others:
            found[pool.driver, pool.name, device.name] = _Whole(kind=device.kind, memory=device.memory)
    return found


def _granted(entry: Held, holding: model.Holding, known: _Whole | None) -> model.Granted:
    whole = known or _Whole(kind="")
    consumed = holding.consumed
    return model.Granted(
        device=holding.device,
        driver=entry.driver,
        node=entry.node,
        request=holding.request,
        kind=whole.kind,
        share=holding.share,
        memory=consumed[MEMORY].value if MEMORY in consumed else whole.memory,
        bandwidth=consumed[BANDWIDTH].value if BANDWIDTH in consumed else whole.bandwidth,
        consumed={name: str(amount) for name, amount in consumed.items() if name not in (MEMORY, BANDWIDTH)},
        admin=holding.admin,
        prepared=holding.done,
        interface=holding.interface,
        published=known is not None,
    )
