"""The state of a local cluster in a few lines, for the error of a call that waited in vain: pods, claims, events and the driver's last warnings."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

EVENTS_MOST = 8

Object = Mapping[str, Any]


def describe(pods: Iterable[Object], claims: Iterable[Object], events: Sequence[Object], log: Iterable[str]) -> Iterator[str]:
    """Yield a line for each pod that does not run, each claim, the last events that are warnings, and each of the driver's log lines."""
    yield from (line for pod in pods if (line := _pod(pod)))
    yield from map(_claim, claims)
    warnings = [event for event in events if event.get("type") == "Warning"]
    yield from dict.fromkeys(map(_event, warnings[-EVENTS_MOST:]))
    yield from (f"log: {line}" for line in log)


def _pod(pod: Object) -> str:
    status = pod.get("status", {})
    phase = status.get("phase", "Pending")
    failed = [_condition(condition) for condition in status.get("conditions", ()) if condition.get("status") != "True"]
    return "" if phase == "Running" else "; ".join([f"pod {_name(pod)}: {phase}", *failed])


def _claim(claim: Object) -> str:
    status = claim.get("status", {})
    results = status.get("allocation", {}).get("devices", {}).get("results", ())
    devices = ", ".join(f"{result['pool']}/{result['device']}" for result in results)
    statuses = [
        f"device {device.get('device')} {_condition(condition)}"
        for device in status.get("devices", ())
        for condition in device.get("conditions", ())
    ]
    waiting = [f"waits for {condition}" for result in results for condition in result.get("bindingConditions", ())]
    return "; ".join([f"claim {_name(claim)}: {f'allocated {devices}' if devices else 'not allocated'}", *waiting, *statuses])


def _event(event: Object) -> str:
    involved = event.get("involvedObject", event.get("regarding", {}))
    return f"event {event.get('reason')} of {involved.get('kind')} {involved.get('name')}: {event.get('message', event.get('note', ''))}"


def _condition(condition: Object) -> str:
    message = condition.get("message") or condition.get("reason") or ""
    return f"{condition.get('type')} {condition.get('status')}{f': {message}' if message else ''}"


def _name(entry: Object) -> str:
    metadata = entry.get("metadata", {})
    return f"{metadata.get('namespace', 'default')}/{metadata.get('name')}"
