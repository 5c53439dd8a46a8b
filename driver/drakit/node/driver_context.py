"""``core.context.DriverContext`` on one node: memory in the journal, locks of the engine, and sinks for what has to travel.

A serving node gives sinks of its own; without them, as in one-off commands, what would travel is logged.
"""

import contextlib
import dataclasses
import pathlib
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from drakit.core import claim as claims
from drakit.core import claim_status, context, errors, lifecycle, names, ports, records
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.node import inventory_cache, resolution
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

NOTE_KEY_MAX = 63

Grant = drivers.Grant[object]


def _log_health(report: context.HealthReport) -> None:
    _log.info("health", device=report.device, health=report.health.value, message=report.message)


def _log_status(claim: claims.ClaimRef, status: claim_status.DeviceStatus) -> None:
    conditions = {one.type: one.status for one in status.conditions}
    _log.info("status", claim=str(claim), claim_uid=claim.uid, device=status.device, conditions=conditions)


def _log_event(claim: claims.ClaimRef, event: context.Event) -> None:
    _log.info("event", claim=str(claim), claim_uid=claim.uid, reason=event.reason, message=event.message)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportSinks:
    """Who carries what a driver says to where it belongs; each returns at once. ``rediscover`` is called when discovery is due."""

    rediscover: Callable[[], None] = lambda: None
    health: Callable[[context.HealthReport], None] = _log_health
    status: Callable[[claims.ClaimRef, claim_status.DeviceStatus], None] = _log_status
    event: Callable[[claims.ClaimRef, context.Event], None] = _log_event


class Debounce:
    """Lets a fault count once it has lasted, so that a device that flickers evicts nobody. ``monotonic`` gives seconds. Threads may share it."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._since: dict[Hashable, float] = {}

    def has_lasted(self, fault: Hashable, seconds: float) -> bool:
        """Return whether a fault, reported now, was first reported ``seconds`` ago or earlier and not cleared since."""
        now = self._monotonic()
        return now - self._since.setdefault(fault, now) >= seconds

    def counts(self, report: context.HealthReport, seconds: float) -> bool:
        """Return whether a health report counts now: a healthy one at once, and it clears the device; any other once it has lasted."""
        if report.health is context.Health.HEALTHY:
            self.clear(report.device)
            return True
        return self.has_lasted(report.device, seconds)

    def clear(self, fault: Hashable) -> None:
        """Forget a fault that is over; one that was never reported is fine."""
        self._since.pop(fault, None)


class NodeDriverContext:
    """``core.context.DriverContext``; its calls raise JournalError where memory cannot be read or written. ``revision`` counts changes of taints."""

    def __init__(
        self,
        author: inventory_cache.Author,
        *,
        data_dir: pathlib.Path,
        boot_id: str,
        journal: ports.Journal,
        notebook: ports.Notebook,
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
        self._notebook = notebook
        self._locks = device_locks
        self._clock = clock

    def grants(self) -> Sequence[Grant]:
        """Every grant that is prepared in this boot, oldest claim first."""
        return [self._grant(entry, kept) for entry in self._journal.entries() if self._is_prepared(entry) for kept in entry.grants]

    def grant(self, uid: names.ClaimUid, device: str, share_id: names.ShareId | None = None) -> Grant | None:
        """The prepared grant of this claim, device and share; the first, where admin access holds one device twice."""
        entry = self._journal.entry(uid)
        if entry is None or not self._is_prepared(entry):
            return None
        found = (kept for kept in entry.grants if (kept.device.name, kept.share_id) == (device, share_id))
        return next((self._grant(entry, kept) for kept in found), None)

    def state(self, grant: Grant) -> Mapping[str, records.Record]:
        """What was noted of this grant, by key."""
        return self._notebook.notes(grant.claim.uid, _key(grant))

    def set_state(self, grant: Grant, key: str, record: records.Record | None) -> None:
        """Remember something of a prepared grant durably, None to forget it. Raises ClaimError when the grant is no longer prepared."""
        if not 0 < len(key) <= NOTE_KEY_MAX:
            raise errors.ConfigError(f"{key!r} must have 1 to {NOTE_KEY_MAX} characters", field="note.key")
        self._notebook.note(grant.claim.uid, _key(grant), key, None if record is None else records.freeze_record(record))

    def hold(self, lock_names: Iterable[str]) -> contextlib.AbstractContextManager[None]:
        """Hold device locks; RuntimeError from within a verb, which holds some already."""
        return self._locks.hold(lock_names)

    def rediscover(self) -> None:
        """Discover and publish again soon."""
        self.sinks.rediscover()

    def taint(self, device: str, taint: devices.Taint, *, after: float = 0.0) -> None:
        """Publish the device with this taint too. One that says what a standing one says costs no write and keeps its time."""
        names.check_label(device, "device")
        if not self._debounce.has_lasted((device, taint.key), after):
            return
        if not any(_says_the_same(one, taint) for one in self._notebook.taints().get(device, ())):
            self._notebook.taint(device, taint, since=self._clock.now().replace(microsecond=0))
            _log.info("taint put", device=device, key=taint.key, effect=taint.effect.value)
            self._tainted_otherwise()

    def untaint(self, device: str, key: str) -> None:
        """Publish the device without this key's taints again."""
        self._debounce.clear((device, key))
        if any(one.key == key for one in self._notebook.taints().get(device, ())):
            self._notebook.untaint(device, key)
            _log.info("taint removed", device=device, key=key)
            self._tainted_otherwise()

    def taints(self) -> Mapping[str, Sequence[devices.Taint]]:
        """The taints put in this boot and not removed, by device."""
        return self._notebook.taints()

    def report_health(self, report: context.HealthReport, *, after: float = 0.0) -> None:
        """Report a device's health to the kubelet."""
        if not self._debounce.counts(report, after):
            return
        self.sinks.health(report)

    def set_status(self, claim: claims.ClaimRef, status: claim_status.DeviceStatus) -> None:
        """Write the device's status into the claim."""
        self.sinks.status(claim, dataclasses.replace(status, values=records.freeze_record(status.values)))

    def record_event(self, claim: claims.ClaimRef, event: context.Event) -> None:
        """Tell the users of a claim something by an Event."""
        self.sinks.event(claim, event)

    def _tainted_otherwise(self) -> None:
        self.revision += 1
        self.sinks.rediscover()

    def _is_prepared(self, entry: lifecycle.Entry) -> bool:
        return entry.state is lifecycle.State.PREPARED and entry.boot_id == self.boot_id

    def _grant(self, entry: lifecycle.Entry, kept: lifecycle.GrantEntry) -> Grant:
        return resolution.from_entry(entry.claim, kept, self._author)


def _key(grant: Grant) -> tuple[str, str, str, str]:
    return resolution.to_entry(grant).key


def _says_the_same(standing: devices.Taint, wanted: devices.Taint) -> bool:
    same = (standing.key, standing.value, standing.effect) == (wanted.key, wanted.value, wanted.effect)
    return same and wanted.time_added in {None, standing.time_added}
