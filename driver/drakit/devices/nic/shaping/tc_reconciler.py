"""Keeps the kernel as the journal wants it, beside the verbs: what somebody removes or alters is put back, what changed is changed in place.

A look compares each NIC that has shares with the shares of its prepared claims, under the NIC's device lock, so that no verb is half-way. A share
that no claim knows is removed only when no sandbox uses it: after the journal was lost, pods go on with what they have until their claims are known
again. What it reads of all shares and promises it tells to whoever keeps that in memory (``told``).

A NIC on which something had to be put back is Unhealthy until a look finds it whole. A change of the NIC's own figures (its speed, the reserve) is
no damage. Looks are made when the kernel told of a change and then of none for a moment, and at intervals, because our own requests hide what
happens during a look. While changes go on and on, as in a burst of claims, there is a look every few seconds.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping

from drakit.core import context, errors, records
from drakit.core import driver as drivers
from drakit.devices.nic import debounce, port
from drakit.devices.nic import share as shares
from drakit.devices.nic.discovery import attributes, offers

INTERVAL = 10.0
SETTLING = 1.0
SETTLING_MOST = 5.0
_JOIN_SECONDS = 10.0
_log = logging.getLogger(__name__)

Grant = drivers.Grant[object]


class TcReconciler:
    """Looks after the shares of one driver; ``start`` begins, ``stop`` ends the thread that looks."""

    def __init__(
        self,
        machine: port.Port,
        site: context.DriverContext,
        *,
        survey: Callable[[], offers.Survey],
        uplink: Callable[[port.Interface, int], port.Uplink],
        intents: Callable[[], Iterable[records.Record]],
        health: Callable[[context.HealthReport], None] | None = None,
        on_read: Callable[[Iterable[port.Share], Iterable[records.Record]], None] = lambda _installed, _intents: None,
    ) -> None:
        self._machine, self._site = machine, site
        self._health, self._on_read = health or site.health, on_read
        self._survey, self._uplink, self._intents = survey, uplink, intents
        self._uplinks: dict[str, port.Uplink] = {}
        self._damaged: set[str] = set()
        self._watch = machine.watch()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nic-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._watch.wake()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_SECONDS)
        if not self._thread.is_alive():
            self._watch.close()

    def look(self) -> Mapping[str, tuple[str, ...]]:
        """Look at every NIC once; by device name, what was damaged. Raises HardwareError when the NICs cannot be read at all."""
        shares_now = self._machine.shares()
        self._on_read(shares_now, self._intents())
        installed = {share.ifindex for share in shares_now}
        surveyed = self._survey()
        if self._watch.narrow(surveyed.interest):
            surveyed = self._survey()
        offered = {nic.name: nic for nic in surveyed.nics}
        known = {grant.device.name: grant.device for grant in self._site.grants() if not grant.admin_access}
        known |= {name: nic.to_device() for name, nic in offered.items() if name not in known and nic.interface.ifindex in installed}
        damage = {}
        for name, device in sorted(known.items()):
            with self._site.hold(device.lock_names):
                damage[name] = self._keep(name, offered.get(name), self._grants_of(name))
            self._report(name, damage[name])
        return damage

    def _grants_of(self, device: str) -> tuple[Grant, ...]:
        return tuple(grant for grant in self._site.grants() if grant.device.name == device and not grant.admin_access)

    def _keep(self, name: str, nic: offers.Nic | None, grants: Collection[Grant]) -> tuple[str, ...]:
        """Mend one NIC; what was damaged."""
        uplink = self._uplink_of(nic, grants)
        if uplink is None:
            return ()
        known = self._uplinks.get(name)
        self._uplinks[name] = uplink
        try:
            fixed = self._machine.repair(uplink, self._wanted(uplink, grants))
        except errors.HardwareError as error:
            return (str(error),)
        if fixed:
            _log.warning("traffic control reconciled", extra={"device": name, "fixed": list(fixed)})
        return fixed if known == uplink else ()

    def _uplink_of(self, nic: offers.Nic | None, grants: Collection[Grant]) -> port.Uplink | None:
        if nic is not None:
            return self._uplink(nic.interface, nic.speed)
        for grant in grants:
            interface = self._machine.interface(str(grant.device.attributes[attributes.IF_NAME]))
            speed = grant.device.attributes[attributes.SPEED]
            if interface is not None and isinstance(speed, int):
                return self._uplink(interface, speed)
        return None

    def _wanted(self, uplink: port.Uplink, grants: Collection[Grant]) -> tuple[port.Share, ...]:
        """The shares of prepared claims, and of those installed the ones that others than a prepared claim still want."""
        recorded = (shares.from_record(grant.record) for grant in grants)
        wanted = {share.id: uplink.allowed(share) for share in recorded if share is not None and share.ifindex == uplink.ifindex}
        spared = {intent.get("id") for intent in self._intents()} | {member.share_id for member in self._machine.members()}
        for share in self._machine.shares():
            if share.ifindex == uplink.ifindex and share.id in spared:
                wanted.setdefault(share.id, share)
        return tuple(wanted.values())

    def _report(self, name: str, damage: tuple[str, ...]) -> None:
        """Tell the NIC's health where it changed."""
        if damage:
            self._damaged.add(name)
            message = "; ".join(damage)
            self._health(context.HealthReport(device=name, health=context.Health.UNHEALTHY, message=message))
        elif name in self._damaged:
            self._damaged.discard(name)
            self._health(context.HealthReport(device=name, health=context.Health.HEALTHY))

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.look()
            except errors.DrakitError as error:
                _log.warning("checking traffic control failed", extra={"error": str(error)})
            self._watch.drain()
            if self._stopping.is_set():
                return
            self._watch.wait(SETTLING if self._damaged else INTERVAL)
            debounce.settle(self._watch, self._stopping, quiet=SETTLING, most=SETTLING_MOST)
