"""The devices of a pool as the dashboard shows them, made from a driver's devices, holdings, health and metrics. Pure."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from drakit.cli import drawing, fits
from drakit.core import advanced, inventory, packing, quantity
from drakit.core import device as devices
from drakit_tools.dashboard import boards, model

_BANDWIDTH = "bandwidth"
_INTERFACE = "ifName"
_MODELS = ("productName", "model")
_GIBI = 1 << 30
_READINGS: Mapping[str, str] = {
    "gpu_utilization_ratio": "utilization",
    "gpu_memory_used_bytes": "memory_used",
    "gpu_temperature_celsius": "temperature",
    "gpu_power_watts": "power",
    "gpu_power_limit_watts": "power_limit",
}
"""The fields of ``Readings`` by metric of the GPU driver."""
_EMPTY = packing.Fill(counts={})
_NOTHING = fits.Fits(alone={}, orders=(_EMPTY, _EMPTY), after_moves={})


def pool(
    base: model.Pool,
    offered: inventory.Inventory,
    holdings: Sequence[model.Holding],
    health: Mapping[str, model.Health],
    metrics: Sequence[advanced.Metric] = (),
    *,
    is_complete: bool = True,
) -> model.Pool:
    """Return the pool with its devices; ``metrics`` are those of its driver. Nothing fits in an incomplete pool."""
    flat = offered.flat()
    held: dict[str, list[model.Holding]] = {}
    for holding in holdings:
        if not holding.admin:
            held.setdefault(holding.device, []).append(holding)
    gpus = boards.of(flat, held, metrics)
    mapped = {device.name for gpu in gpus for device in gpu.devices}
    sensors = readings(metrics)
    traffic = {
        (metric.labels.get("share", ""), metric.labels.get("direction", "")): int(metric.value)
        for metric in metrics
        if metric.name == "nic_share_bytes"
    }
    return dataclasses.replace(
        base,
        gpus=tuple(_gpu(gpu, flat, held, health, sensors, is_complete=is_complete) for gpu in gpus),
        nics=tuple(_nic(device, held.get(device.name, ()), health, traffic) for device in flat.devices if _BANDWIDTH in device.capacity),
        others=tuple(
            model.OtherDevice(
                name=device.name,
                kind=str(fits.kind_of(device, flat.partition_type)),
                uses=_uses(held.get(device.name, ())),
                health=_health_of(device, health),
                facts=_facts([device]),
                readings=sensors.get(device.name, model.Readings()),
                memory=_memory([device]),
            )
            for device in flat.devices
            if _BANDWIDTH not in device.capacity and device.name not in mapped
        ),
    )


def unpublished(holdings: Iterable[model.Holding]) -> tuple[model.OtherDevice, ...]:
    """Return the devices that claims have and no slice offers, without those of admin access."""
    held: dict[str, list[model.Holding]] = {}
    for holding in holdings:
        if not holding.admin:
            held.setdefault(holding.device, []).append(holding)
    return tuple(model.OtherDevice(name=name, kind="", uses=_uses(found), health=model.Health()) for name, found in held.items())


def readings(metrics: Sequence[advanced.Metric]) -> Mapping[str, model.Readings]:
    """Return what the sensors of each GPU report, by the name of the whole GPU."""
    by_gpu: dict[str, dict[str, float]] = {}
    for metric in metrics:
        if (field := _READINGS.get(metric.name)) is not None:
            by_gpu.setdefault(metric.labels.get("gpu", ""), {})[field] = metric.value
    return {gpu: model.Readings(**values) for gpu, values in by_gpu.items()}


def _uses(held: Iterable[model.Holding]) -> tuple[model.Use, ...]:
    return tuple({holding.uid: holding.use for holding in held}.values())


def _gpu(
    board: boards.Board,
    flat: inventory.Inventory,
    held: Mapping[str, Sequence[model.Holding]],
    health: Mapping[str, model.Health],
    sensors: Mapping[str, model.Readings],
    *,
    is_complete: bool,
) -> model.Gpu:
    fit = fits.of_board(board.devices, [device for device in flat.devices if device.name in held], flat) if is_complete else _NOTHING
    by_name = {device.name: device for device in board.devices}
    spans = tuple(_span(span, held, by_name, flat.partition_type) for span in board.map.spans)
    largest, smallest = (fits.named(filled.counts) for filled in fit.orders[:2])
    facts = _facts(board.devices)
    return model.Gpu(
        name=board.name,
        width=board.map.width,
        spans=spans,
        together=tuple(fits.named(filled.counts) for filled in fit.together),
        largest=largest,
        smallest=smallest,
        alone=fits.named(fit.alone),
        fragmented=fit.verdict,
        health=_worst(_health_of(device, health) for device in board.devices),
        facts=facts if board.parent is None else dataclasses.replace(facts, memory="", uuid=board.parent),
        readings=sensors.get(board.name, model.Readings()),
        has_room=bool(fit.together) or any(span.left for span in spans),
    )


def _span(
    span: drawing.Span, held: Mapping[str, Sequence[model.Holding]], by_name: Mapping[str, devices.Device], partition_type: str
) -> model.Span:
    if span.label not in held:
        return model.Span(start=span.start, size=span.size)
    device = by_name[span.label]
    return model.Span(
        start=span.start,
        size=span.size,
        device=span.label,
        kind=str(fits.kind_of(device, partition_type)),
        uses=_uses(held[span.label]),
        memory=_memory([device]),
        left=_left(device, held[span.label]),
    )


def _left(device: devices.Device, shares: Sequence[model.Holding]) -> int:
    """Return the memory in bytes that further shares can have; 0 if these have all of another capacity, or none has an amount of memory."""
    nothing = quantity.Quantity.of(0)
    taken = {name: [share.consumed[name] for share in shares if name in share.consumed] for name in device.capacity}
    left = {name: device.capacity[name].value - sum(amounts, nothing) for name, amounts in taken.items() if amounts}
    return left["memory"].value if "memory" in left and all(nothing < amount for amount in left.values()) else 0


def _facts(board: Sequence[devices.Device]) -> model.Facts:
    """Return the facts of a GPU from its devices: product and UUID from any of them, and the memory of the largest."""
    attributes = [boards.attributes_of(device) for device in board]

    def first(names: Sequence[str]) -> str:
        return next((str(values[name]) for name in names for values in attributes if name in values), "")

    memory = _memory(board)
    return model.Facts(model=first(_MODELS), memory=f"{round(memory / _GIBI, 1):g} GiB" if memory else "", uuid=first(boards.UUIDS))


def _memory(board: Iterable[devices.Device]) -> int:
    """Return the memory of the largest device in bytes, 0 if none has a capacity of that name."""
    return max((device.capacity["memory"].value.value for device in board if "memory" in device.capacity), default=0)


def _nic(
    device: devices.Device, held: Sequence[model.Holding], health: Mapping[str, model.Health], traffic: Mapping[tuple[str, str], int]
) -> model.Nic:
    capacity = device.capacity[_BANDWIDTH].value
    shares = tuple(
        model.Share(
            use=holding.use,
            share=holding.share,
            amount=holding.consumed[_BANDWIDTH].value if _BANDWIDTH in holding.consumed else capacity.value,
            sent=traffic.get((holding.share, "egress"), -1),
            received=traffic.get((holding.share, "ingress"), -1),
            interface=holding.interface,
        )
        for holding in held
    )
    interface = str(boards.attributes_of(device).get(_INTERFACE, ""))
    return model.Nic(name=device.name, capacity=capacity.value, shares=shares, health=_health_of(device, health), interface=interface)


def _health_of(device: devices.Device, health: Mapping[str, model.Health]) -> model.Health:
    """Return the health of a device with its taints, which name the rule that ``health`` has for the same taint."""
    known = health.get(device.name, model.Health())
    rules = {taint.text: taint.rule for taint in known.taints}
    taints = [
        model.Taint(
            text=taint_text(taint.key, taint.value, taint.effect.value),
            since="" if taint.time_added is None else taint.time_added.isoformat(),
            rule=rules.get(taint_text(taint.key, taint.value, taint.effect.value), ""),
        )
        for taint in device.taints
    ]
    return dataclasses.replace(known, taints=tuple(taints))


def taint_text(key: str, value: str, effect: str) -> str:
    """Return a taint as kubectl writes it."""
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


def _worst(found: Iterable[model.Health]) -> model.Health:
    """Return the health of a GPU: the worst of its devices', with all taints."""
    order = {"Unhealthy": 0, "Unknown": 1, "Healthy": 2, "": 3}
    seen = list(found)
    if not seen:
        return model.Health()
    first = min(seen, key=lambda entry: order.get(entry.state, 1))
    # Partitions get the taint of their GPU one after the other.
    taints = {(taint.text, taint.rule): taint for entry in reversed(seen) for taint in reversed(entry.taints)}
    return dataclasses.replace(first, taints=tuple(reversed(taints.values())))
