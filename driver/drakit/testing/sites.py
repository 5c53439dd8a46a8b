"""A ``DriverContext`` in memory: what a driver is told goes in by ``put`` and ``remove``, what it tells is kept to be looked at.

It keeps the contract: notes live as long as their grant is prepared, a taint of the same key and effect is replaced, the last status of a device
stands, equal notices are told once, and ``hold`` excludes the holders of equal names. Taints and notes live as long as the object: pass one to a
second driver object to play a restart, and call ``reboot`` to play a reboot.
"""

import contextlib
import dataclasses
import pathlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence

from drakit.core import claim as claims
from drakit.core import claim_status, context, errors, names, records
from drakit.core import device as devices
from drakit.core import driver as drivers

Grant = drivers.Grant[object]
GrantKey = tuple[str, str, str, str, str]


def key_of(grant: "drivers.Grant[object]") -> GrantKey:
    """Identity of a grant: claim UID, request, pool, device, share id."""
    return (grant.claim.uid, grant.request, grant.pool, grant.device.name, grant.share_id or "")


class FakeSite:
    """``changes`` counts calls of ``changed``; ``reports``, ``statuses`` and ``notices`` are what was told, in order."""

    def __init__(self, home: pathlib.Path, *, boot_id: str = "boot-1", grants: Iterable[Grant] = ()) -> None:
        self.home = home
        self.boot_id = boot_id
        self.changes = 0
        self.reports: list[context.HealthReport] = []
        self.statuses: list[tuple[claims.ClaimRef, claim_status.DeviceStatus]] = []
        self.notices: list[tuple[claims.ClaimRef, context.Event]] = []
        self.held: list[frozenset[str]] = []
        self.told = threading.Condition()
        self._grants = {key_of(grant): grant for grant in grants}
        self._notes: dict[GrantKey, dict[str, records.Record]] = {}
        self._taints: dict[str, dict[tuple[str, devices.TaintEffect], devices.Taint]] = {}
        self._locks: dict[str, threading.Lock] = {}

    def put(self, grant: Grant) -> Grant:
        """The grant is prepared now."""
        with self.told:
            self._grants[key_of(grant)] = grant
            self.told.notify_all()
        return grant

    def remove(self, grant: Grant) -> None:
        """The grant is prepared no more; its notes go with it."""
        with self.told:
            self._grants.pop(key_of(grant), None)
            self._notes.pop(key_of(grant), None)
            self.told.notify_all()

    def reboot(self, boot_id: str) -> None:
        """The node starts anew: taints are forgotten."""
        with self.told:
            self.boot_id = boot_id
            self._taints.clear()

    def health_of(self, device: str) -> context.HealthReport | None:
        """What was last said of a device."""
        return next((report for report in reversed(self.reports) if report.device == device), None)

    def status_of(self, uid: names.ClaimUid, device: str, share_id: names.ShareId | None = None) -> claim_status.DeviceStatus | None:
        """What stands in the claim's status for a device."""
        told = (status for ref, status in reversed(self.statuses) if ref.uid == uid)
        return next((status for status in told if (status.device, status.share_id) == (device, share_id)), None)

    def grants(self) -> Sequence[Grant]:
        with self.told:
            return tuple(self._grants.values())

    def grant(self, uid: names.ClaimUid, device: str, share_id: names.ShareId | None = None) -> Grant | None:
        return next((one for one in self.grants() if (one.claim.uid, one.device.name, one.share_id) == (uid, device, share_id)), None)

    def notes(self, grant: Grant) -> Mapping[str, records.Record]:
        with self.told:
            return dict(self._notes.get(key_of(grant), {}))

    def note(self, grant: Grant, key: str, record: records.Record | None) -> None:
        with self.told:
            if key_of(grant) not in self._grants:
                raise errors.ClaimError(errors.ClaimFault.NOT_FOUND, f"claim {grant.claim} is not prepared; nothing can be noted of it")
            kept = self._notes.setdefault(key_of(grant), {})
            kept.pop(key, None)
            if record is not None:
                kept[key] = records.freeze_record(record)

    @contextlib.contextmanager
    def hold(self, lock_names: Iterable[str]) -> Iterator[None]:
        wanted = sorted(set(lock_names))
        with contextlib.ExitStack() as stack:
            for name in wanted:
                with self.told:
                    lock = self._locks.setdefault(name, threading.Lock())
                stack.enter_context(lock)
            self.held.append(frozenset(wanted))
            yield

    def changed(self) -> None:
        with self.told:
            self.changes += 1
            self.told.notify_all()

    def taint(self, device: str, taint: devices.Taint) -> None:
        with self.told:
            self._taints.setdefault(device, {})[taint.key, taint.effect] = taint
            self.told.notify_all()

    def untaint(self, device: str, key: str) -> None:
        with self.told:
            kept = {of: taint for of, taint in self._taints.pop(device, {}).items() if taint.key != key}
            if kept:
                self._taints[device] = kept
            self.told.notify_all()

    def taints(self) -> Mapping[str, Sequence[devices.Taint]]:
        with self.told:
            return {device: tuple(kept.values()) for device, kept in self._taints.items()}

    def health(self, report: context.HealthReport) -> None:
        with self.told:
            self.reports.append(report)
            self.told.notify_all()

    def status(self, claim: claims.ClaimRef, status: claim_status.DeviceStatus) -> None:
        with self.told:
            self.statuses.append((claim, dataclasses.replace(status, values=records.freeze_record(status.values))))
            self.told.notify_all()

    def notice(self, claim: claims.ClaimRef, notice: context.Event) -> None:
        with self.told:
            if (claim, notice) not in self.notices:
                self.notices.append((claim, notice))
            self.told.notify_all()
