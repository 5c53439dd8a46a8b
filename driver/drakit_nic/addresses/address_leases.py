"""Leases of addresses to sandboxes, from the class's pools or from the configuration.

Leases are stored in the state of grants, so an address that a sandbox did not release is free when its claim is unprepared. A sandbox that asks again
gets the same addresses. ``acquire`` runs under the lock ``LOCK`` beside the device's (``locks_for``), so that all addresses of a node differ, also
between processes.

``AddressIndex`` finds the holder of an address without reading the state of every claim.
"""

import contextlib
import dataclasses
import ipaddress
import os
import pathlib
import secrets
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import drakit
from drakit_nic import config
from drakit_nic.addresses import dhcp, ip_pools
from drakit_nic.discovery import device_names

LOCK = f"{'z' * 16}-nic-addresses"
"""Locks are taken in the order of their names. This one sorts after every interface's, so a call that waits for its NIC does not hold it."""
FILE = "addresses.by"
_KEY_PREFIX = "address-"
_RENEWED_LOCK_SECONDS = 2.0
"""The longest wait of a renewal for the NIC's lock, because the leases of other NICs wait meanwhile."""

Grant = drakit.Grant[object]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LeaseLocation:
    """The location of a lease's record: the key of its grant, and the record's key in the grant's state."""

    claim: drakit.ClaimUid
    device: str
    share_id: drakit.ShareId | None
    key: str


class AddressIndex:
    """An index from addresses without prefix to the locations of their leases. ``home`` is the driver's durable folder."""

    def __init__(self, home: pathlib.Path) -> None:
        self._file = home / FILE
        self._name = secrets.token_hex(16)
        self._guard = threading.Lock()
        self._locations: dict[str, frozenset[LeaseLocation]] = {}

    def is_current(self) -> bool:
        """Return whether no other process has leased addresses since ``load``."""
        try:
            return self._file.read_text("ascii") == self._name
        except (OSError, ValueError):
            return False

    def load(self, leased: Iterable[tuple[str, LeaseLocation]]) -> None:
        """Replace all entries by those of the recorded leases. Raises HardwareError where other processes cannot be notified."""
        leases = list(leased)
        try:
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(self._name)
        except OSError as error:
            raise drakit.HardwareError("addresses", f"writing {self._file} failed: {error}") from error
        with self._guard:
            self._locations = {}
        for host, location in leases:
            self.add(host, location)

    def add(self, host: str, location: LeaseLocation) -> None:
        """Add an address with the location of its lease."""
        with self._guard:
            self._locations[host] = self._locations.get(host, frozenset()) | {location}

    def remove(self, host: str, location: LeaseLocation) -> None:
        """Remove an address whose lease is no longer at this location."""
        with self._guard:
            # Readers take no lock, so an address with another location must not be missing for a moment.
            remaining = self._locations.get(host, frozenset()) - {location}
            if remaining:
                self._locations[host] = remaining
            else:
                self._locations.pop(host, None)

    def locations(self, host: str) -> frozenset[LeaseLocation]:
        """Return the locations where an address may be leased."""
        return self._locations.get(host, frozenset())

    def __contains__(self, host: object) -> bool:
        """Return whether an address may be leased anywhere."""
        return host in self._locations


@dataclasses.dataclass(frozen=True, kw_only=True)
class SandboxId:
    """A sandbox: the cookie of its network namespace, and the pod (``namespace/name``, or a UID), to report it and to recognize it."""

    cookie: int
    pod: str = ""

    @property
    def key(self) -> str:
        """Return the key of its lease in the grant's state."""
        return f"{_KEY_PREFIX}{self.cookie:x}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Terms:
    """The terms of a DHCP lease: its address as CIDR, its client identifier, its time in seconds, and when it ends (``dhcp.now``)."""

    address: str
    identifier: str
    seconds: int
    until: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lease:
    """The addresses of a sandbox for one grant, as CIDR. ``boot_id`` is empty in a record of an earlier version.

    ``terms`` are those of the address that a DHCP server leased, None where there is none.
    """

    grant: Grant
    sandbox_id: SandboxId
    addresses: tuple[str, ...]
    boot_id: str = ""
    terms: Terms | None = None

    @property
    def location(self) -> LeaseLocation:
        """Return the location of the lease's record."""
        grant = self.grant
        return LeaseLocation(claim=grant.claim.uid, device=grant.device.name, share_id=grant.share_id, key=self.sandbox_id.key)

    @property
    def hosts(self) -> frozenset[str]:
        """Return the addresses without their prefixes."""
        return ip_pools.hosts(self.addresses)


IsAlive = Callable[[Lease], bool]


def _is_alive(lease: Lease) -> bool:
    del lease
    return True


def locks_for(chosen: config.NicConfig) -> tuple[str, ...]:
    """Return the lock to hold beside the device's during ``acquire``, none where the configuration has no addresses."""
    return (LOCK,) if chosen.addresses or chosen.address_pools or chosen.dhcp else ()


class _Taken:
    """Addresses that a pool must not use: those in the index, except those about to be released."""

    def __init__(self, index: AddressIndex, freed: frozenset[str]) -> None:
        self._index, self._freed = index, freed

    def __contains__(self, host: object) -> bool:
        return host not in self._freed and host in self._index


class AddressLeases:
    """The leases of this node.

    ``is_alive`` returns whether a lease's sandbox exists. ``survey`` reads all sandboxes once and returns such a function. All objects of one process
    share the ``index``. A new lease is O(1) in the number of claims and addresses of the node. Only when a pool seems to be used up, all leases are
    read once and the addresses of ended sandboxes are released.
    """

    def __init__(
        self,
        context: drakit.DriverContext,
        *,
        node: str,
        is_alive: IsAlive = _is_alive,
        survey: Callable[[], IsAlive] | None = None,
        index: AddressIndex | None = None,
    ) -> None:
        self._context, self._node, self._is_alive = context, node, is_alive
        self._survey = survey or (lambda: is_alive)
        self._index = index or AddressIndex(context.data_dir)

    def existing(self, grant: Grant, cookie: int) -> Lease | None:
        """Return the lease of the sandbox of this cookie, None if it has none."""
        own = (lease for lease in leases_of(self._context, grant) if lease.sandbox_id.cookie == cookie)
        return next((lease for lease in own if not self._is_of_earlier_boot(lease)), None)

    def renewed(self, lease: Lease, terms: Terms, offer: dhcp.Offer, *, until: float) -> None:
        """Record the new time of a DHCP lease that still exists.

        Raises ClaimError where the claim was unprepared, and LockedError where another call holds the NIC's lock, under which leases are released.
        """
        end = time.monotonic() + _RENEWED_LOCK_SECONDS
        with self._context.hold((*lease.grant.device.lock_names, LOCK), lambda: time.monotonic() < end):
            if lease in leases_of(self._context, lease.grant):
                self._write(dataclasses.replace(lease, terms=dataclasses.replace(terms, seconds=offer.seconds, until=int(until))))

    def acquire(self, grant: Grant, chosen: config.NicConfig, sandbox_id: SandboxId, terms: Terms | None = None) -> tuple[str, ...]:
        """Return the sandbox's addresses: those of its lease where it has one, else a new lease, which is recorded first.

        ``terms`` are those of the sandbox's DHCP lease. Raises ConfigError for a static or DHCP address that another pod of this node has, and
        DeviceBusyError when a pool is used up.
        """
        own_leases = leases_of(self._context, grant)
        existing = self.existing(grant, sandbox_id.cookie)
        if existing is not None:
            return existing.addresses
        if chosen.dhcp and terms is None:
            raise drakit.DeviceBusyError("the pod's DHCP lease was released meanwhile; the kubelet retries")
        static = (*chosen.addresses, *((terms.address,) if terms is not None else ()))
        if not self._index.is_current():
            self._index.load(_leased(self.all_leases()))
        ended = [lease for lease in own_leases if self._is_of_earlier_boot(lease) or self._is_replaced(lease, grant, sandbox_id)]
        ended += self._ended_holders(static, grant, sandbox_id, ended, terms)
        try:
            addresses = (*static, *self._from_pools(chosen, static, sandbox_id, _hosts(ended)))
        except drakit.DeviceBusyError:
            all_leases = tuple(self.all_leases())
            self._index.load(_leased(all_leases))
            is_alive = self._survey()
            ended = [lease for lease in all_leases if self._is_ended(lease, grant, sandbox_id, is_alive)]
            addresses = (*static, *self._from_pools(chosen, static, sandbox_id, _hosts(ended)))
        for lease in ended:
            with contextlib.suppress(drakit.ClaimError):  # The claim was unprepared meanwhile, which released its leases.
                self.release(lease.grant, lease.sandbox_id)
        if addresses:
            lease = Lease(grant=grant, sandbox_id=sandbox_id, addresses=addresses, boot_id=self._context.boot_id, terms=terms)
            for host in lease.hosts:
                self._index.add(host, lease.location)
            self._write(lease)
        return addresses

    def _write(self, lease: Lease) -> None:
        sandbox_id = lease.sandbox_id
        record: drakit.Record = {
            "cookie": f"{sandbox_id.cookie:x}",
            "pod": sandbox_id.pod,
            "addresses": lease.addresses,
            "boot": lease.boot_id,
            **({} if lease.terms is None else {"dhcp": dataclasses.asdict(lease.terms)}),
        }
        self._context.set_state(lease.grant, sandbox_id.key, record)

    def release(self, grant: Grant, sandbox_id: SandboxId) -> None:
        """Release the sandbox's addresses, if it has any. Raises ClaimError where the claim, and so its leases, are gone."""
        for lease in leases_of(self._context, grant):
            if lease.sandbox_id.cookie == sandbox_id.cookie:
                self._remove_from_index(lease)
        self._context.set_state(grant, sandbox_id.key, None)

    def end(self, grant: Grant) -> None:
        """Remove the leases of a grant from the index, because it is about to be unprepared, which deletes their records."""
        for lease in leases_of(self._context, grant):
            self._remove_from_index(lease)

    def all_leases(self) -> Iterator[Lease]:
        """Yield every lease of the node. The state of every claim is read."""
        for grant in self._context.grants():
            yield from leases_of(self._context, grant)

    def _remove_from_index(self, lease: Lease) -> None:
        for host in lease.hosts:
            self._index.remove(host, lease.location)

    def _holders(self, host: str) -> Iterator[Lease]:
        """Yield the leases that have an address. Each location of the index is read again, and removed where it is stale."""
        for location in sorted(self._index.locations(host), key=lambda location: (location.claim, location.key)):
            grant = self._context.grant(location.claim, location.device, location.share_id)
            record = None if grant is None else self._context.state(grant).get(location.key)
            lease = None if grant is None or record is None else _lease(grant, record)
            if lease is not None and host in lease.hosts:
                yield lease
            else:
                self._index.remove(host, location)

    def _is_of_earlier_boot(self, lease: Lease) -> bool:
        """Return whether a reboot ended the sandbox of a lease. The kernel gives cookies again after a reboot, so a cookie proves nothing then."""
        return lease.boot_id not in {"", self._context.boot_id}

    def _is_replaced(self, lease: Lease, grant: Grant, sandbox_id: SandboxId) -> bool:
        """Return whether the sandbox of a lease was replaced by this one, as the recorded names say.

        Only one pod at a time has a whole interface, and it is no member of a share. So its lease ends when another sandbox gets the interface.
        """
        is_same_pod = device_names.is_whole(lease.grant.device) or (bool(sandbox_id.pod) and lease.sandbox_id.pod == sandbox_id.pod)
        return is_same_pod and lease.sandbox_id.cookie != sandbox_id.cookie and _is_same_grant(lease.grant, grant)

    def _is_ended(self, lease: Lease, grant: Grant, sandbox_id: SandboxId, is_alive: IsAlive | None = None) -> bool:
        """Return whether a lease's sandbox is gone, or was replaced by a new sandbox of its pod."""
        if self._is_of_earlier_boot(lease) or self._is_replaced(lease, grant, sandbox_id):
            return True
        return not device_names.is_whole(lease.grant.device) and not (is_alive or self._is_alive)(lease)

    def _ended_holders(
        self, static: Sequence[str], grant: Grant, sandbox_id: SandboxId, ended_leases: Sequence[Lease], terms: Terms | None
    ) -> Iterator[Lease]:
        """Yield the ended leases of static addresses that are not in ``ended_leases``. Raises ConfigError for an address in use."""
        ended = list(ended_leases)
        for address in sorted(ip_pools.hosts(static)):
            for lease in self._holders(address):
                if lease in ended:
                    continue
                if not self._is_ended(lease, grant, sandbox_id):
                    if terms is not None and address in ip_pools.hosts((terms.address,)):
                        reason = f"the DHCP server gives {address}, which is used by the {_holder(lease)}; check the server's leases"
                        raise drakit.ConfigError(reason, field="parameters.dhcp")
                    raise drakit.ConfigError(_in_use_message(address, lease, grant, sandbox_id), field="parameters.addresses")
                ended.append(lease)
                yield lease

    def _from_pools(self, chosen: config.NicConfig, static: Sequence[str], sandbox_id: SandboxId, freed: frozenset[str]) -> tuple[str, ...]:
        static_versions = {ipaddress.ip_interface(text).version for text in static}
        pools = [pool for pool in ip_pools.pools_of(chosen.address_pools, self._node) if pool.version not in static_versions]
        return ip_pools.take(pools, _Taken(self._index, freed), start=zlib.crc32(f"{sandbox_id.cookie:x}".encode()))


def leases_of(context: drakit.DriverContext, grant: Grant) -> tuple[Lease, ...]:
    """Return the leases of one grant."""
    leases = (_lease(grant, record) for key, record in context.state(grant).items() if key.startswith(_KEY_PREFIX))
    return tuple(lease for lease in leases if lease is not None)


def _hosts(leases: Iterable[Lease]) -> frozenset[str]:
    return frozenset(host for lease in leases for host in lease.hosts)


def _leased(leases: Iterable[Lease]) -> Iterator[tuple[str, LeaseLocation]]:
    return ((host, lease.location) for lease in leases for host in lease.hosts)


def _holder(lease: Lease) -> str:
    return f"claim {lease.grant.claim}{f' in pod {lease.sandbox_id.pod}' if lease.sandbox_id.pod else ''}"


def _in_use_message(address: str, lease: Lease, grant: Grant, sandbox_id: SandboxId) -> str:
    holder = _holder(lease)
    if _is_same_grant(lease.grant, grant):
        return f"{address} is used by another pod of the {holder}; pods that share a claim need an address pool in the DeviceClass"
    if lease.sandbox_id.cookie == sandbox_id.cookie:
        return f"{address} is used by the {holder}, which this pod uses too"
    return f"{address} is used by the {holder}"


def _is_same_grant(grant: Grant, other: Grant) -> bool:
    return (grant.claim.uid, grant.request, grant.device.name, grant.share_id) == (
        other.claim.uid,
        other.request,
        other.device.name,
        other.share_id,
    )


def _lease(grant: Grant, record: drakit.Record) -> Lease | None:
    match record:
        case {"cookie": str(cookie), "pod": str(pod), "addresses": (*texts,)}:
            sandbox_id = SandboxId(cookie=int(cookie, 16), pod=pod)
            addresses, boot_id, terms = tuple(map(str, texts)), str(record.get("boot", "")), _terms(record.get("dhcp"))
            return Lease(grant=grant, sandbox_id=sandbox_id, addresses=addresses, boot_id=boot_id, terms=terms)
        case _:
            return None


def _terms(record: object) -> Terms | None:
    match record:
        case {"address": str(address), "identifier": str(identifier), "seconds": int(seconds), "until": int(until)}:
            return Terms(address=address, identifier=identifier, seconds=seconds, until=until)
        case _:
            return None
