"""Renewal of DHCP leases, in a thread that runs while the driver has any.

A lease is renewed after half of its time. Where no server renews it, the thread tries again, and records one Event when the time is over. The address
stays in the pod, because only the pod's owner knows what uses it.
"""

import contextlib
import threading
import time
from collections.abc import Callable

import drakit
from drakit_nic import config
from drakit_nic import share as shares
from drakit_nic.addresses import address_leases, dhcp

INTERVAL, RETRY_SECONDS = 10.0, 30.0
_LOST = (
    "the DHCP lease of {address} of pod {pod} ended and was not renewed ({reason}); the network may give the address to others: delete the pod, "
    "or fix the server"
)
_log = drakit.get_logger(__name__)


class Renewer:
    """Renews the DHCP leases of one driver. ``now`` is the wall clock, because a lease outlives the process."""

    def __init__(
        self,
        context: drakit.DriverContext,
        client: dhcp.Client,
        leases: address_leases.AddressLeases,
        *,
        now: Callable[[], float] = time.time,
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
        """Renew each lease of which half of the time is over."""
        for grant in self._context.grants():
            share = shares.from_record(grant.record) if config.of(grant).dhcp else None
            for lease in address_leases.leases_of(self._context, grant) if share is not None else ():
                if self._stopping.is_set():
                    return
                if share is not None and lease.terms is not None and self._is_due(lease, lease.terms):
                    self._renew(share.interface, lease, lease.terms)

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

    def _renew(self, nic: str, lease: address_leases.Lease, terms: address_leases.Terms) -> None:
        began = self._now()
        try:
            offer = self._client.request(nic, terms.identifier, lambda: not self._stopping.is_set(), address=terms.address)
            reason = "" if offer.address == terms.address else f"the server {offer.server} gives {offer.address} now"
        except drakit.HardwareError as error:
            reason, offer = str(error), None
        if offer is not None and not reason:
            self._retry_at.pop(lease.location, None)
            self._reported.discard(lease.location)
            with contextlib.suppress(drakit.ClaimError):  # The claim was unprepared meanwhile.
                self._leases.renewed(lease, terms, offer, until=began + offer.seconds)
            return
        if self._stopping.is_set():
            return
        self._retry_at[lease.location] = self._now() + RETRY_SECONDS
        _log.warning("DHCP renewal failed", claim=str(lease.grant.claim), pod=lease.sandbox_id.pod, address=terms.address, error=reason)
        if self._now() >= terms.until and lease.location not in self._reported:
            self._reported.add(lease.location)
            message = _LOST.format(address=terms.address, pod=lease.sandbox_id.pod, reason=reason)
            with contextlib.suppress(drakit.ClaimError):
                self._context.record_event(lease.grant.claim, drakit.Event(reason="DhcpLeaseLost", message=message))
