"""Implement ``core.context.DriverContext`` for one node: state in the journal, the engine's locks, and sinks for reports.

A serving node sets its own sinks. Without them, as in one-off commands, reports are logged.
"""

import contextlib
import dataclasses
import pathlib
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from drakit.core import arguments, claim_status, context, lifecycle, names, ports, records
from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.node import inventory_cache, resolution
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

STATE_KEY_MAX = 63

Grant = drivers.Grant[object]


def _log_health(report: context.HealthReport) -> None:
    _log.info("health", device=report.device, health=report.health.value, message=report.message)


def _log_status(claim: claims.ClaimRef, status: claim_status.DeviceStatus) -> None:
    conditions = {condition.type: condition.status for condition in status.conditions}
    _log.info("status", claim=str(claim), claim_uid=claim.uid, device=status.device, conditions=conditions)


def _log_event(claim: claims.ClaimRef, event: context.Event) -> None:
    _log.info("event", claim=str(claim), claim_uid=claim.uid, reason=event.reason, message=event.message)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportSinks:
    """The receivers of a driver's reports; each returns at once. ``rediscover`` requests a discovery."""

    rediscover: Callable[[], None] = lambda: None
    health: Callable[[context.HealthReport], None] = _log_health
    status: Callable[[claims.ClaimRef, claim_status.DeviceStatus], None] = _log_status
    event: Callable[[claims.ClaimRef, context.Event], None] = _log_event


class Debounce:
    """A filter that reports a fault only after it has lasted, so that a flapping device evicts no pod. ``monotonic`` is in seconds. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._since: dict[Hashable, float] = {}

    def has_lasted(self, fault: Hashable, seconds: float) -> bool:
        """Return whether a fault that is reported now was first reported at least ``seconds`` ago and not cleared since."""
        now = self._monotonic()
        return now - self._since.setdefault(fault, now) >= seconds

    def counts(self, report: context.HealthReport, seconds: float) -> bool:
        """Return whether to send a health report now: a healthy one always, and it clears the device; any other after it has lasted."""
        if report.health is context.Health.HEALTHY:
            self.clear(report.device)
            return True
        return self.has_lasted(report.device, seconds)

    def clear(self, fault: Hashable) -> None:
        """Clear a fault; a fault that was never reported is ignored."""
        self._since.pop(fault, None)


@arguments.checked_methods
class NodeDriverContext:
    """The ``core.context.DriverContext`` of one node. Calls raise JournalError on journal failures. ``revision`` counts changes of taints."""

    def __init__(
        self,
        author: inventory_cache.Author,
        *,
        data_dir: pathlib.Path,
        boot_id: str,
        journal: ports.Journal,
        driver_state: ports.DriverState,
        device_locks: ports.Locks,
        clock: ports.Clock,
    ) -> None:
        self.data_dir = data_dir
        self.boot_id = boot_id
        self.sinks = ReportSinks()
        self.revision = 0
        self.stopping = threading.Event()
        self._debounce = Debounce(clock.monotonic)
        self._author = author
        self._journal = journal
        self._driver_state = driver_state
        self._locks = device_locks
        self._clock = clock

    def grants(self) -> Sequence[Grant]:
        """Return every grant that is prepared in this boot, oldest claim first."""
        return [
            self._grant(entry, stored)
            for entry in self._journal.entries(edits=False)
            if self._is_prepared(entry)
            for stored in entry.grants
        ]

    def grant(self, uid: names.ClaimUid, device: str, share_id: names.ShareId | None = None) -> Grant | None:
        """Return the prepared grant of this claim, device and share; the first one, where admin access holds one device twice."""
        entry = self._journal.entry(uid)
        if entry is None or not self._is_prepared(entry):
            return None
        matches = (stored for stored in entry.grants if (stored.device.name, stored.share_id) == (device, share_id))
        return next((self._grant(entry, stored) for stored in matches), None)

    def state(self, grant: Grant) -> Mapping[str, records.Record]:
        """Return the stored state of this grant, by key."""
        return self._driver_state.state(grant.claim.uid, _key(grant))

    def set_state(self, grant: Grant, key: str, record: records.Record | None) -> None:
        """Store a record of a prepared grant durably; None deletes it. Raises ClaimError when the grant is no longer prepared."""
        if not 0 < len(key) <= STATE_KEY_MAX:
            raise ValueError(f"the key of a state has 1 to {STATE_KEY_MAX} characters, not {len(key)}: {key[:STATE_KEY_MAX]!r}")
        self._driver_state.set_state(grant.claim.uid, _key(grant), key, None if record is None else records.freeze_record(record))

    def hold(self, lock_names: Iterable[str], wanted: Callable[[], bool] | None = None) -> contextlib.AbstractContextManager[None]:
        """Hold device locks. Raises RuntimeError inside a verb, which holds device locks already, and LockedError once the wait is over."""
        end = self._clock.monotonic() + context.LOCK_SECONDS
        return self._locks.hold(lock_names, wanted or (lambda: self._clock.monotonic() < end))

    def rediscover(self) -> None:
        """Request a discovery and a publication now."""
        self.sinks.rediscover()

    def taint(self, device: str, taint: devices.Taint, *, after: float = 0.0) -> None:
        """Add this taint to the published device. A taint that equals an existing one is not written and keeps its time."""
        names.check_label(device, "device")
        if not self._debounce.has_lasted((device, taint.key), after):
            return
        if not any(_is_equal(existing, taint) for existing in self._driver_state.taints().get(device, ())):
            self._driver_state.taint(device, taint, since=self._clock.now().replace(microsecond=0))
            _log.info("taint added", device=device, key=taint.key, effect=taint.effect.value)
            self._taints_changed()

    def untaint(self, device: str, key: str) -> None:
        """Remove this key's taints from the published device."""
        self._debounce.clear((device, key))
        if any(existing.key == key for existing in self._driver_state.taints().get(device, ())):
            self._driver_state.untaint(device, key)
            _log.info("taint removed", device=device, key=key)
            self._taints_changed()

    def taints(self) -> Mapping[str, Sequence[devices.Taint]]:
        """Return the taints added in this boot and not removed, by device."""
        return self._driver_state.taints()

    def report_health(self, report: context.HealthReport, *, after: float = 0.0) -> None:
        """Report a device's health to the kubelet; a fault only once it has lasted for ``after`` seconds."""
        if self._debounce.counts(report, after):
            self.sinks.health(report)

    def set_status(self, claim: claims.ClaimRef, status: claim_status.DeviceStatus) -> None:
        """Write the device's status into the claim."""
        self.sinks.status(claim, dataclasses.replace(status, values=records.freeze_record(status.values)))

    def record_event(self, claim: claims.ClaimRef, event: context.Event) -> None:
        """Record an Event of a claim for its users."""
        self.sinks.event(claim, event)

    def _taints_changed(self) -> None:
        self.revision += 1
        self.sinks.rediscover()

    def _is_prepared(self, entry: lifecycle.Entry) -> bool:
        return entry.state is lifecycle.State.PREPARED and entry.boot_id == self.boot_id

    def _grant(self, entry: lifecycle.Entry, stored: lifecycle.GrantEntry) -> Grant:
        return resolution.grant_of(entry.claim, stored, self._author)


def _key(grant: Grant) -> tuple[str, str, str, str]:
    return grant.request, grant.device.node_pool(grant.pool), grant.device.name, grant.share_id or ""


def _is_equal(existing: devices.Taint, wanted: devices.Taint) -> bool:
    same = (existing.key, existing.value, existing.effect) == (wanted.key, wanted.value, wanted.effect)
    return same and wanted.time_added in {None, existing.time_added}
