"""What waits for devices, and why: in the words of the scheduler, the kubelet and the driver. Pure."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from drakit_tools.dashboard import model, objects

_DONE = ("Succeeded", "Failed")
_SCHEDULED, _GATED = "PodScheduled", "SchedulingGated"
_RUNNING = "Running"
_PREEMPTION = re.compile(r"[^.]*\bpreemption: .*", re.DOTALL)
"""The end of kube-scheduler's message, which repeats the number of nodes and says that no other pod can make room."""
_SCHEDULER = "no scheduler has tried it yet"
_NO_POD = "no pod uses it; a claim gets devices when a pod that names it is scheduled"
_PODS_UNKNOWN = "its pods are unknown, because pods cannot be listed"


def of(
    pods: Iterable[objects.Pod],
    claims: Sequence[objects.Claim],
    events: Iterable[objects.Event],
    *,
    pods_are_known: bool = True,
    classes: Collection[str] = (),
) -> tuple[model.Waiting, ...]:
    """Return what waits, the oldest first: pods that want devices and do not run, and claims without devices that none of these pods names.

    ``classes`` are the DeviceClasses that exist; empty if they are unknown.
    """
    asks = {claim.meta.label: claim.asks for claim in claims}
    warnings = _latest_warnings(events)
    waiting = [pod for pod in pods if _waits(pod)]
    rows = [
        model.Waiting(
            kind=model.POD,
            name=pod.label,
            asks=", ".join(_asks(pod, asks)),
            reason=_reason(pod, warnings.get(pod.label)),
            since=pod.created,
            node=pod.node,
        )
        for pod in waiting
    ]
    named = {f"{pod.namespace}/{name}" for pod in waiting for name in pod.claim_names}
    rows += [
        model.Waiting(
            kind=model.CLAIM,
            name=claim.meta.label,
            asks=claim.asks,
            reason="; ".join([*_unknown(claim, classes), _NO_POD if pods_are_known else _PODS_UNKNOWN]),
            since=claim.meta.created,
        )
        for claim in claims
        if claim.state == "waiting" and claim.meta.label not in named
    ]
    return tuple(sorted(rows, key=lambda row: (objects.moment(row.since), row.name)))


def _unknown(claim: objects.Claim, classes: Collection[str]) -> list[str]:
    """Return a text for each class of a claim that does not exist."""
    return [f"there is no DeviceClass {name}" for name in claim.classes if classes and name not in classes]


def _waits(pod: objects.Pod) -> bool:
    """Return whether a pod wants devices and does not run."""
    wants = bool(pod.claims or pod.extended or pod.resources)
    return wants and not pod.deleted and pod.phase != _RUNNING and pod.phase not in _DONE


def _asks(pod: objects.Pod, asks: Mapping[str, str]) -> Iterator[str]:
    """Yield what each claim of a pod asks for, or its template while there is no claim, and then the pod's extended resources."""
    generated = {entry.name: entry.claim for entry in pod.generated}
    for entry in pod.claims:
        name = entry.claim or generated.get(entry.name, "")
        yield asks.get(f"{pod.namespace}/{name}") or (f"claim {name}" if name else f"template {entry.template}")
    for resource, amount in pod.resources.items():
        yield f"{amount} x {resource}"


def _reason(pod: objects.Pod, warning: objects.Event | None) -> str:
    """Return why a pod does not run. Claims that were made for it have their names in the pod, so that equal pods have one reason."""
    reason = _said(pod, warning)
    for entry in pod.generated:
        if entry.claim:
            reason = reason.replace(f"claim {pod.namespace}/{entry.claim}", f"its claim {entry.name}")
    return reason


def _said(pod: objects.Pod, warning: objects.Event | None) -> str:
    """Return what is said of a pod: before it has a node by the scheduler, then by the kubelet."""
    if not pod.node:
        scheduled = next((condition for condition in pod.conditions if condition.type == _SCHEDULED), objects.Condition())
        if scheduled.reason == _GATED:
            return scheduled.message or "it has a scheduling gate"
        message = scheduled.message or (warning.message if warning else "")
        return _PREEMPTION.sub("", message).strip() or message or _SCHEDULER
    if warning is not None:
        return f"on {pod.node}: {warning.reason}: {warning.message}"
    status = next((status for status in pod.statuses if status.reason), objects.ContainerStatus(reason="ContainerCreating"))
    return f"on {pod.node}: {': '.join(filter(None, (status.reason, status.message)))}"


def _latest_warnings(events: Iterable[objects.Event]) -> Mapping[str, objects.Event]:
    """Return the latest warning about each pod by namespace/name."""
    latest: dict[str, objects.Event] = {}
    for event in events:
        if event.about_kind != "Pod" or event.type != "Warning":
            continue
        name = f"{event.about_namespace}/{event.about_name}"
        if name not in latest or objects.moment(event.time) >= objects.moment(latest[name].time):
            latest[name] = event
    return latest
