"""The monitor of a node's interfaces, a background check.

It publishes changes of interfaces, reports a lost link, and updates the claims' statuses. A check that finds other devices than the last one triggers
a new publication. An offered interface without a link is Unhealthy and, if the admin configured it, tainted until the link is back. The monitor logs
a surprising state once: an interface withheld because another program configured its queueing, or one offered without a reserve for the host that
uses it. A check also runs after an attach.
"""

from collections.abc import Callable, Collection, Mapping

import drakit
from drakit_nic import options, reporting
from drakit_nic.discovery import attributes, device_names, offers

LINK_INTERVAL = 30.0
TAINT = "nic.drakit.dev/no-carrier"
SOURCE = "carrier"
_EFFECTS: Mapping[options.CarrierLoss, drakit.TaintEffect] = {
    "taint": drakit.TaintEffect.NO_SCHEDULE,
    "evict": drakit.TaintEffect.NO_EXECUTE,
}
_log = drakit.get_logger(__name__)

Offered = Mapping[str, drakit.Device]
Warned = tuple[str, str, str]
"""An interface, the reason of the warning, and the fix."""


class LinkMonitor:
    """A monitor of the interfaces of one driver."""

    def __init__(
        self,
        context: drakit.DriverContext,
        *,
        survey: Callable[[], offers.Survey],
        carrier_loss: options.CarrierLoss,
        health: reporting.DeviceHealth,
        reporter: reporting.StatusReporter,
    ) -> None:
        self._context, self._survey, self._health, self._reporter = context, survey, health, reporter
        self._effect = _EFFECTS.get(carrier_loss)
        self._offered: Offered | None = None
        self._warned: frozenset[Warned] = frozenset()

    def check(self) -> None:
        """background.Check all interfaces once. Raises DrakitError."""
        surveyed = self._survey()
        self._warn(surveyed)
        offered = {device.name: device for device in surveyed.to_inventory().devices}
        self._warn_withdrawn(surveyed)
        if self._offered is not None and offered != self._offered:
            self._context.rediscover()
        self._offered = offered
        for name, device in offered.items():
            self._report_link(name, has_link=device.attributes.get("carrier") is not False)
        self._report_gone({*offered, *surveyed.withheld_devices()})
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
            _log.warning("interface not offered", interface=name, reason=reason, fix=change)
        for name, reason, change in sorted(cautioned - self._warned):
            _log.warning("interface offered with a caution", interface=name, reason=reason, fix=change)
        self._warned = frozenset(refused | cautioned)

    def _warn_withdrawn(self, surveyed: offers.Survey) -> None:
        """Log each interface that was offered until now, with the reason, because nobody may expect that of a change on the host."""
        former = {device.attributes.get(attributes.IF_NAME) for device in (self._offered or {}).values()}
        for withheld in surveyed.withheld:
            if withheld.name in former and withheld.refusal.expected:
                keys = {"interface": withheld.name, "reason": withheld.reason, "fix": withheld.refusal.change}
                _log.warning("interface no longer offered", **keys)

    def _report_link(self, name: str, *, has_link: bool) -> None:
        message = "" if has_link else f"the interface {self._interface_of(name)} has no link (no carrier)"
        self._health.set(name, SOURCE, message)
        is_tainted = any(taint.key == TAINT for taint in self._context.taints().get(name, ()))
        if has_link and is_tainted:
            self._context.untaint(name, TAINT)
        elif not has_link and not is_tainted and self._effect is not None:
            self._context.taint(name, drakit.Taint(key=TAINT, effect=self._effect))

    def _report_gone(self, present: Collection[str]) -> None:
        """Report the devices of claims whose interfaces were removed from the machine. They are healthy again once they are offered."""
        for device in {grant.device.name: grant.device for grant in self._context.grants()}.values():
            if device.name not in present:
                self._health.set(device.name, SOURCE, device_names.gone(device))

    def _interface_of(self, name: str) -> str:
        return str((self._offered or {})[name].attributes.get(attributes.IF_NAME, ""))
