"""``drakit show``: shows the devices of this node, and the claims that use them."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated

import rich.console
import typer

from drakit.cli import composition, drawing, fits, not_offered, options, output, views
from drakit.core import advanced, context, inventory, lifecycle, packing, quantity
from drakit.core import device as devices

_CAPACITIES = ("memory", "multiprocessors", "bandwidth")
"""The capacities that the table shows; if no device has one of these, it shows the first few of all."""
_CAPACITIES_MAX = 3
_BANDWIDTH = "bandwidth"
_PROFILE = "profile"
_INDENT = 2

TRAFFIC_COLUMNS = ("SHARE", "NIC", "DIRECTION", "RATE", "BYTES", "PACKETS", "DROPS", "BACKLOG")
_FIGURES: Mapping[str, str] = {
    "nic_share_rate_bits_per_second": "rate",
    "nic_share_bytes": "bytes",
    "nic_share_packets": "packets",
    "nic_share_drops": "drops",
    "nic_share_backlog_bytes": "backlog",
}


@options.quietly
def show(
    mock: options.Mock = None,
    folder: options.Folder = None,
    node: options.Node = None,
    config: options.Config = None,
    assignments: options.Set = None,
    families: options.Families = None,
    every: Annotated[
        bool, typer.Option("--all", help="Print a row for each MIG placement; the default counts free placements by profile.")
    ] = False,
    style: options.Output = options.Format.TABLE,
) -> None:
    """Show devices, MIG placements on a map of memory slices, shares and their bandwidth, prepared claims, and interfaces that are not offered.

    Reads the hardware and the driver's journal, changes nothing, and needs no API server. If the driver is running, it also shows device health.

    [bold]Examples[/bold]

      drakit show --mock dgx-a100-40gb-2gpu

      drakit show --mock dgx-a100-40gb-2gpu --all

      drakit show --family nic -o json
    """
    settings = options.read(config=config, assignments=assignments, mock=mock, folder=folder, node=node, local=True)
    output.note(composition.unserved_note(settings, families or ()))
    documents, unread = [], []
    for family, seen in views.every(settings, only=families or ()):
        unread += [seen.error] if seen.error else []
        output.warn(seen.trouble)
        output.note(not_offered.faults(seen.withheld))
        documents.append(_document(family, seen))
        if style is options.Format.TABLE:
            _print(family, seen, every=every)
    if style is not options.Format.TABLE:
        output.document(documents, style)
    for error in unread:
        raise error


def _print(family: composition.NodeFamily, seen: views.View, *, every: bool) -> None:
    offered, entries = seen.offered, seen.entries
    out = output.console()
    output.heading(out, f"{family.spec.driver_name} on {seen.pool}")
    taken, width = holders(entries), output.width(out)
    room = None if width is None else width - _INDENT
    fitting = fits.by_counter_set(offered, taken)
    for gpu in drawing.gpu_maps(offered, taken):
        output.say(out, f"{gpu.counter_set}: {fitting[gpu.counter_set].text}", hang=_INDENT)
        out.print(drawing.indent(drawing.draw_gpu(gpu, room)), markup=False, soft_wrap=True)
        if verdict := fitting[gpu.counter_set].verdict:
            output.say(out, verdict, indent=_INDENT)
    for bar in bars(offered, entries):
        output.say(out, bar.device)
        out.print(drawing.indent(drawing.draw_bar(bar, room)), markup=False, soft_wrap=True)
    _print_devices(out, seen, every=every)
    columns, kept = not_offered.rows(seen.withheld)
    if kept:
        output.put(out, output.table("\nNot offered", columns, kept))
    if moved := traffic_rows(seen.readings):
        output.put(out, output.table("\nTraffic of shares", TRAFFIC_COLUMNS, [traffic_cells(row) for row in moved]))
    claims = [
        (str(entry.claim), entry.claim.uid, entry.state.value, ", ".join(grant.device.name for grant in entry.grants)) for entry in entries
    ]
    if claims:
        output.put(out, output.table("\nClaims", ["CLAIM", "UID", "STATE", "DEVICES"], claims))
    else:
        out.print("\nNo claim is prepared.")


def _print_devices(out: rich.console.Console, seen: views.View, *, every: bool) -> None:
    """Print a row for each device. Unless ``every`` is true, free MIG placements are counted by profile instead."""
    offered, used, taken = seen.offered.flat().devices, consumed(seen.entries), taken_by(seen.entries)
    counted = frozenset() if every else _placements(seen)
    capacities, has_pools = _capacities(offered), any(device.pool for device in offered)
    rows = [
        (
            device.name,
            *([device.pool or ""] if has_pools else []),
            _kind(device),
            *(_amount(device, name, used) for name in capacities),
            "yes" if device.allow_multiple_allocations else "",
            ", ".join(f"{taint.key}:{taint.effect.value}" for taint in device.taints),
            _health(device.name, seen),
            taken.get(device.name, ""),
        )
        for device in offered
        if device.name not in counted
    ]
    if rows:
        columns = ["DEVICE", *(["POOL"] if has_pools else []), "KIND", *map(str.upper, capacities), "SHARED", "TAINTS", "HEALTH", "CLAIM"]
        output.put(out, output.table("", columns, rows))
    if counted:
        columns = ["PROFILE", "FITS", *map(str.upper, capacities)]
        output.put(
            out,
            output.table("\nMIG profiles, each alone; --all lists all", columns, _by_profile(seen, capacities)),
        )
    if seen.error:
        output.say(out, f"The devices cannot be read: {seen.error}")
    elif not offered:
        out.print("No device was found.")


def _placements(seen: views.View) -> frozenset[str]:
    """Return the MIG placements that are free, not tainted, and not known to be unhealthy."""
    held = holders(seen.entries)
    unwell = {name for name, known in seen.health.items() if known.health is not context.Health.HEALTHY}
    return frozenset(
        device.name
        for device in seen.offered.flat().devices
        if _PROFILE in device.attributes and not device.taints and device.name not in held and device.name not in unwell
    )


def _by_profile(seen: views.View, capacities: Sequence[str]) -> list[tuple[str, ...]]:
    """Return a row for each profile: how many fit at the same time if no other profile is used, on an empty node too, and the capacities of one."""
    now, empty = (_alone(seen.offered, taken) for taken in (holders(seen.entries), ()))
    rows: dict[packing.Kind, tuple[str, ...]] = {}
    for device in seen.offered.flat().devices:
        if _PROFILE in device.attributes:
            figures = (str(device.capacity[name].value) if name in device.capacity else "" for name in capacities)
            kind = fits.kind_of(device)
            rows.setdefault(kind, (str(kind), f"{now[kind]} of {empty[kind]}", *figures))
    return list(rows.values())


def _alone(offered: inventory.Inventory, taken: Collection[str]) -> Counter[packing.Kind]:
    """Return how many devices of each kind fit on all boards, if no device of another kind is used."""
    total: Counter[packing.Kind] = Counter()
    for fitting in fits.by_counter_set(offered, taken).values():
        total.update(fitting.alone)
    return total


def taken_by(entries: Sequence[lifecycle.Entry]) -> dict[str, str]:
    """Return the claim of each exclusively allocated device, by device name; shares are not included."""
    return {
        grant.device.name: entry.claim.name
        for entry in entries
        for grant in entry.grants
        if grant.share_id is None and not grant.admin_access
    }


def holders(entries: Sequence[lifecycle.Entry]) -> dict[str, str]:
    """Return the claims of each device, exclusive or shared, by device name; admin access does not count."""
    by_device: dict[str, dict[str, None]] = {}
    for entry in entries:
        for grant in entry.grants:
            if not grant.admin_access:
                by_device.setdefault(grant.device.name, {})[entry.claim.name] = None
    return {device: ", ".join(names) for device, names in by_device.items()}


def bars(offered: inventory.Inventory, entries: Sequence[lifecycle.Entry]) -> tuple[drawing.Bar, ...]:
    """Return the bandwidth of every device that has one: the shares taken from it, the claim that holds it alone, or what blocks it."""
    shown = [device for device in offered.flat().devices if _BANDWIDTH in device.capacity]
    shares: dict[str, list[tuple[str, quantity.Quantity]]] = {}
    alone: dict[str, str] = {}
    for entry in entries:
        for grant in entry.grants:
            if grant.share_id is not None and _BANDWIDTH in grant.consumed_capacity:
                label = f"{entry.claim} share {grant.share_id}"
                shares.setdefault(grant.device.name, []).append((label, grant.consumed_capacity[_BANDWIDTH]))
            elif grant.share_id is None and not grant.admin_access:
                alone[grant.device.name] = str(entry.claim)
    taken = holders(entries)
    fitting = drawing.fitting(offered, taken)
    return tuple(
        drawing.Bar(
            device=device.name,
            capacity=device.capacity[_BANDWIDTH].value,
            shares=tuple(shares.get(device.name, ())),
            holder=alone.get(device.name, ""),
            is_blocked=device.name not in taken and device.name not in fitting,
            blockers=drawing.rivals(offered, taken, device),
        )
        for device in shown
    )


def _document(family: composition.NodeFamily, seen: views.View) -> dict[str, object]:
    offered, entries = seen.offered, seen.entries
    taken, held, used = taken_by(entries), holders(entries), consumed(entries)
    return {
        "driver": family.spec.driver_name,
        "pool": seen.pool,
        "devices": [
            {"pool": device.pool_on(seen.pool), **_device(device, taken.get(device.name), used, seen)} for device in offered.flat().devices
        ],
        "fitting": {name: fitting.document() for name, fitting in fits.by_counter_set(offered, held).items()},
        "notOffered": not_offered.documents(seen.withheld),
        "traffic": traffic_rows(seen.readings),
        "claims": [_claim(entry) for entry in entries],
    }


def _health(device: str, seen: views.View) -> str:
    """Return a device's health with the reason if it is unhealthy; empty if no driver reports it."""
    known = seen.health.get(device)
    if known is None:
        return ""
    return f"{known.health.value}: {known.message}" if known.message else known.health.value


def _device(
    device: devices.Device, claim: str | None, used: Mapping[tuple[str, str], quantity.Quantity], seen: views.View
) -> dict[str, object]:
    known = seen.health.get(device.name)
    return {
        "name": device.name,
        "attributes": {name: value if isinstance(value, str | int) else str(value) for name, value in device.attributes.items()},
        "capacity": {name: str(capacity.value) for name, capacity in device.capacity.items()},
        "consumed": {name: str(used[device.name, name]) for name in device.capacity if (device.name, name) in used},
        "shared": device.allow_multiple_allocations,
        "taints": [{"key": taint.key, "value": taint.value, "effect": taint.effect.value} for taint in device.taints],
        "health": None if known is None else {"state": known.health.value, "message": known.message},
        "claim": claim,
    }


def _claim(entry: lifecycle.Entry) -> dict[str, object]:
    return {
        "namespace": entry.claim.namespace,
        "name": entry.claim.name,
        "uid": entry.claim.uid,
        "state": entry.state.value,
        "devices": [
            {
                "request": grant.request,
                "device": grant.device.name,
                "shareID": grant.share_id,
                "consumedCapacity": {name: str(value) for name, value in grant.consumed_capacity.items()},
            }
            for grant in entry.grants
        ],
    }


def _kind(device: devices.Device) -> str:
    for key in ("profile", "type", "kind"):
        if key in device.attributes:
            return str(device.attributes[key])
    return ""


def consumed(entries: Sequence[lifecycle.Entry]) -> Mapping[tuple[str, str], quantity.Quantity]:
    """Return the total that claims consume of shared devices, by device and capacity."""
    totals: dict[tuple[str, str], quantity.Quantity] = {}
    for grant in (grant for entry in entries for grant in entry.grants if grant.share_id is not None):
        for name, amount in grant.consumed_capacity.items():
            key = (grant.device.name, name)
            totals[key] = totals[key] + amount if key in totals else amount
    return totals


def _capacities(shown: Sequence[devices.Device]) -> tuple[str, ...]:
    names = dict.fromkeys(name for device in shown for name in device.capacity)
    return tuple(name for name in _CAPACITIES if name in names) or tuple(names)[:_CAPACITIES_MAX]


def _amount(device: devices.Device, name: str, used: Mapping[tuple[str, str], quantity.Quantity]) -> str:
    if name not in device.capacity:
        return ""
    total, taken = device.capacity[name].value, used.get((device.name, name))
    return f"{taken} of {total} used" if taken is not None else str(total)


def traffic_rows(readings: Sequence[advanced.Metric]) -> list[dict[str, str | int]]:
    """Return a row for each share and direction: ``rate`` in bits per second as the kernel reports it, ``backlog`` in bytes."""
    rows: dict[tuple[str, str], dict[str, str | int]] = {}
    for reading in readings:
        if reading.name in _FIGURES:
            nic, share, direction = (reading.labels.get(label, "") for label in ("nic", "share", "direction"))
            row = rows.setdefault((share, direction), {"share": share, "nic": nic, "direction": direction})
            row[_FIGURES[reading.name]] = int(reading.value)
    return [rows[key] for key in sorted(rows)]


def traffic_cells(row: Mapping[str, str | int]) -> tuple[str, ...]:
    """Return the cells of a row of the traffic table."""
    rate = quantity.Quantity.of(int(row.get("rate", 0)))
    figures = (str(row.get(name, 0)) for name in ("bytes", "packets", "drops", "backlog"))
    return (str(row["share"]), str(row["nic"]), str(row["direction"]), str(rate), *figures)
