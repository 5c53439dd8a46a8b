"""The reconciler of traffic control with the journal, a background check.

It restores removed or changed parts of a shared NIC, and removes parts that no claim uses. A check compares each NIC that has shares with the shares
of its prepared claims, under the NIC's device lock, so that no other operation is half done. A NIC whose lock another call holds is skipped, so that
it delays no other. A share without a known claim is removed only when no sandbox uses it, so that pods keep their shares while the journal is
incomplete.

A NIC on which a check restored something is Unhealthy until a check has nothing to restore. A change of the NIC's speed or reserve is no damage.
Checks also run at intervals, because the driver drops the events of its own repairs, and with them those of other programs that come meanwhile.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

import drakit
from drakit_nic import device_locks, port, reporting
from drakit_nic import share as shares
from drakit_nic.discovery import attributes, offers

_log = drakit.get_logger(__name__)

TC_INTERVAL = 10.0
TC_SOURCE = "queueing"
TC_DAMAGED_INTERVAL = 1.0

Grant = drakit.Grant[object]


class TcReconciler:
    """A reconciler of the shares of one driver. Each check passes the shares and intents that it read to ``on_read``."""

    def __init__(
        self,
        machine: port.Port,
        context: drakit.DriverContext,
        *,
        survey: Callable[[], offers.Survey],
        uplink: Callable[[port.Interface, int], port.Uplink],
        intents: Callable[[], Iterable[drakit.Record]],
        health: reporting.DeviceHealth,
        on_read: Callable[[Iterable[port.Share], Iterable[drakit.Record]], None] = lambda _installed, _intents: None,
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

        Raises HardwareError where the NICs cannot be read.
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
        except drakit.HardwareError as error:
            return (str(error),)
        if fixed:
            _log.warning("traffic control reconciled", device=name, fixed=list(fixed))
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
        """Return the shares of prepared claims, and the other installed shares that an intent names or a sandbox uses."""
        recorded = (shares.from_record(grant.record) for grant in grants)
        wanted = {share.id: uplink.allowed(share) for share in recorded if share is not None and share.ifindex == uplink.ifindex}
        in_use = {intent.get("id") for intent in self._intents()} | {member.share_id for member in self._machine.members()}
        for share in self._machine.shares():
            if share.ifindex == uplink.ifindex and share.id in in_use:
                wanted.setdefault(share.id, share)
        return tuple(wanted.values())
