"""GPU faults as values: how events and polls create them, how they grow and clear, and the taints they set. Pure functions.

A fault has an anchor, which is a device name: ``gpu-N`` for a whole GPU, also where that device is not offered, or a partition for what NVML reports
of one GPU instance. All forms and partitions of the anchor are tainted. The taint's key names the kind of fault. If there
are several faults of one kind, the taint shows the most severe.

A fault keeps new pods away at once (NoSchedule). A fatal fault also evicts running pods (NoExecute) after ``settle`` seconds. A lost GPU evicts them
only while it does not answer: the polls that found it lost must span ``settle`` seconds, and no poll between them may have succeeded. A fault clears
when the GPU has been healthy for ``settle`` seconds: it answers and requests no recovery action. An Xid of a GPU that never requested one stays for
``hold`` seconds. Where a GPU cannot report recovery actions, an Xid clears when the GPU was lost and has come back. A change under a claim clears
when the claim's hardware is as it was, or the claim is unprepared.
"""

import dataclasses
import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import drakit
from drakit_gpu.health import signals, xids

XID, ECC, LOST, RECOVERY, FABRIC, CHANGED = "xid", "ecc", "gpu-lost", "recovery-action", "fabric", "changed"
_KINDS = (XID, ECC, LOST, RECOVERY, FABRIC, CHANGED)
_WHOLE = re.compile(r"gpu-(\d+)")
_PARTITION = re.compile(r"gpu-(\d+)-mig-[a-z0-9-]+-(\d+)-(\d+)")

# The place of an instance on a GPU: hardware id of the profile, first memory slice.
Spot = tuple[int, int]
TaintsByDevice = Mapping[str, Sequence[drakit.Taint]]
_TEXTS: Mapping[str, str] = {
    ECC: "an uncorrectable memory error",
    LOST: "the GPU does not answer any more",
    RECOVERY: "the GPU requests the recovery action",
    FABRIC: "the GPU cannot use the NVLink fabric:",
    CHANGED: "the hardware changed under the claim",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class HealthPolicy:
    """The settings of health monitoring and of fault classification; times in seconds.

    ``ignored`` are Xids that are no faults; without ``evicts`` no taint is NoExecute. ``event_wait`` is how long one wait for an event takes at most,
    which bounds a stop, ``poll`` the time between two polls of the GPUs.
    """

    ignored: frozenset[int] = frozenset()
    evicts: bool = True
    settle: float = 5.0
    hold: float = 60.0
    event_wait: float = 1.0
    poll: float = 5.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Observation:
    """The result of polling a GPU: its recovery action (None: not reported), and the places of its instances.

    ``error`` is the error of a lost GPU, ``fabric`` the reason why it cannot use the NVLink fabric. ``transient`` marks an error that programs on the
    GPU may survive. ``partial`` marks a GPU that answers, but whose recovery action, fabric or instances could not all be read. ``changes`` are what
    others changed under prepared claims, by the anchor of the claim's device. ``unchecked`` are anchors whose claims could not be checked.
    """

    lost: bool = False
    error: str = ""
    transient: bool = False
    partial: bool = False
    action: signals.RecoveryAction | None = None
    fabric: str = ""
    spots: frozenset[Spot] = frozenset()
    changes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unchecked: frozenset[str] = frozenset()

    @property
    def requests_recovery(self) -> bool:
        """Whether the GPU requests a recovery action."""
        return self.action not in {None, signals.RecoveryAction.NONE}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """A current fault. ``minor`` is the GPU's; ``spot`` is set where the fault is confined to the instance at that place.

    ``since`` is when the fault began, ``last`` when a poll last confirmed it, ``well_since`` when the GPU was healthy again. ``recovery_requested``
    and ``was_lost`` are whether, since then, the GPU requested a recovery action or was lost.
    """

    anchor: str
    minor: int
    kind: str
    text: str
    since: float
    value: str = ""
    fatal: bool = False
    last: float | None = None
    spot: Spot | None = None
    recovery_requested: bool = False
    was_lost: bool = False
    well_since: float | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """The identity of the fault: repeated faults have equal keys. For an Xid it includes the number."""
        return (self.anchor, self.kind, self.value if self.kind == XID else "")


def gpu_anchor(minor: int) -> str:
    """Return the anchor of a whole GPU."""
    return f"gpu-{minor}"


def anchor_of(device: str) -> str:
    """Return the anchor of a device in use: the name of its exclusive form."""
    return device.removesuffix("-shared").removesuffix("-vfio")


def affects(anchor: str, device: str) -> bool:
    """Return whether a fault on an anchor affects a device."""
    return device == anchor or device.startswith(f"{anchor}-")


def from_xid(xid: xids.Xid, anchor: str, now: float) -> Fault:
    """Return the fault of an Xid, on the whole GPU where the Xid affects all of it."""
    minor, spot = _parsed(anchor)
    if xid.wide:
        anchor, spot = gpu_anchor(minor), None
    fatal = xid.gravity is xids.Gravity.FATAL
    return Fault(
        anchor=anchor, minor=minor, kind=XID, value=str(xid.number), text=f"Xid {xid.number}: {xid.text}", fatal=fatal, since=now, spot=spot
    )


def from_memory_error(anchor: str, now: float) -> Fault:
    """Return the fault of a double-bit memory error."""
    minor, spot = _parsed(anchor)
    return Fault(anchor=anchor, minor=minor, kind=ECC, value="double-bit", text=_TEXTS[ECC], since=now, spot=spot)


def with_last_observation(fault: Fault, current: Iterable[Fault]) -> Fault:
    """Return an event's fault with the state of its GPU at the last poll: an event can arrive after the poll that shows its effect."""
    shown = {other.kind for other in current if other.minor == fault.minor and other.well_since is None}
    return dataclasses.replace(fault, recovery_requested=RECOVERY in shown, was_lost=LOST in shown)


def from_observation(minor: int, observed: Observation, now: float) -> tuple[Fault, ...]:
    """Return the faults that a poll of a GPU shows."""
    shown, of_gpu = [], functools.partial(Fault, anchor=gpu_anchor(minor), minor=minor, since=now)
    if observed.lost:
        text = f"{_TEXTS[LOST]} ({observed.error})" if observed.error else _TEXTS[LOST]
        shown.append(of_gpu(kind=LOST, text=text, fatal=not observed.transient))
    if observed.requests_recovery and observed.action is not None:
        action = observed.action.value
        shown.append(of_gpu(kind=RECOVERY, value=action, text=f"{_TEXTS[RECOVERY]} {action}", recovery_requested=True))
    if observed.fabric:
        shown.append(of_gpu(kind=FABRIC, value=observed.fabric, text=f"{_TEXTS[FABRIC]} {observed.fabric}"))
    shown += [Fault(anchor=anchor, minor=minor, kind=CHANGED, text=text, since=now) for anchor, text in observed.changes.items()]
    return tuple(shown)


def merged(current: Iterable[Fault], fresh: Iterable[Fault]) -> tuple[Fault, ...]:
    """Return all faults. A repeated fault continues the existing one, which no longer counts as healthy."""
    by_key = {fault.key: fault for fault in current}
    for repeated in fresh:
        before = by_key.get(repeated.key)
        by_key[repeated.key] = repeated if before is None else _again(before, repeated)
    return tuple(by_key.values())


def updated(fault: Fault, observed: Observation, policy: HealthPolicy, now: float) -> Fault | None:
    """Return the fault after a poll of its GPU; None when it has cleared. A GPU that was healthy in between counts as newly lost."""
    if fault.anchor in observed.unchecked if fault.kind == CHANGED else observed.partial and fault.kind != LOST:
        return fault
    after = dataclasses.replace(
        fault, recovery_requested=fault.recovery_requested or observed.requests_recovery, was_lost=fault.was_lost or observed.lost
    )
    if not _is_well(after, observed):
        is_lost_again = after.kind == LOST and after.well_since is not None
        return dataclasses.replace(after, since=now if is_lost_again else after.since, well_since=None)
    well_since = now if after.well_since is None else after.well_since
    known_to_pass = (
        after.recovery_requested or after.was_lost or after.kind in {LOST, RECOVERY, FABRIC, CHANGED} or _is_gone(after, observed)
    )
    if now - well_since >= (policy.settle if known_to_pass else policy.hold):
        return None
    return dataclasses.replace(after, well_since=well_since)


def taints(faults: Iterable[Fault], prefix: str, policy: HealthPolicy, now: float) -> dict[str, tuple[drakit.Taint, ...]]:
    """Return the taints of all faults, by anchor; ``prefix`` is the driver's name."""
    most_severe: dict[tuple[str, str], Fault] = {}
    for fault in sorted(faults, key=lambda fault: (not fault.fatal, fault.since)):
        most_severe.setdefault((fault.anchor, fault.kind), fault)
    by_anchor: dict[str, tuple[drakit.Taint, ...]] = {}
    for (anchor, kind), fault in most_severe.items():
        taint = drakit.Taint(key=f"{prefix}/{kind}", value=fault.value)
        ends = fault.fatal and policy.evicts and _age(fault, now) >= policy.settle
        both = (taint, dataclasses.replace(taint, effect=drakit.TaintEffect.NO_EXECUTE)) if ends else (taint,)
        by_anchor[anchor] = (*by_anchor.get(anchor, ()), *both)
    return by_anchor


def health_taints(put: TaintsByDevice, prefix: str) -> dict[str, tuple[drakit.Taint, ...]]:
    """Return the taints of GPU faults among all taints, by device."""
    keys = {f"{prefix}/{kind}" for kind in _KINDS}
    of_faults = {device: tuple(taint for taint in device_taints if taint.key in keys) for device, device_taints in put.items()}
    return {device: device_taints for device, device_taints in of_faults.items() if device_taints}


def from_taints(put: TaintsByDevice, prefix: str, policy: HealthPolicy, now: float) -> tuple[Fault, ...]:
    """Return the faults behind the taints of an earlier process, as if the GPU had requested a recovery action. Ignored Xids are left out."""
    restored_faults: dict[tuple[str, str], Fault] = {}
    for device, device_taints in health_taints(put, prefix).items():
        for taint in device_taints:
            if (restored := _restored(device, taint.key.removeprefix(f"{prefix}/"), taint, policy, now)) is not None:
                before = restored_faults.get((device, restored.kind))
                restored_faults[device, restored.kind] = restored if before is None or restored.since < before.since else before
    return tuple(restored_faults.values())


def with_taints(offered: drakit.Inventory, put: TaintsByDevice, prefix: str) -> drakit.Inventory:
    """Return the inventory with the taints of all anchors on the devices that they affect."""
    fault_taints = health_taints(put, prefix)
    if not fault_taints:
        return offered
    return dataclasses.replace(offered, devices=tuple(_tainted(device, fault_taints) for device in offered.devices))


def reports(faults: Collection[Fault], used: Iterable[str]) -> dict[str, drakit.HealthReport]:
    """Return the health reports for the kubelet, of the devices in use that have a fault."""
    by_device: dict[str, drakit.HealthReport] = {}
    for device in used:
        texts = [fault.text for fault in faults if affects(fault.anchor, device)]
        if texts:
            by_device[device] = drakit.HealthReport(device=device, health=drakit.Health.UNHEALTHY, message="; ".join(dict.fromkeys(texts)))
    return by_device


def _again(before: Fault, fresh: Fault) -> Fault:
    """Return an existing fault that a poll shows again. The time of a lost GPU restarts where its error becomes fatal or transient."""
    after = dataclasses.replace(before, value=fresh.value, text=fresh.text, last=fresh.since, well_since=None)
    if before.kind != LOST or before.fatal == fresh.fatal:
        return after
    return dataclasses.replace(after, fatal=fresh.fatal, since=fresh.since)


def _age(fault: Fault, now: float) -> float:
    """Return for how many seconds a fault has existed. A lost GPU counts only the time between polls that found it lost, until it answers."""
    if fault.kind != LOST:
        return now - fault.since
    if fault.well_since is not None or fault.last is None:
        return 0.0
    return fault.last - fault.since


def _is_well(fault: Fault, observed: Observation) -> bool:
    if observed.lost:
        return False
    if fault.kind == CHANGED:
        return fault.anchor not in observed.changes
    if fault.kind == LOST or _is_gone(fault, observed):
        return True
    if fault.kind == FABRIC:
        return not observed.fabric
    return fault.was_lost if observed.action is None else not observed.requests_recovery


def _is_gone(fault: Fault, observed: Observation) -> bool:
    """Return whether the instance that a fault is confined to has been deleted; a new one in its place is another instance."""
    return fault.spot is not None and fault.spot not in observed.spots


def _parsed(device: str) -> tuple[int, Spot | None]:
    """Return GPU and place of an anchor; raises ValueError for any other name."""
    if match := _WHOLE.fullmatch(device):
        return int(match[1]), None
    if match := _PARTITION.fullmatch(device):
        return int(match[1]), (int(match[2]), int(match[3]))
    raise ValueError(device)


def _restored(device: str, kind: str, taint: drakit.Taint, policy: HealthPolicy, now: float) -> Fault | None:
    try:
        minor, spot = _parsed(device)
    except ValueError:
        return None
    since = now - policy.settle if taint.effect is drakit.TaintEffect.NO_EXECUTE else now
    fatal, text = kind == LOST, f"{_TEXTS.get(kind, '')} {taint.value}".strip()
    if kind == XID:
        xid = xids.of(int(taint.value) if taint.value.isdigit() else 0, policy.ignored)
        if xid.gravity is xids.Gravity.NOTHING:
            return None
        fatal, text = xid.gravity is xids.Gravity.FATAL, f"Xid {xid.number}: {xid.text}"
    return Fault(
        anchor=device,
        minor=minor,
        kind=kind,
        value=taint.value,
        text=text,
        fatal=fatal,
        since=since,
        last=now,
        spot=spot,
        recovery_requested=True,
    )


def _tainted(device: drakit.Device, fault_taints: TaintsByDevice) -> drakit.Device:
    affecting = [taint for anchor, anchor_taints in fault_taints.items() if affects(anchor, device.name) for taint in anchor_taints]
    if not affecting:
        return device
    by_key = {(taint.key, taint.effect): taint for taint in reversed(affecting)}
    return dataclasses.replace(device, taints=(*by_key.values(), *device.taints)[: drakit.TAINTS_MAX])
