"""Renewal of DHCP leases, in a thread that runs while the driver has any.

A lease is renewed after half of its time. Where no server renews it, the thread tries again, and records one Event when the time is over. The address
stays in the pod, because only the pod's owner knows what uses it.
"""

import contextlib
import threading
from collections.abc import Callable

import drakit
from drakit_nic import config, port
from drakit_nic import share as shares
from drakit_nic.addresses import address_leases, dhcp

INTERVAL, RETRY_SECONDS = 10.0, 30.0
_LOST = (
    "the DHCP lease of {address} of pod {pod} ended and was not renewed ({reason}); the network may give the address to others: delete the pod, "
    "or fix the server"
)
_log = drakit.get_logger(__name__)


class Renewer:
    """Renews the DHCP leases of one driver. ``now`` is the clock of ``Terms.until``."""

    def __init__(
        self,
        context: drakit.DriverContext,
        client: dhcp.Client,
        leases: address_leases.AddressLeases,
        *,
        now: Callable[[], float] = dhcp.now,
    ) -> None:
        self._context, self._client, self._leases, self._now = context, client, leases, now
        self._retry_at: dict[address_leases.LeaseLocation, float] = {}
        self._reported: set[address_leases.LeaseLocation] = set()
        self._guard = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread if it does not run. Any thread may call this."""
        with self._guard:
            if self._thread is None and not self._stopping.is_set():
                self._thread = threading.Thread(target=self._run, name="nic-dhcp", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """End the thread. The leases stay, and the next process renews them."""
        with self._guard:
            self._stopping.set()
            thread = self._thread
        if thread is not None:
            thread.join()

    def renew_due(self) -> None:
        """Renew each lease of which half of the time is over. Where a NIC's server does not answer, its other leases wait for the next round."""
        silent: dict[int, str] = {}
        # A lease that failed comes after the others of its NIC, so that it cannot delay them for ever.
        for share, lease, terms in sorted(self._read_due(), key=lambda due: (self._retry_at.get(due[1].location, 0.0), due[2].until)):
            if self._stopping.is_set():
                return
            if share.ifindex in silent:
                self._report_lost(lease, terms, silent[share.ifindex])
                continue
            try:
                self._renew(share.ifindex, lease, terms)
            except drakit.ClaimError:  # The claim was unprepared meanwhile.
                continue
            except drakit.DrakitError as error:
                if isinstance(error, drakit.HardwareError):
                    silent[share.ifindex] = str(error)
                self._fail(lease, terms, str(error))

    def _read_due(self) -> list[tuple[port.Share, address_leases.Lease, address_leases.Terms]]:
        """Return the leases to renew now, each with its share, and drop what is recorded here about ended leases."""
        due, present = [], set()
        for grant in self._context.grants():
            share = shares.from_record(grant.record) if config.of(grant).dhcp else None
            for lease in address_leases.leases_of(self._context, grant) if share is not None else ():
                present.add(lease.location)
                if share is not None and lease.terms is not None and self._is_due(lease, lease.terms):
                    due.append((share, lease, lease.terms))
        self._retry_at = {location: at for location, at in self._retry_at.items() if location in present}
        self._reported &= present
        return due

    def _run(self) -> None:
        while not self._stopping.wait(INTERVAL):
            try:
                self.renew_due()
            except Exception as error:  # noqa: BLE001 - The next round may succeed.
                _log.warning("DHCP renewal failed", error=str(error))

    def _is_due(self, lease: address_leases.Lease, terms: address_leases.Terms) -> bool:
        if lease.boot_id != self._context.boot_id:
            return False
        return self._now() >= max(terms.until - terms.seconds / 2, self._retry_at.get(lease.location, 0.0))

    def _renew(self, nic: int, lease: address_leases.Lease, terms: address_leases.Terms) -> None:
        """Renew one lease. Raises DrakitError, HardwareError only where no server answers."""
        began = self._now()
        offer = self._client.request(nic, terms.identifier, lambda: not self._stopping.is_set(), address=terms.address)
        if offer.address != terms.address:
            self._fail(lease, terms, f"the server {offer.server} gives {offer.address} now")
            return
        self._leases.renewed(lease, terms, offer, until=began + offer.seconds)
        self._retry_at.pop(lease.location, None)
        self._reported.discard(lease.location)

    def _fail(self, lease: address_leases.Lease, terms: address_leases.Terms, reason: str) -> None:
        if self._stopping.is_set():
            return
        self._retry_at[lease.location] = self._now() + RETRY_SECONDS
        _log.warning("DHCP renewal failed", claim=str(lease.grant.claim), pod=lease.sandbox_id.pod, address=terms.address, error=reason)
        self._report_lost(lease, terms, reason)

    def _report_lost(self, lease: address_leases.Lease, terms: address_leases.Terms, reason: str) -> None:
        """Record one Event for a lease whose time is over."""
        if self._now() >= terms.until and lease.location not in self._reported:
            self._reported.add(lease.location)
            message = _LOST.format(address=terms.address, pod=lease.sandbox_id.pod, reason=reason)
            with contextlib.suppress(drakit.ClaimError):
                self._context.record_event(lease.grant.claim, drakit.Event(reason="DhcpLeaseLost", message=message))
