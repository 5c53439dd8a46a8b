"""Monitors the machine's interfaces: changes are published, a lost link is reported, and the claims' statuses are updated.

A check that finds other devices than the last one asks for a new publication. An offered interface without a link is Unhealthy and, if the admin
configured it, tainted until the link is back. What an admin may not expect is logged once: an interface withheld because another program configured
its queueing, or one offered without a reserve for the host that uses it. A check runs after events, after an attach, and at intervals.
"""

import logging
from collections.abc import Callable, Mapping

from drakit.core import context as contexts
from drakit.core import device as devices
from drakit.core import errors
from drakit.devices.nic import background, port, reporting, settings
from drakit.devices.nic.discovery import attributes, offers

INTERVAL = 30.0
QUIET_SECONDS = 0.5
BURST_SECONDS = 5.0
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
    """Monitors the interfaces of one driver; ``start`` and ``stop`` its thread, ``wake`` runs a check now."""

    def __init__(
        self,
        machine: port.Port,
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
        self._watch = machine.watch()
        self._loop = background.CheckLoop(
            "nic-link-monitor", self._check, self._watch, interval=lambda: INTERVAL, quiet=QUIET_SECONDS, most=BURST_SECONDS
        )

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        self._loop.stop()

    def wake(self) -> None:
        """Run a check now; from any thread."""
        self._watch.wake()

    def check(self) -> None:
        """Check all interfaces once. Raises DrakitError."""
        surveyed = self._survey()
        if self._watch.narrow(surveyed.interest):
            surveyed = self._survey()
        self._warn(surveyed)
        offered = {item.name: item for item in surveyed.to_inventory().devices}
        if self._offered is not None and offered != self._offered:
            self._context.rediscover()
        self._offered = offered
        for name, item in offered.items():
            self._report_link(name, has_link=item.attributes.get("carrier") is not False)
        self._reporter.report()

    def _warn(self, surveyed: offers.Survey) -> None:
        """Log what an admin may not expect, once each time it begins."""
        refused = {(item.name, item.refusal.reason, item.refusal.change) for item in surveyed.withheld if not item.refusal.expected}
        cautioned = {(nic.interface.name, nic.caution.reason, nic.caution.change) for nic in surveyed.nics if nic.caution}
        for name, reason, change in sorted(refused - self._warned):
            _log.warning("interface not offered", extra={"interface": name, "reason": reason, "fix": change})
        for name, reason, change in sorted(cautioned - self._warned):
            _log.warning("interface offered with a caution", extra={"interface": name, "reason": reason, "fix": change})
        self._warned = frozenset(refused | cautioned)

    def _report_link(self, name: str, *, has_link: bool) -> None:
        message = "" if has_link else f"the interface {self._interface_of(name)} has no link (no carrier)"
        self._health.set(name, SOURCE, message)
        tainted = any(taint.key == TAINT for taint in self._context.taints().get(name, ()))
        if has_link and tainted:
            self._context.untaint(name, TAINT)
        elif not has_link and not tainted and self._effect is not None:
            self._context.taint(name, devices.Taint(key=TAINT, effect=self._effect))

    def _interface_of(self, name: str) -> str:
        return str((self._offered or {})[name].attributes.get(attributes.IF_NAME, ""))

    def _check(self) -> None:
        try:
            self.check()
        except errors.DrakitError as error:
            _log.warning("listing interfaces failed", extra={"error": str(error), "retry_in_s": INTERVAL})
