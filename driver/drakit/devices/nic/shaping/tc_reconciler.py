"""Reconciles traffic control with the journal: what was removed or changed on a shared NIC is restored, and what no claim uses is removed.

A check compares each NIC that has shares with the shares of its prepared claims, under the NIC's device lock, so that no verb is half done. A share
without a known claim is removed only when no sandbox uses it: while the journal is incomplete, pods keep what they have.

A NIC on which something had to be restored is Unhealthy until a check finds nothing to restore. A change of the NIC's own figures (its speed, the
reserve) is no damage. Checks also run at intervals, because the driver's own requests hide what happens during a check.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from drakit.core import context as contexts
from drakit.core import driver as drivers
from drakit.core import errors, records
from drakit.devices.nic import background, port
from drakit.devices.nic import share as shares
from drakit.devices.nic.discovery import attributes, offers

INTERVAL = 10.0
QUIET_SECONDS = 1.0
BURST_SECONDS = 5.0
_log = logging.getLogger(__name__)

Grant = drivers.Grant[object]


class TcReconciler:
    """Reconciles the shares of one driver; ``start`` and ``stop`` its thread. Each check passes the shares and intents it read to ``on_read``."""

    def __init__(
        self,
        machine: port.Port,
        context: contexts.DriverContext,
        *,
        survey: Callable[[], offers.Survey],
        uplink: Callable[[port.Interface, int], port.Uplink],
        intents: Callable[[], Iterable[records.Record]],
        health: Callable[[contexts.HealthReport], None] | None = None,
        on_read: Callable[[Iterable[port.Share], Iterable[records.Record]], None] = lambda _installed, _intents: None,
    ) -> None:
        self._machine, self._context = machine, context
        self._health, self._on_read = health or context.report_health, on_read
        self._survey, self._uplink, self._intents = survey, uplink, intents
        self._uplinks: dict[str, port.Uplink] = {}
        self._damaged: set[str] = set()
        self._watch = machine.watch()
        self._loop = background.CheckLoop(
            "nic-tc-reconciler",
            self._check,
            self._watch,
            interval=lambda: QUIET_SECONDS if self._damaged else INTERVAL,
            quiet=QUIET_SECONDS,
            most=BURST_SECONDS,
        )

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        self._loop.stop()

    def reconcile(self) -> Mapping[str, tuple[str, ...]]:
        """Check every NIC once; return by device name what was restored. Raises HardwareError where the NICs cannot be read."""
        shares_now = self._machine.shares()
        self._on_read(shares_now, self._intents())
        installed = {share.ifindex for share in shares_now}
        surveyed = self._survey()
        if self._watch.narrow(surveyed.interest):
            surveyed = self._survey()
        offered = {nic.name: nic for nic in surveyed.nics}
        known = {grant.device.name: grant.device for grant in self._context.grants() if not grant.admin_access}
        known |= {name: nic.to_device() for name, nic in offered.items() if name not in known and nic.interface.ifindex in installed}
        damage = {}
        for name, device in sorted(known.items()):
            with self._context.hold(device.lock_names):
                damage[name] = self._reconcile_nic(name, offered.get(name), self._grants_of(name))
            self._report(name, damage[name])
        return damage

    def _grants_of(self, device: str) -> tuple[Grant, ...]:
        return tuple(grant for grant in self._context.grants() if grant.device.name == device and not grant.admin_access)

    def _reconcile_nic(self, name: str, nic: offers.Nic | None, grants: Collection[Grant]) -> tuple[str, ...]:
        """Reconcile one NIC; return what was restored, or the error."""
        uplink = self._uplink_of(nic, grants)
        if uplink is None:
            return ()
        former = self._uplinks.get(name)
        self._uplinks[name] = uplink
        try:
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
            interface = self._machine.interface(str(grant.device.attributes[attributes.IF_NAME]))
            speed = grant.device.attributes[attributes.SPEED]
            if interface is not None and isinstance(speed, int):
                return self._uplink(interface, speed)
        return None

    def _wanted_shares(self, uplink: port.Uplink, grants: Collection[Grant]) -> tuple[port.Share, ...]:
        """Return the shares of prepared claims, and of the other installed ones those that an intent names or a sandbox uses."""
        recorded = (shares.from_record(grant.record) for grant in grants)
        wanted = {share.id: uplink.allowed(share) for share in recorded if share is not None and share.ifindex == uplink.ifindex}
        in_use = {intent.get("id") for intent in self._intents()} | {member.share_id for member in self._machine.members()}
        for share in self._machine.shares():
            if share.ifindex == uplink.ifindex and share.id in in_use:
                wanted.setdefault(share.id, share)
        return tuple(wanted.values())

    def _report(self, name: str, damage: tuple[str, ...]) -> None:
        """Report the NIC's health where it changed."""
        if damage:
            self._damaged.add(name)
            message = "; ".join(damage)
            self._health(contexts.HealthReport(device=name, health=contexts.Health.UNHEALTHY, message=message))
        elif name in self._damaged:
            self._damaged.discard(name)
            self._health(contexts.HealthReport(device=name, health=contexts.Health.HEALTHY))

    def _check(self) -> None:
        try:
            self.reconcile()
        except errors.DrakitError as error:
            _log.warning("checking traffic control failed", extra={"error": str(error)})
        self._watch.drain()  # The events of this check's own requests.
