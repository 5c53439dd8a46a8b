"""The state of the dashboard as text for ``drakit top``. Pure."""

import dataclasses
import datetime
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from drakit.cli import terminal
from drakit.core import quantity
from drakit.telemetry import plurals
from drakit_tools.dashboard import granted, model, objects, unused

_MANY = 4
"""Nodes of which every device is shown; of more nodes each is one line."""
_WAITING_MAX = 12
_NAMESPACES_MAX = 8
_CELL = 4
"""Characters of a memory slice on the map of a GPU."""
_BAR = 24
_GIBI = 1 << 30
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
HEAD, WARN, BAD, SOFT = "bold", "yellow", "red", "dim"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """One line, and the style of a terminal for it."""

    text: str
    style: str = ""


def lines(state: model.State, *, now: datetime.datetime, width: int | None, height: int | None = None) -> list[Line]:
    """Return the state as lines of at most ``width`` characters; None means any width. Names from outside are escaped.

    On a screen of ``height`` lines what waits has about a third of them, namespaces have an eighth, and unhealthy nodes are the first.
    """
    limit, namespaces = _WAITING_MAX, _NAMESPACES_MAX
    if height is not None:
        namespaces = max(2, min(namespaces, height // 8))
        while limit > 1 and len(_wrapped(_all_waiting(state, now, limit), width)) > height // 3:
            limit -= 1
        state = dataclasses.replace(state, nodes=tuple(sorted(state.nodes, key=lambda node: not any(pool.unwell for pool in node.pools))))
    return _wrapped(_all(state, now, limit, namespaces), width)


def _wrapped(found: Iterable[Line], width: int | None) -> list[Line]:
    return [
        Line(text=piece, style=line.style)
        for line in found
        for piece in (terminal.wrapped(line.text.lstrip(), width, indent=_indent(line.text), hang=2) if line.text else [""])
    ]


def age(since: str, now: datetime.datetime) -> str:
    """Return the time since a moment, such as ``5m``, as kubectl does; empty if the moment is unknown."""
    moment = objects.moment(since)
    if moment == objects.NEVER:
        return ""
    seconds = max(0, int((now - moment).total_seconds()))
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    if seconds < 2 * _HOUR:
        return f"{seconds // _MINUTE}m"
    return f"{seconds // _HOUR}h" if seconds < 2 * _DAY else f"{seconds // _DAY}d"


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _all_waiting(state: model.State, now: datetime.datetime, limit: int) -> Iterator[Line]:
    yield from _waiting("WAITING", state.waiting_pods, now, limit)
    yield from _waiting("CLAIMS THAT NO POD USES", state.waiting_claims, now, limit)


def _all(state: model.State, now: datetime.datetime, limit: int, namespaces: int) -> Iterator[Line]:
    yield Line(text=state.title, style=HEAD)
    if not state.reading:
        yield from _totals(state)
    if state.problem:
        yield Line(text=state.problem, style=BAD)
    if state.reading:
        yield Line(text=f"reading {', '.join(state.reading)} ...")
        return
    yield from _all_waiting(state, now, limit)
    yield from _free(state.free)
    yield from _namespaces(state.namespaces, namespaces)
    if len(state.nodes) > _MANY:
        yield from _fleet(state.nodes)
    else:
        for node in state.nodes:
            yield from _node(node, now)


def _totals(state: model.State) -> Iterator[Line]:
    pools = [pool for node in state.nodes for pool in node.pools]
    gpus = [gpu for pool in pools for gpu in pool.gpus]
    others = [device for pool in pools for device in pool.others]
    unwell = sum(pool.unwell for pool in pools)
    parts = [*([f"waiting {plurals.counted(len(state.waiting_pods), 'pod')}"] if state.waiting_is_known else []), f"unhealthy {unwell}"]
    if gpus:
        taken, width = sum(_taken(gpu) for gpu in gpus), sum(gpu.width for gpu in gpus)
        parts.append(f"GPUs {sum(bool(gpu.spans) for gpu in gpus)} of {len(gpus)} in use ({taken} of {width} slices)")
    if others:
        parts.append(f"devices {sum(bool(device.uses) for device in others)} of {len(others)} in use")
    if lost := sum(entry.not_counted for entry in state.namespaces):
        parts.append(f"not counted {_devices(lost)} without slices")
    parts.append(plurals.counted(len(state.claims), "claim"))
    yield Line(text="  ".join(parts), style=BAD if unwell else WARN if state.waiting_pods else "")


def _waiting(heading: str, waiting: Sequence[model.Waiting], now: datetime.datetime, limit: int) -> Iterator[Line]:
    """Yield the first rows of what waits, by reason."""
    if not waiting:
        return
    yield Line(text="")
    yield Line(text=heading, style=HEAD)
    by_reason: dict[str, list[model.Waiting]] = {}
    for row in waiting[:limit]:
        by_reason.setdefault(row.reason, []).append(row)
    for reason, rows in by_reason.items():
        yield Line(text=f"  {reason}", style=WARN)
        for row in rows:
            yield Line(text=f"    {_joined(f'{row.kind.lower()} {row.name}', row.asks, age(row.since, now))}")
    if len(waiting) > limit:
        why = " (drakit allocate --live --why)" if any(row.waits_for_allocation for row in waiting) else ""
        yield Line(text=f"  ... and {len(waiting) - limit} more{why}", style=SOFT)


def _free(free: Sequence[model.Free]) -> Iterator[Line]:
    if not free:
        return
    yield Line(text="")
    yield Line(text="STILL FITS", style=HEAD)
    for entry in free:
        left = f"{entry.left / _GIBI:.1f} GiB left to share" if entry.left else ""
        fits = "; ".join(filter(None, ("; or ".join(map(_counts, entry.sets)), left)))
        unused = f"{entry.unused} of {entry.total} unused" + (f" ({entry.closed} cordoned or not ready)" if entry.closed else "")
        yield Line(text=f"  {entry.model or entry.driver}: {unused}" + (f": {fits}" if fits else ""))


def _namespaces(namespaces: Sequence[model.Namespace], limit: int) -> Iterator[Line]:
    """Yield what each of the first namespaces has."""
    if not namespaces:
        return
    yield Line(text="")
    yield Line(text="NAMESPACES", style=HEAD)
    for entry in namespaces[:limit]:
        parts = [
            _counts(entry.devices),
            f"memory {entry.memory / _GIBI:.1f} GiB" if entry.memory else "",
            f"bandwidth {_rate(entry.bandwidth)}" if entry.bandwidth else "",
            f"{_devices(entry.not_counted)} not counted" if entry.not_counted else "",
            f"{plurals.counted(entry.waiting, 'pod')} {'waits' if entry.waiting == 1 else 'wait'}" if entry.waiting else "",
        ]
        yield Line(text=f"  {_joined(f'{entry.name}:', *parts)}", style=WARN if entry.waiting else "")
    if len(namespaces) > limit:
        yield Line(text=f"  ... and {len(namespaces) - limit} more (-o json has all)", style=SOFT)


def _fleet(nodes: Sequence[model.Node]) -> Iterator[Line]:
    """Yield a line for each node: the memory slices in use of each GPU."""
    yield Line(text="")
    size = max(len(node.name) for node in nodes)
    yield Line(text=f"{'NODE':<{size}}  SLICES IN USE OF EACH GPU; * IS UNHEALTHY; --node NAME SHOWS ONE NODE", style=HEAD)
    for node in nodes:
        gpus = [gpu for pool in node.pools for gpu in pool.gpus]
        others = [device for pool in node.pools for device in pool.others]
        cells = [f"{_taken(gpu)}{'' if gpu.health.is_well else '*'}" for gpu in gpus]
        free = sum(entry.unused for entry in unused.free([node]))
        unwell = any(pool.unwell for pool in node.pools)
        text = f"{node.name:<{size}}  {' '.join(f'{cell:>2}' for cell in cells)}"
        down = [pool.note for pool in node.pools if pool.is_down]
        notes = ", ".join((*node.notes, *down, *(["unhealthy"] if unwell and not down else [])))
        yield Line(
            text=f"{text}  {free} of {len(gpus) + len(others)} unused  {notes}".rstrip(), style=BAD if unwell else WARN if notes else ""
        )


def _node(node: model.Node, now: datetime.datetime) -> Iterator[Line]:
    yield Line(text="")
    yield Line(text=_joined((node.name or "pools without a node"), *node.notes), style=WARN if node.notes else HEAD)
    for pool in node.pools:
        if pool.note:
            yield Line(text=f"  {pool.driver}: {pool.note}", style=BAD)
        for device in pool.unpublished:
            yield from (Line(text=f"    {_joined(device.name, _use(use, now))}") for use in device.uses)
        for gpu in pool.gpus:
            yield from _gpu(gpu, now, node.closed)
        for nic in pool.nics:
            yield from _nic(nic, now, node.closed)
        for device in pool.others:
            is_free = "" if device.uses else f"unused{_beside(node.closed)}" if node.closed else "free"
            head = _joined(device.name, device.kind, *_facts(device.facts, device.readings), is_free)
            yield Line(text=f"  {head}")
            yield from _health(device.health, now)
            yield from (Line(text=f"    {_use(use, now)}") for use in device.uses)


def _gpu(gpu: model.Gpu, now: datetime.datetime, closed: str) -> Iterator[Line]:
    """Yield a GPU: its map, whose letters are those of the uses below, its facts and sensors, who uses it, and what still fits."""
    used = dict(zip((span for span in gpu.spans if span.uses), _LETTERS * gpu.width, strict=False))
    yield Line(text=f"  {gpu.name} {_map(gpu, used)}")
    if facts := _joined(*_facts(gpu.facts, gpu.readings)):
        yield Line(text=f"    {facts}")
    yield from _health(gpu.health, now)
    for span, letter in used.items():
        yield from (Line(text=f"    {letter} {_joined(span.kind, _use(use, now))}") for use in span.uses)
    sets = "; or ".join(map(_counts, gpu.together))
    left = [f"{span.left / _GIBI:.1f} of {span.memory / _GIBI:.1f} GiB left to share{_beside(closed)}" for span in gpu.spans if span.left]
    fits = "; ".join(left) or (f"still fits {sets}" if sets else f"nothing more fits{_beside(closed)}")
    yield Line(text=f"    {fits}", style=SOFT)


def _map(gpu: model.Gpu, used: Mapping[model.Span, str]) -> str:
    cells = ["." * _CELL] * gpu.width
    for span in gpu.spans:
        for place in range(span.start, min(span.start + span.size, gpu.width)):
            cells[place] = used.get(span, "x") * _CELL
    drawn = ""
    starts = {span.start for span in gpu.spans} | {span.start + span.size for span in gpu.spans}
    for place, cell in enumerate(cells):
        is_inside = place and place not in starts and cell[0] != "."
        drawn += (cell[0] if is_inside else "|") + cell
    return f"{drawn}|"


def _nic(nic: model.Nic, now: datetime.datetime, closed: str) -> Iterator[Line]:
    taken = sum(share.amount for share in nic.shares)
    filled = round(_BAR * min(taken, nic.capacity) / (nic.capacity or 1))
    left = f"bandwidth {_rate(max(nic.capacity - taken, 0))} of {_rate(nic.capacity)} {'unused' if closed else 'free'}{_beside(closed)}"
    yield Line(text=f"  {nic.name} [{'#' * filled}{'.' * (_BAR - filled)}]  {left}")
    if nic.interface:
        yield Line(text=f"    {nic.interface}")
    yield from _health(nic.health, now)
    for share in nic.shares:
        yield Line(text=f"    {_joined('bandwidth ' + _rate(share.amount), _in_pod(share.interface), _use(share.use, now))}")


def _in_pod(interface: str) -> str:
    return f"{interface} in the pod" if interface else ""


def _health(health: model.Health, now: datetime.datetime) -> Iterator[Line]:
    if not health.is_well or health.message:
        taints = [
            _joined(f"taint {taint.text}", age(taint.since, now), f"DeviceTaintRule {taint.rule}" if taint.rule else "")
            for taint in health.taints
        ]
        yield Line(text=f"    {_joined(health.state, *taints, health.message)}", style=BAD)


def _facts(facts: model.Facts, readings: model.Readings) -> Iterator[str]:
    yield from (facts.model, facts.memory)
    if readings.utilization is not None:
        yield f"{readings.utilization:.0%} busy"
    if readings.memory_used is not None:
        yield f"{readings.memory_used / _GIBI:.1f} GiB used"
    if readings.temperature is not None:
        yield f"{readings.temperature:.0f} C"
    if readings.power is not None:
        yield f"{readings.power:.0f} W" if readings.power_limit is None else f"{readings.power:.0f} of {readings.power_limit:.0f} W"
    yield facts.uuid


def _use(use: model.Use, now: datetime.datetime) -> str:
    pods = f"pod {', '.join(use.pods)}" if use.pods else ""
    return _joined(pods, f"claim {use.claim}", age(use.since, now))


def _taken(gpu: model.Gpu) -> int:
    return sum(span.size for span in gpu.spans)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {kind}" for kind, count in counts.items())


def _devices(number: int) -> str:
    return plurals.counted(number, "device or share", "devices and shares")


def _rate(bits: int) -> str:
    """Return a bandwidth as claims and ``drakit free`` write it."""
    return str(quantity.Quantity.of(bits))


def _beside(closed: str) -> str:
    """Return why no pods come to the node of what is said before."""
    return f" ({closed})" if closed else ""


def _joined(*parts: str) -> str:
    return "  ".join(filter(None, parts))


def only(state: model.State, names: Collection[str]) -> model.State:
    """Return the state with the devices and claims of some nodes; what waits may wait for any node."""
    nodes: Iterable[model.Node] = [entry for entry in state.nodes if entry.name in names]
    claims = tuple(row for row in state.claims if not row.devices or any(device.node in names for device in row.devices))
    return dataclasses.replace(
        state, nodes=tuple(nodes), claims=claims, free=unused.free(nodes), namespaces=granted.namespaces(claims, state.waiting)
    )
