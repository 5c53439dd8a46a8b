"""Leases of addresses to sandboxes: from the class's pools or from the configuration, recorded durably, and released.

Leases are notes of grants, so they end with them: what a sandbox did not release is free when its claim is unprepared. A sandbox that asks again gets
what it has. ``acquire`` runs under the lock ``LOCK`` beside the device's (``locks_for``), so that all addresses of a node differ, also between
processes.

``AddressIndex`` finds the holder of an address without reading every claim's notes.
"""

import contextlib
import dataclasses
import ipaddress
import os
import pathlib
import secrets
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from drakit.core import context as contexts
from drakit.core import driver as drivers
from drakit.core import errors, names, records
from drakit.devices.nic import config
from drakit.devices.nic.addresses import ip_pools
from drakit.devices.nic.discovery import offers

LOCK = "nic-addresses"
FILE = "addresses.by"
_NOTE = "address-"

Grant = drivers.Grant[object]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoteLocation:
    """The place of an address's note: the grant's key and the note's."""

    claim: names.ClaimUid
    device: str
    share_id: names.ShareId | None
    key: str


class AddressIndex:
    """Addresses without prefix, and the places where they were noted. ``home`` is the driver's durable folder."""

    def __init__(self, home: pathlib.Path) -> None:
        self._file = home / FILE
        self._name = secrets.token_hex(16)
        self._guard = threading.Lock()
        self._places: dict[str, frozenset[NoteLocation]] = {}

    def is_current(self) -> bool:
        """Return whether no other process has given addresses out since ``learn``."""
        try:
            return self._file.read_text("ascii") == self._name
        except (OSError, ValueError):
            return False

    def learn(self, noted: Iterable[tuple[str, NoteLocation]]) -> None:
        """Replace all leases by those read from notes. Raises HardwareError where other processes cannot be notified."""
        places = list(noted)
        try:
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(self._name)
        except OSError as error:
            raise errors.HardwareError("addresses", f"{self._file} cannot be written: {error}") from error
        with self._guard:
            self._places = {}
        for host, place in places:
            self.add(host, place)

    def add(self, host: str, place: NoteLocation) -> None:
        """Add an address that was noted there."""
        with self._guard:
            self._places[host] = self._places.get(host, frozenset()) | {place}

    def forget(self, host: str, place: NoteLocation) -> None:
        """Remove an address that is no longer noted there."""
        with self._guard:
            # Readers take no lock: an address that stays noted somewhere must not be missing for a moment.
            left = self._places.get(host, frozenset()) - {place}
            if left:
                self._places[host] = left
            else:
                self._places.pop(host, None)

    def places(self, host: str) -> frozenset[NoteLocation]:
        """Return where an address may be noted."""
        return self._places.get(host, frozenset())

    def __contains__(self, host: object) -> bool:
        """Whether an address may be noted anywhere."""
        return host in self._places


@dataclasses.dataclass(frozen=True, kw_only=True)
class SandboxId:
    """A sandbox: the cookie of its network namespace, and the pod (``namespace/name``, or a UID) for messages and for knowing it again."""

    cookie: int
    pod: str = ""

    @property
    def key(self) -> str:
        """The key of its note."""
        return f"{_NOTE}{self.cookie:x}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lease:
    """The addresses a sandbox has of a grant, as CIDR."""

    grant: Grant
    sandbox_id: SandboxId
    addresses: tuple[str, ...]

    @property
    def place(self) -> NoteLocation:
        """The location of the lease's note."""
        of = self.grant
        return NoteLocation(claim=of.claim.uid, device=of.device.name, share_id=of.share_id, key=self.sandbox_id.key)

    @property
    def hosts(self) -> frozenset[str]:
        """The addresses without their prefixes."""
        return frozenset(text.partition("/")[0] for text in self.addresses)


IsAlive = Callable[[Lease], bool]


def _is_alive(lease: Lease) -> bool:
    del lease
    return True


def locks_for(chosen: config.NicConfig) -> tuple[str, ...]:
    """Return the lock to hold beside the device's while ``acquire`` is called; none where the configuration has no addresses."""
    return (LOCK,) if chosen.addresses or chosen.address_pools else ()


class _Taken:
    """Addresses that a pool must not use: those in the index, except those about to be released."""

    def __init__(self, index: AddressIndex, freed: frozenset[str]) -> None:
        self._index, self._freed = index, freed

    def __contains__(self, host: object) -> bool:
        return host not in self._freed and host in self._index


class AddressLeases:
    """The leases of this node. ``is_alive`` returns whether a lease's sandbox exists; ``survey`` reads all sandboxes once and returns the same check.

    All objects of one process share the ``index``. The cost of an address grows neither with the claims nor with the addresses of the node,
    until a pool seems to be used up: then all notes are read once, and the addresses of ended sandboxes are released.
    """

    def __init__(
        self,
        context: contexts.DriverContext,
        *,
        node: str,
        is_alive: IsAlive = _is_alive,
        survey: Callable[[], IsAlive] | None = None,
        index: AddressIndex | None = None,
    ) -> None:
        self._context, self._node, self._is_alive = context, node, is_alive
        self._survey = survey or (lambda: is_alive)
        self._index = index or AddressIndex(context.data_dir)

    def acquire(self, grant: Grant, chosen: config.NicConfig, sandbox_id: SandboxId) -> tuple[str, ...]:
        """Return the sandbox's addresses, recorded before they are configured; those of an earlier call where it has any.

        Raises ConfigError for a static address that another pod of this node has, DeviceBusyError when a pool is used up.
        """
        own = leases_of(self._context, grant)
        kept = next((lease for lease in own if lease.sandbox_id.cookie == sandbox_id.cookie), None)
        if kept is not None:
            return kept.addresses
        if not self._index.is_current():
            self._index.learn(_noted(self.all_leases()))
        over = [lease for lease in own if self._is_over(lease, grant, sandbox_id)]
        over += self._over_holders(chosen, grant, sandbox_id, over)
        try:
            addresses = (*chosen.addresses, *self._from_pools(chosen, sandbox_id, _hosts(over)))
        except errors.DeviceBusyError:
            every = tuple(self.all_leases())
            self._index.learn(_noted(every))
            is_alive = self._survey()
            over = [lease for lease in every if self._is_over(lease, grant, sandbox_id, is_alive)]
            addresses = (*chosen.addresses, *self._from_pools(chosen, sandbox_id, _hosts(over)))
        for lease in over:
            with contextlib.suppress(errors.ClaimError):  # The claim was unprepared, and its notes ended with it.
                self.release(lease.grant, lease.sandbox_id)
        if addresses:
            lease = Lease(grant=grant, sandbox_id=sandbox_id, addresses=addresses)
            for host in lease.hosts:
                self._index.add(host, lease.place)
            self._context.set_state(
                grant, sandbox_id.key, {"cookie": f"{sandbox_id.cookie:x}", "pod": sandbox_id.pod, "addresses": addresses}
            )
        return addresses

    def release(self, grant: Grant, sandbox_id: SandboxId) -> None:
        """Release the sandbox's addresses; none is success. Raises ClaimError where the claim, and so its leases, are gone."""
        for lease in leases_of(self._context, grant):
            if lease.sandbox_id.cookie == sandbox_id.cookie:
                self._forget(lease)
        self._context.set_state(grant, sandbox_id.key, None)

    def end(self, grant: Grant) -> None:
        """Drop a grant that is about to be unprepared; its notes end with it."""
        for lease in leases_of(self._context, grant):
            self._forget(lease)

    def all_leases(self) -> Iterator[Lease]:
        """Yield every lease of the node; the cost grows with the number of claims."""
        for grant in self._context.grants():
            yield from leases_of(self._context, grant)

    def _forget(self, lease: Lease) -> None:
        for host in lease.hosts:
            self._index.forget(host, lease.place)

    def _holders(self, host: str) -> Iterator[Lease]:
        """Yield the leases that have an address now: the index's locations, read again."""
        for place in sorted(self._index.places(host), key=lambda place: (place.claim, place.key)):
            grant = self._context.grant(place.claim, place.device, place.share_id)
            record = None if grant is None else self._context.state(grant).get(place.key)
            lease = None if grant is None or record is None else _lease(grant, record)
            if lease is not None and host in lease.hosts:
                yield lease
            else:
                self._index.forget(host, place)

    def _is_over(self, lease: Lease, grant: Grant, sandbox_id: SandboxId, is_alive: IsAlive | None = None) -> bool:
        """Return whether a lease's sandbox is gone, or is the earlier one of a pod that has a new one.

        A whole interface is in one pod at a time and is no member of a share: its lease ends when another sandbox takes it.
        """
        if offers.is_whole(lease.grant.device):
            return _is_same(lease.grant, grant) and lease.sandbox_id.cookie != sandbox_id.cookie
        replaced = (
            bool(sandbox_id.pod)
            and lease.sandbox_id.pod == sandbox_id.pod
            and lease.sandbox_id.cookie != sandbox_id.cookie
            and _is_same(lease.grant, grant)
        )
        return replaced or not (is_alive or self._is_alive)(lease)

    def _over_holders(self, chosen: config.NicConfig, grant: Grant, sandbox_id: SandboxId, over: Sequence[Lease]) -> Iterator[Lease]:
        """Yield the leases of configured addresses whose sandboxes are gone, beside those known. Raises ConfigError for an address in use."""
        ended = list(over)
        for address in sorted(hosts_of(chosen)):
            for lease in self._holders(address):
                if lease in ended:
                    continue
                if not self._is_over(lease, grant, sandbox_id):
                    raise errors.ConfigError(_taken(address, lease, grant, sandbox_id), field="parameters.addresses")
                ended.append(lease)
                yield lease

    def _from_pools(self, chosen: config.NicConfig, sandbox_id: SandboxId, freed: frozenset[str]) -> tuple[str, ...]:
        own = {ipaddress.ip_interface(text).version for text in chosen.addresses}
        pools = [pool for pool in ip_pools.pools_of(chosen.address_pools, self._node) if pool.version not in own]
        return ip_pools.take(pools, _Taken(self._index, freed), start=zlib.crc32(f"{sandbox_id.cookie:x}".encode()))


def leases_of(context: contexts.DriverContext, grant: Grant) -> tuple[Lease, ...]:
    """Return the leases of one grant."""
    leases = (_lease(grant, record) for key, record in context.state(grant).items() if key.startswith(_NOTE))
    return tuple(lease for lease in leases if lease is not None)


def _hosts(leases: Iterable[Lease]) -> frozenset[str]:
    return frozenset(host for lease in leases for host in lease.hosts)


def _noted(leases: Iterable[Lease]) -> Iterator[tuple[str, NoteLocation]]:
    return ((host, lease.place) for lease in leases for host in lease.hosts)


def hosts_of(chosen: config.NicConfig) -> frozenset[str]:
    """Return the configured addresses without their prefixes."""
    return frozenset(text.partition("/")[0] for text in chosen.addresses)


def _taken(address: str, lease: Lease, grant: Grant, sandbox_id: SandboxId) -> str:
    holder = f"claim {lease.grant.claim}{f' in pod {lease.sandbox_id.pod}' if lease.sandbox_id.pod else ''}"
    if _is_same(lease.grant, grant):
        return f"{address} is used by another pod of the {holder}; pods that share a claim need an address pool in the DeviceClass"
    if lease.sandbox_id.cookie == sandbox_id.cookie:
        return f"{address} is used by the {holder}, which is this pod's too"
    return f"{address} is used by the {holder}"


def _is_same(one: Grant, other: Grant) -> bool:
    return (one.claim.uid, one.request, one.device.name, one.share_id) == (
        other.claim.uid,
        other.request,
        other.device.name,
        other.share_id,
    )


def _lease(grant: Grant, record: records.Record) -> Lease | None:
    match record:
        case {"cookie": str(cookie), "pod": str(pod), "addresses": (*texts,)}:
            return Lease(grant=grant, sandbox_id=SandboxId(cookie=int(cookie, 16), pod=pod), addresses=tuple(map(str, texts)))
        case _:
            return None
