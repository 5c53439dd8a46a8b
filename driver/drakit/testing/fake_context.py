"""A ``DriverContext`` in memory for tests of one driver class.

It keeps the contract: state lasts while its grant is prepared, a taint replaces one of the same key and effect, a new status replaces the last one,
equal events are recorded once, and ``hold`` excludes other holders of the same names. Taints and state last as long as the object. Pass it to a
second driver object to simulate a restart, and call ``reboot`` to simulate a reboot.
"""

import contextlib
import dataclasses
import pathlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from drakit.core import arguments, claim_status, context, errors, names, records
from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.node import driver_context

Grant = drivers.Grant[object]
GrantKey = tuple[str, str, str, str, str]
_LOCK_POLL_SECONDS = 0.05


def key_of(grant: "drivers.Grant[object]") -> GrantKey:
    """Return the identity of a grant: claim UID, request, pool, device, share id."""
    return (grant.claim.uid, grant.request, grant.pool, grant.device.name, grant.share_id or "")


@arguments.checked_methods
class FakeContext:
    """A ``drakit.DriverContext`` that records the driver's calls, in order: ``reports``, ``statuses`` and ``events``.

    ``rediscoveries`` counts calls of ``rediscover``. ``monotonic`` is the clock for the argument ``after``. Set ``stopping`` to end a ``watch`` that
    waits.
    """

    def __init__(
        self,
        data_dir: pathlib.Path,
        *,
        boot_id: str = "boot-1",
        grants: Iterable[Grant] = (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.data_dir = data_dir
        self.boot_id = boot_id
        self.rediscoveries = 0
        self.reports: list[context.HealthReport] = []
        self.statuses: list[tuple[claims.ClaimRef, claim_status.DeviceStatus]] = []
        self.events: list[tuple[claims.ClaimRef, context.Event]] = []
        self.held: list[frozenset[str]] = []
        self.updated = threading.Condition()
        self.stopping = threading.Event()
        self._debounce = driver_context.Debounce(monotonic)
        self._grants = {key_of(grant): grant for grant in grants}
        self._state: dict[GrantKey, dict[str, records.Record]] = {}
        self._taints: dict[str, dict[tuple[str, devices.TaintEffect], devices.Taint]] = {}
        self._locks: dict[str, threading.Lock] = {}

    def put(self, grant: Grant) -> Grant:
        """Add a prepared grant."""
        with self.updated:
            self._grants[key_of(grant)] = grant
            self.updated.notify_all()
        return grant

    def remove(self, grant: Grant) -> None:
        """Remove the grant and its state, as unprepare does."""
        with self.updated:
            self._grants.pop(key_of(grant), None)
            self._state.pop(key_of(grant), None)
            self.updated.notify_all()

    def reboot(self, boot_id: str) -> None:
        """Set a new boot id and remove all taints, as a reboot does."""
        with self.updated:
            self.boot_id = boot_id
            self._taints.clear()

    def health_of(self, device: str) -> context.HealthReport | None:
        """Return the last health report of a device."""
        return next((report for report in reversed(self.reports) if report.device == device), None)

    def status_of(self, uid: names.ClaimUid, device: str, share_id: names.ShareId | None = None) -> claim_status.DeviceStatus | None:
        """Return the last status of a device in a claim."""
        matching = (status for ref, status in reversed(self.statuses) if ref.uid == uid)
        return next((status for status in matching if (status.device, status.share_id) == (device, share_id)), None)

    def grants(self) -> Sequence[Grant]:
        with self.updated:
            return tuple(self._grants.values())

    def grant(self, uid: names.ClaimUid, device: str, share_id: names.ShareId | None = None) -> Grant | None:
        return next((one for one in self.grants() if (one.claim.uid, one.device.name, one.share_id) == (uid, device, share_id)), None)

    def state(self, grant: Grant) -> Mapping[str, records.Record]:
        with self.updated:
            return dict(self._state.get(key_of(grant), {}))

    def set_state(self, grant: Grant, key: str, record: records.Record | None) -> None:
        with self.updated:
            if key_of(grant) not in self._grants:
                raise errors.ClaimError(errors.ClaimFault.NOT_FOUND, f"claim {grant.claim} is not prepared; it has no state")
            kept = self._state.setdefault(key_of(grant), {})
            kept.pop(key, None)
            if record is not None:
                kept[key] = records.freeze_record(record)

    @contextlib.contextmanager
    def hold(self, lock_names: Iterable[str], wanted: Callable[[], bool] | None = None) -> Iterator[None]:
        ordered, end = sorted(set(lock_names)), time.monotonic() + context.LOCK_SECONDS
        is_wanted = wanted or (lambda: time.monotonic() < end)
        with contextlib.ExitStack() as stack:
            for name in ordered:
                with self.updated:
                    lock = self._locks.setdefault(name, threading.Lock())
                while not lock.acquire(timeout=_LOCK_POLL_SECONDS):
                    if not is_wanted():
                        raise errors.LockedError(f"{name} is locked by another call, which did not release it in time", lock=name)
                stack.callback(lock.release)
            self.held.append(frozenset(ordered))
            yield

    def rediscover(self) -> None:
        with self.updated:
            self.rediscoveries += 1
            self.updated.notify_all()

    def taint(self, device: str, taint: devices.Taint, *, after: float = 0.0) -> None:
        if not self._debounce.has_lasted((device, taint.key), after):
            return
        with self.updated:
            self._taints.setdefault(device, {})[taint.key, taint.effect] = taint
            self.updated.notify_all()

    def untaint(self, device: str, key: str) -> None:
        self._debounce.clear((device, key))
        with self.updated:
            kept = {of: taint for of, taint in self._taints.pop(device, {}).items() if taint.key != key}
            if kept:
                self._taints[device] = kept
            self.updated.notify_all()

    def taints(self) -> Mapping[str, Sequence[devices.Taint]]:
        with self.updated:
            return {device: tuple(kept.values()) for device, kept in self._taints.items()}

    def report_health(self, report: context.HealthReport, *, after: float = 0.0) -> None:
        if not self._debounce.counts(report, after):
            return
        with self.updated:
            self.reports.append(report)
            self.updated.notify_all()

    def set_status(self, claim: claims.ClaimRef, status: claim_status.DeviceStatus) -> None:
        with self.updated:
            self.statuses.append((claim, dataclasses.replace(status, values=records.freeze_record(status.values))))
            self.updated.notify_all()

    def record_event(self, claim: claims.ClaimRef, event: context.Event) -> None:
        with self.updated:
            if (claim, event) not in self.events:
                self.events.append((claim, event))
            self.updated.notify_all()
