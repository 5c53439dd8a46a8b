"""Faults of GPUs, as values, and how they come, grow and pass. Pure: what is seen goes in, what is to be said comes out.

A fault stands on one device, its anchor: ``gpu-N`` for what concerns a whole GPU, also where that device is not offered, a partition for what NVML
says of one GPU instance. All forms and partitions of the anchor share it. Its taint's key says what kind of fault it is; of several of one kind the
gravest is shown.

A fault keeps new work away at once (NoSchedule). One that no program can survive also ends those that run (NoExecute), once it has stood for
``settle`` seconds. A lost GPU ends them only while it does not answer: the looks that found it lost, with none between that found it answering,
have to span ``settle`` seconds. A fault has passed when the GPU has been well for as long: it answers, and asks for no recovery action. An Xid of a
GPU that never asked for one stands ``hold`` seconds. Where a GPU cannot tell what it asks for, an Xid passes when the GPU was lost and has come back.
"""

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from drakit.core import context, inventory
from drakit.core import device as devices
from drakit.devices.gpu.health import signals, xids

XID, ECC, LOST, RECOVERY, FABRIC = "xid", "ecc", "gpu-lost", "recovery-action", "fabric"
_KINDS = (XID, ECC, LOST, RECOVERY, FABRIC)
_WHOLE = re.compile(r"gpu-(\d+)")
_PARTITION = re.compile(r"gpu-(\d+)-mig-[a-z0-9-]+-(\d+)-(\d+)")

# A place on a GPU: hardware id of the profile, first memory slice.
Spot = tuple[int, int]
TaintsByDevice = Mapping[str, Sequence[devices.Taint]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class HealthPolicy:
    """How faults are judged; times in seconds. ``ignored`` are Xids that mean nothing here; without ``evicts`` no taint is NoExecute."""

    ignored: frozenset[int] = frozenset()
    evicts: bool = True
    settle: float = 5.0
    hold: float = 60.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Observation:
    """How a GPU was found: what it asks for (None: it does not tell), and where instances lie on it.

    ``error`` is what a lost one answered, ``fabric`` why it cannot use the NVLink fabric. ``mild`` says that the error is one that programs on the
    GPU may survive. ``partial`` says that the GPU answers, but its recovery action, fabric or instances could not be read.
    """

    lost: bool = False
    error: str = ""
    mild: bool = False
    partial: bool = False
    action: signals.RecoveryAction | None = None
    fabric: str = ""
    spots: frozenset[Spot] = frozenset()

    @property
    def asks(self) -> bool:
        """Whether something has to be done to the GPU."""
        return self.action not in {None, signals.RecoveryAction.NONE}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault that stands. ``minor`` is the GPU's, ``spot`` is set where it is confined to the instance there.

    ``since`` is when it came, ``last`` when a look last showed it, ``well_since`` when the GPU was found well again. ``asked`` and ``away`` say
    whether, meanwhile, the GPU asked for a recovery action or was lost.
    """

    anchor: str
    minor: int
    kind: str
    value: str
    text: str
    fatal: bool
    since: float
    last: float | None = None
    spot: Spot | None = None
    asked: bool = False
    away: bool = False
    well_since: float | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes it the same fault when it comes again: of Xids the number too."""
        return (self.anchor, self.kind, self.value if self.kind == XID else "")


def gpu_anchor(minor: int) -> str:
    """The anchor of what concerns a whole GPU."""
    return f"gpu-{minor}"


def affects(anchor: str, device: str) -> bool:
    """Whether what stands on an anchor concerns a device."""
    return device == anchor or device.startswith(f"{anchor}-")


def from_xid(xid: xids.Xid, anchor: str, now: float) -> Fault:
    """The fault that an Xid is; one of a whole GPU where it is wide."""
    minor, spot = _parsed(anchor)
    if xid.wide:
        anchor, spot = gpu_anchor(minor), None
    fatal = xid.gravity is xids.Gravity.FATAL
    return Fault(
        anchor=anchor, minor=minor, kind=XID, value=str(xid.number), text=f"Xid {xid.number}: {xid.text}", fatal=fatal, since=now, spot=spot
    )


def from_memory_error(anchor: str, now: float) -> Fault:
    """The fault that a double-bit memory error is."""
    minor, spot = _parsed(anchor)
    return Fault(anchor=anchor, minor=minor, kind=ECC, value="double-bit", text=_TEXTS[ECC], fatal=False, since=now, spot=spot)


def with_last_observation(fault: Fault, standing: Iterable[Fault]) -> Fault:
    """Return the fault of an event with what the last look found of its GPU: an event can arrive after the look that shows its effect."""
    shown = {one.kind for one in standing if one.minor == fault.minor and one.well_since is None}
    return dataclasses.replace(fault, asked=RECOVERY in shown, away=LOST in shown)


def from_observation(minor: int, observed: Observation, now: float) -> tuple[Fault, ...]:
    """The faults that a look at a GPU shows by itself."""
    found: list[Fault] = []
    if observed.lost:
        text = f"{_TEXTS[LOST]} ({observed.error})" if observed.error else _TEXTS[LOST]
        found.append(Fault(anchor=gpu_anchor(minor), minor=minor, kind=LOST, value="", text=text, fatal=not observed.mild, since=now))
    if observed.asks and observed.action is not None:
        asked = observed.action.value
        text = f"{_TEXTS[RECOVERY]} {asked}"
        found.append(
            Fault(anchor=gpu_anchor(minor), minor=minor, kind=RECOVERY, value=asked, text=text, fatal=False, since=now, asked=True)
        )
    if observed.fabric:
        text = f"{_TEXTS[FABRIC]} {observed.fabric}"
        found.append(Fault(anchor=gpu_anchor(minor), minor=minor, kind=FABRIC, value=observed.fabric, text=text, fatal=False, since=now))
    return tuple(found)


def merged(standing: Iterable[Fault], fresh: Iterable[Fault]) -> tuple[Fault, ...]:
    """All faults; one that comes again is the one that stands, and is not well any more."""
    known = {one.key: one for one in standing}
    for one in fresh:
        before = known.get(one.key)
        known[one.key] = one if before is None else _again(before, one)
    return tuple(known.values())


def updated(fault: Fault, observed: Observation, policy: HealthPolicy, now: float) -> Fault | None:
    """The fault after a look at its GPU; None when it has passed. A GPU that was found well is lost anew when it is lost again."""
    if observed.partial and fault.kind != LOST:
        return fault
    after = dataclasses.replace(fault, asked=fault.asked or observed.asks, away=fault.away or observed.lost)
    if not _is_well(after, observed):
        is_anew = after.kind == LOST and after.well_since is not None
        return dataclasses.replace(after, since=now if is_anew else after.since, well_since=None)
    well_since = now if after.well_since is None else after.well_since
    known_to_pass = after.asked or after.away or after.kind in {LOST, RECOVERY, FABRIC} or _is_gone(after, observed)
    if now - well_since >= (policy.settle if known_to_pass else policy.hold):
        return None
    return dataclasses.replace(after, well_since=well_since)


def taints(faults: Iterable[Fault], prefix: str, policy: HealthPolicy, now: float) -> dict[str, tuple[devices.Taint, ...]]:
    """The taints of all faults, by anchor; ``prefix`` is the driver's name."""
    gravest: dict[tuple[str, str], Fault] = {}
    for one in sorted(faults, key=lambda fault: (not fault.fatal, fault.since)):
        gravest.setdefault((one.anchor, one.kind), one)
    found: dict[str, tuple[devices.Taint, ...]] = {}
    for (anchor, kind), one in gravest.items():
        told = devices.Taint(key=f"{prefix}/{kind}", value=one.value)
        ends = one.fatal and policy.evicts and _stood(one, now) >= policy.settle
        both = (told, dataclasses.replace(told, effect=devices.TaintEffect.NO_EXECUTE)) if ends else (told,)
        found[anchor] = (*found.get(anchor, ()), *both)
    return found


def health_taints(put: TaintsByDevice, prefix: str) -> dict[str, tuple[devices.Taint, ...]]:
    """Of all taints that were put those of this module, by device."""
    keys = {f"{prefix}/{kind}" for kind in _KINDS}
    found = {device: tuple(taint for taint in kept if taint.key in keys) for device, kept in put.items()}
    return {device: kept for device, kept in found.items() if kept}


def from_taints(put: TaintsByDevice, prefix: str, policy: HealthPolicy, now: float) -> tuple[Fault, ...]:
    """The faults that taints of an earlier process stand for; they count as ones for which something was to be done. Ignored Xids are left out."""
    found: dict[tuple[str, str], Fault] = {}
    for device, kept in health_taints(put, prefix).items():
        for taint in kept:
            if (restored := _restored(device, taint.key.removeprefix(f"{prefix}/"), taint, policy, now)) is not None:
                before = found.get((device, restored.kind))
                found[device, restored.kind] = restored if before is None or restored.since < before.since else before
    return tuple(found.values())


def with_taints(offered: inventory.Inventory, put: TaintsByDevice, prefix: str) -> inventory.Inventory:
    """The inventory with the taints of anchors on all devices that they reach."""
    standing = health_taints(put, prefix)
    if not standing:
        return offered
    return dataclasses.replace(offered, devices=tuple(_tainted(item, standing) for item in offered.devices))


def reports(faults: Collection[Fault], used: Iterable[str]) -> dict[str, context.HealthReport]:
    """What the kubelet is told of the devices in use that have a fault."""
    found: dict[str, context.HealthReport] = {}
    for device in used:
        texts = [one.text for one in faults if affects(one.anchor, device)]
        if texts:
            found[device] = context.HealthReport(device=device, health=context.Health.UNHEALTHY, message="; ".join(dict.fromkeys(texts)))
    return found


_TEXTS: Mapping[str, str] = {
    ECC: "an uncorrectable memory error",
    LOST: "the GPU does not answer any more",
    RECOVERY: "the GPU asks for the recovery action",
    FABRIC: "the GPU cannot use the NVLink fabric:",
}


def _again(before: Fault, fresh: Fault) -> Fault:
    """A standing fault that a look shows again. The time of a lost GPU begins anew where its error becomes grave, or mild."""
    after = dataclasses.replace(before, value=fresh.value, text=fresh.text, last=fresh.since, well_since=None)
    if before.kind != LOST or before.fatal == fresh.fatal:
        return after
    return dataclasses.replace(after, fatal=fresh.fatal, since=fresh.since)


def _stood(fault: Fault, now: float) -> float:
    """For how long a fault has stood. Of a lost GPU only the time between looks that found it lost counts, and none once it answers."""
    if fault.kind != LOST:
        return now - fault.since
    if fault.well_since is not None or fault.last is None:
        return 0.0
    return fault.last - fault.since


def _is_well(fault: Fault, observed: Observation) -> bool:
    if observed.lost:
        return False
    if fault.kind == LOST or _is_gone(fault, observed):
        return True
    if fault.kind == FABRIC:
        return not observed.fabric
    return fault.away if observed.action is None else not observed.asks


def _is_gone(fault: Fault, observed: Observation) -> bool:
    """Whether the instance that a fault is confined to is no more; what is made there anew is another."""
    return fault.spot is not None and fault.spot not in observed.spots


def _parsed(device: str) -> tuple[int, Spot | None]:
    """GPU and place of an anchor; raises ValueError for any other name."""
    if found := _WHOLE.fullmatch(device):
        return int(found[1]), None
    if found := _PARTITION.fullmatch(device):
        return int(found[1]), (int(found[2]), int(found[3]))
    raise ValueError(device)


def _restored(device: str, kind: str, taint: devices.Taint, policy: HealthPolicy, now: float) -> Fault | None:
    try:
        minor, spot = _parsed(device)
    except ValueError:
        return None
    since = now - policy.settle if taint.effect is devices.TaintEffect.NO_EXECUTE else now
    fatal, text = kind == LOST, f"{_TEXTS.get(kind, '')} {taint.value}".strip()
    if kind == XID:
        xid = xids.of(int(taint.value) if taint.value.isdigit() else 0, policy.ignored)
        if xid.gravity is xids.Gravity.NOTHING:
            return None
        fatal, text = xid.gravity is xids.Gravity.FATAL, f"Xid {xid.number}: {xid.text}"
    return Fault(
        anchor=device, minor=minor, kind=kind, value=taint.value, text=text, fatal=fatal, since=since, last=now, spot=spot, asked=True
    )


def _tainted(item: devices.Device, standing: TaintsByDevice) -> devices.Device:
    reached = [taint for anchor, kept in standing.items() if affects(anchor, item.name) for taint in kept]
    if not reached:
        return item
    apart = {(taint.key, taint.effect): taint for taint in reversed(reached)}
    return dataclasses.replace(item, taints=(*apart.values(), *item.taints)[: devices.TAINTS_MAX])
