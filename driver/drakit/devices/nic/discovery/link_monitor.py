"""Watches the machine's interfaces beside the verbs: what changes is published again, a link that is lost is told, and claims are told how they are.

Looks are made when the kernel told of a change or a sandbox was attached, and then nothing for a moment; every few seconds while changes go on;
and at intervals. A look that finds other devices than the last one asks for a new publication. An offered interface without a link is Unhealthy and,
if the admin wants it, tainted, until the link is back. What an admin may not expect is logged once: an interface that somebody else's queueing
withholds, one that is offered without a reserve for the host that uses it.
"""

import logging
import threading
from collections.abc import Callable, Mapping

from drakit.core import context, errors
from drakit.core import device as devices
from drakit.devices.nic import debounce, port, reporting, settings
from drakit.devices.nic.discovery import attributes, offers

INTERVAL = 30.0
SETTLING = 0.5
SETTLING_MOST = 5.0
TAINT = "nic.drakit.dev/no-carrier"
SOURCE = "carrier"
_JOIN_SECONDS = 10.0
_EFFECTS: Mapping[settings.CarrierLoss, devices.TaintEffect] = {
    settings.CarrierLoss.TAINT: devices.TaintEffect.NO_SCHEDULE,
    settings.CarrierLoss.EVICT: devices.TaintEffect.NO_EXECUTE,
}
_log = logging.getLogger(__name__)

Offered = Mapping[str, devices.Device]
Warned = tuple[str, str, str]
"""An interface, what is the matter with it, and what would change it."""


class LinkMonitor:
    """Looks out for one driver; ``start`` begins, ``stop`` ends the thread that looks, ``wake`` asks for a look now."""

    def __init__(
        self,
        machine: port.Port,
        site: context.DriverContext,
        *,
        survey: Callable[[], offers.Survey],
        carrier_loss: settings.CarrierLoss,
        health: reporting.DeviceHealth,
        reporter: reporting.StatusReporter,
    ) -> None:
        self._site, self._survey, self._health, self._reporter = site, survey, health, reporter
        self._effect = _EFFECTS.get(carrier_loss)
        self._offered: Offered | None = None
        self._warned: frozenset[Warned] = frozenset()
        self._watch = machine.watch()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nic-lookout", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._watch.wake()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_SECONDS)
        if not self._thread.is_alive():
            self._watch.close()

    def wake(self) -> None:
        """Look now; from any thread."""
        self._watch.wake()

    def look(self) -> None:
        """Look once. Raises DrakitError."""
        found = self._survey()
        if self._watch.narrow(found.interest):
            found = self._survey()
        self._warn(found)
        offered = {item.name: item for item in found.to_inventory().devices}
        if self._offered is not None and offered != self._offered:
            self._site.changed()
        self._offered = offered
        for name, item in offered.items():
            self._tell_link(name, has_link=item.attributes.get("carrier") is not False)
        self._reporter.report()

    def _warn(self, found: offers.Survey) -> None:
        """Log what an admin may not expect, each time that it begins."""
        refused = {(item.name, item.refusal.reason, item.refusal.change) for item in found.withheld if not item.refusal.expected}
        cautioned = {(nic.interface.name, nic.caution.reason, nic.caution.change) for nic in found.nics if nic.caution}
        for name, reason, change in sorted(refused - self._warned):
            _log.warning("interface not offered", extra={"interface": name, "reason": reason, "fix": change})
        for name, reason, change in sorted(cautioned - self._warned):
            _log.warning("interface offered with a caution", extra={"interface": name, "reason": reason, "fix": change})
        self._warned = frozenset(refused | cautioned)

    def _tell_link(self, name: str, *, has_link: bool) -> None:
        message = "" if has_link else f"the interface {self._interface_of(name)} has no link (no carrier)"
        self._health.tell(name, SOURCE, message)
        tainted = any(taint.key == TAINT for taint in self._site.taints().get(name, ()))
        if has_link and tainted:
            self._site.untaint(name, TAINT)
        elif not has_link and not tainted and self._effect is not None:
            self._site.taint(name, devices.Taint(key=TAINT, effect=self._effect))

    def _interface_of(self, name: str) -> str:
        return str((self._offered or {})[name].attributes.get(attributes.IF_NAME, ""))

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.look()
            except errors.DrakitError as error:
                _log.warning("listing interfaces failed", extra={"error": str(error), "retry_in_s": INTERVAL})
            self._watch.wait(INTERVAL)
            debounce.settle(self._watch, self._stopping, quiet=SETTLING, most=SETTLING_MOST)
