"""The driver's background checks, which ``NicDriver.watch`` runs: the link monitor and the reconciler of traffic control.

They run at intervals, and after events of the kernel, once no event has come for a moment.

A hundred shares prepared one after the other cause hundreds of events, nearly all by the driver itself. A check after each event would hold the locks
that the next share waits for. So a burst of events causes a limited number of checks.

``LinkMonitor`` publishes changes of interfaces, reports a lost link, and updates the claims' statuses. A check that finds other devices than the last
one triggers a new publication. An offered interface without a link is Unhealthy and, if the admin configured it, tainted until the link is back. The
monitor logs a surprising state once: an interface withheld because another program configured its queueing, or one offered without a reserve for the
host that uses it. A check also runs after an attach.

``TcReconciler`` reconciles traffic control with the journal: it restores removed or changed parts of a shared NIC, and removes parts that no claim
uses. A check compares each NIC that has shares with the shares of its prepared claims, under the NIC's device lock, so that no other operation is
half done. A NIC whose lock another call holds is skipped, so that it delays no other. A share without a known claim is removed only when no sandbox
uses it, so that pods keep their shares while the journal is incomplete.

A NIC on which a check restored something is Unhealthy until a check has nothing to restore. A change of the NIC's speed or reserve is no damage.
Checks also run at intervals, because the driver drops the events of its own repairs, and with them those of other programs that come meanwhile.
"""

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from drakit.core import context as contexts
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.core import errors, records
from drakit_nic import device_locks, port, reporting, settings
from drakit_nic import share as shares
from drakit_nic.discovery import offers

QUIET_SECONDS = 0.5
BURST_SECONDS = 5.0
STOP_SECONDS = 0.5
"""The longest time that a wait for events delays the driver's stop."""


def wait_until_quiet(
    events: port.Watch, stopping: contexts.StopSignal, *, quiet: float, most: float, monotonic: Callable[[], float] = time.monotonic
) -> None:
    """Drain events until none came for ``quiet`` seconds, for about ``most`` seconds at most, or until stopped."""
    until = monotonic() + most
    while True:
        events.drain()
        if stopping.wait(quiet) or not events.wait(0) or monotonic() >= until:
            return


@dataclasses.dataclass
class Check:
    """A check that is due at once, then every ``interval()`` seconds and, with ``on_events``, after events."""

    run: Callable[[], object]
    interval: Callable[[], float]
    on_events: bool = True
    due: float = float("-inf")

    def bring_forward(self) -> None:
        """Make the check due now."""
        self.due = float("-inf")


class Checks:
    """Runs the checks of one driver in order. One thread calls ``watch``; any thread may call ``wake``."""

    def __init__(self, events: port.Watch, checks: Sequence[Check], *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._events, self._checks, self._monotonic = events, checks, monotonic

    def watch(self, stopping: contexts.StopSignal) -> None:
        """Run all due checks, then wait until one is due, an event comes, or the driver stops. Raise a check's error after all have run."""
        with contextlib.ExitStack() as due:
            for check in reversed(self._checks):
                due.callback(self._run, check)
        self._wait(stopping)

    def wake(self) -> None:
        """Run the checks as after an event."""
        self._events.wake()

    def close(self) -> None:
        """Close the events. No thread may be in ``watch``."""
        self._events.close()

    def _run(self, check: Check) -> None:
        if self._monotonic() >= check.due:
            check.run()
            check.due = self._monotonic() + check.interval()

    def _wait(self, stopping: contexts.StopSignal) -> None:
        due = min(check.due for check in self._checks)
        while not self._events.wait(min(max(due - self._monotonic(), 0.0), STOP_SECONDS)):
            if stopping.is_set() or self._monotonic() >= due:
                return
        wait_until_quiet(self._events, stopping, quiet=QUIET_SECONDS, most=BURST_SECONDS, monotonic=self._monotonic)
        for check in self._checks:
            if check.on_events:
                check.bring_forward()


def survey_and_narrow(survey: Callable[[], offers.Survey], events: port.Watch) -> offers.Survey:
    """Return the result of ``survey``, and receive only events that can change it. Survey again after missed events. Raise HardwareError."""
    surveyed = survey()
    return survey() if events.narrow(surveyed.interest) else surveyed


LINK_INTERVAL = 30.0
TAINT = "nic.drakit.dev/no-carrier"
SOURCE = "carrier"
_EFFECTS: Mapping[settings.CarrierLoss, devices.TaintEffect] = {
    settings.CarrierLoss.TAINT: devices.TaintEffect.NO_SCHEDULE,
    settings.CarrierLoss.EVICT: devices.TaintEffect.NO_EXECUTE,
}
_log = logging.getLogger(__name__)

Offered = Mapping[str, devices.Device]
Warned = tuple[str, str, str]
"""An interface, the reason of the warning, and the fix."""


class LinkMonitor:
    """A monitor of the interfaces of one driver."""

    def __init__(
        self,
        context: contexts.DriverContext,
        *,
        survey: Callable[[], offers.Survey],
        carrier_loss: settings.CarrierLoss,
        health: reporting.DeviceHealth,
        reporter: reporting.StatusReporter,
    ) -> None:
        self._context, self._survey, self._health, self._reporter = context, survey, health, reporter
        self._effect = _EFFECTS.get(carrier_loss)
        self._offered: Offered | None = None
        self._warned: frozenset[Warned] = frozenset()

    def check(self) -> None:
        """Check all interfaces once. Raise DrakitError."""
        surveyed = self._survey()
        self._warn(surveyed)
        offered = {device.name: device for device in surveyed.to_inventory().devices}
        self._warn_withdrawn(surveyed)
        if self._offered is not None and offered != self._offered:
            self._context.rediscover()
        self._offered = offered
        for name, device in offered.items():
            self._report_link(name, has_link=device.attributes.get("carrier") is not False)
        self._reporter.report()

    def _warn(self, surveyed: offers.Survey) -> None:
        """Log each surprising state when it begins."""
        refused = {
            (withheld.name, withheld.refusal.reason, withheld.refusal.change)
            for withheld in surveyed.withheld
            if not withheld.refusal.expected
        }
        cautioned = {(nic.interface.name, nic.caution.reason, nic.caution.change) for nic in surveyed.nics if nic.caution}
        for name, reason, change in sorted(refused - self._warned):
            _log.warning("interface not offered", extra={"interface": name, "reason": reason, "fix": change})
        for name, reason, change in sorted(cautioned - self._warned):
            _log.warning("interface offered with a caution", extra={"interface": name, "reason": reason, "fix": change})
        self._warned = frozenset(refused | cautioned)

    def _warn_withdrawn(self, surveyed: offers.Survey) -> None:
        """Log each interface that was offered until now, with the reason, because nobody may expect that of a change on the host."""
        former = {device.attributes.get(offers.IF_NAME) for device in (self._offered or {}).values()}
        for withheld in surveyed.withheld:
            if withheld.name in former and withheld.refusal.expected:
                keys = {"interface": withheld.name, "reason": withheld.reason, "fix": withheld.refusal.change}
                _log.warning("interface no longer offered", extra=keys)

    def _report_link(self, name: str, *, has_link: bool) -> None:
        message = "" if has_link else f"the interface {self._interface_of(name)} has no link (no carrier)"
        self._health.set(name, SOURCE, message)
        is_tainted = any(taint.key == TAINT for taint in self._context.taints().get(name, ()))
        if has_link and is_tainted:
            self._context.untaint(name, TAINT)
        elif not has_link and not is_tainted and self._effect is not None:
            self._context.taint(name, devices.Taint(key=TAINT, effect=self._effect))

    def _interface_of(self, name: str) -> str:
        return str((self._offered or {})[name].attributes.get(offers.IF_NAME, ""))


TC_INTERVAL = 10.0
TC_SOURCE = "queueing"
TC_DAMAGED_INTERVAL = 1.0

Grant = drivers.Grant[object]


class TcReconciler:
    """A reconciler of the shares of one driver. Each check passes the shares and intents that it read to ``on_read``."""

    def __init__(
        self,
        machine: port.Port,
        context: contexts.DriverContext,
        *,
        survey: Callable[[], offers.Survey],
        uplink: Callable[[port.Interface, int], port.Uplink],
        intents: Callable[[], Iterable[records.Record]],
        health: reporting.DeviceHealth,
        on_read: Callable[[Iterable[port.Share], Iterable[records.Record]], None] = lambda _installed, _intents: None,
    ) -> None:
        self._machine, self._context = machine, context
        self._health, self._on_read = health, on_read
        self._survey, self._uplink, self._intents = survey, uplink, intents
        self._uplinks: dict[str, port.Uplink] = {}
        self._damaged: set[str] = set()
        self._locks = device_locks.RoundLocks(context, "traffic control")

    def interval(self) -> float:
        """Return the seconds until the next check, fewer while a NIC is damaged or was skipped."""
        return TC_DAMAGED_INTERVAL if self._damaged or self._locks.has_skipped else TC_INTERVAL

    def reconcile(self) -> Mapping[str, tuple[str, ...]]:
        """Reconcile every NIC once, and return what was restored by device name, without NICs whose lock is held elsewhere.

        Raise HardwareError where the NICs cannot be read.
        """
        installed_shares = self._machine.shares()
        self._on_read(installed_shares, self._intents())
        shared_nics = {share.ifindex for share in installed_shares}
        surveyed = self._survey()
        offered = {nic.name: nic for nic in surveyed.nics}
        by_name = {grant.device.name: grant.device for grant in self._context.grants() if not grant.admin_access}
        by_name |= {name: nic.to_device() for name, nic in offered.items() if name not in by_name and nic.interface.ifindex in shared_nics}
        damage = {}
        is_last = self._locks.begin(by_name)
        for name in sorted(by_name, key=lambda name: (is_last(name), name)):
            with self._locks.hold(by_name[name]) as is_held:
                if not is_held:
                    continue
                damage[name] = self._reconcile_nic(name, offered.get(name), self._grants_of(name))
            (self._damaged.add if damage[name] else self._damaged.discard)(name)
            self._health.set(name, TC_SOURCE, "; ".join(damage[name]))
        return damage

    def _grants_of(self, device: str) -> tuple[Grant, ...]:
        return tuple(grant for grant in self._context.grants() if grant.device.name == device and not grant.admin_access)

    def _reconcile_nic(self, name: str, nic: offers.Nic | None, grants: Collection[Grant]) -> tuple[str, ...]:
        """Reconcile one NIC, and return what was restored, or the error."""
        try:
            uplink = self._uplink_of(nic, grants)
            if uplink is None:
                return ()
            former = self._uplinks.get(name)
            self._uplinks[name] = uplink
            fixed = self._machine.repair(uplink, self._wanted_shares(uplink, grants))
        except errors.HardwareError as error:
            return (str(error),)
        if fixed:
            _log.warning("traffic control reconciled", extra={"device": name, "fixed": list(fixed)})
        return fixed if former == uplink else ()

    def _uplink_of(self, nic: offers.Nic | None, grants: Collection[Grant]) -> port.Uplink | None:
        if nic is not None:
            return self._uplink(nic.interface, nic.speed)
        for grant in grants:
            interface = self._machine.interface(str(grant.device.attributes[offers.IF_NAME]))
            speed = grant.device.attributes[offers.SPEED]
            if interface is not None and isinstance(speed, int):
                return self._uplink(interface, speed)
        return None

    def _wanted_shares(self, uplink: port.Uplink, grants: Collection[Grant]) -> tuple[port.Share, ...]:
        """Return the shares of prepared claims, and the other installed shares that an intent names or a sandbox uses."""
        recorded = (shares.from_record(grant.record) for grant in grants)
        wanted = {share.id: uplink.allowed(share) for share in recorded if share is not None and share.ifindex == uplink.ifindex}
        in_use = {intent.get("id") for intent in self._intents()} | {member.share_id for member in self._machine.members()}
        for share in self._machine.shares():
            if share.ifindex == uplink.ifindex and share.id in in_use:
                wanted.setdefault(share.id, share)
        return tuple(wanted.values())
