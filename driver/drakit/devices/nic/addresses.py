"""Which addresses a sandbox has: taken from its class's pools or written in its configuration, noted durably, and given back.

The book is kept in the notes of grants, so that it lives exactly as long as they do: what is not given back when a sandbox ends is free when its
claim is unprepared. A sandbox that asks again gets what it has. Who takes holds the lock ``LOCK`` beside the device's (``locks_for``), so that
addresses of all shares of a node are told apart, also between processes.
"""

import dataclasses
import ipaddress
import zlib
from collections.abc import Callable, Iterator

from drakit.core import driver as drivers
from drakit.core import errors, records
from drakit.core import site as sites
from drakit.devices.nic import addressing, config, exclusive, siblings

LOCK = "nic-addresses"
_NOTE = "address-"

Grant = drivers.Grant[object]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Who:
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
    who: Who
    addresses: tuple[str, ...]

    @property
    def hosts(self) -> frozenset[str]:
        """The addresses without their prefixes."""
        return frozenset(text.partition("/")[0] for text in self.addresses)


def _lives(who: Who) -> bool:
    del who
    return True


def locks_for(chosen: config.NicConfig) -> tuple[str, ...]:
    """The lock to hold beside the device's while ``take`` is called: none where there is nothing to take."""
    return (LOCK,) if chosen.addresses or chosen.address_pools else ()


class Book:
    """Who has which address on this node. ``lives`` says whether a sandbox that is noted is still there."""

    def __init__(self, site: sites.Site, *, node: str, lives: Callable[[Who], bool] = _lives) -> None:
        self._site, self._node, self._lives = site, node, lives

    def take(self, grant: Grant, chosen: config.NicConfig, who: Who) -> tuple[str, ...]:
        """The sandbox's addresses, noted before anything is made; those of an earlier call if it has any.

        Raises ConfigError for a static address that another pod of this node has, DeviceBusyError when a pool is used up.
        """
        leases = tuple(self.leases())
        kept = next((lease for lease in leases if lease.who.cookie == who.cookie and _is_same(lease.grant, grant)), None)
        if kept is not None:
            return kept.addresses
        others = [lease for lease in leases if not self._is_over(lease, grant, who)]
        self._check_static(chosen, grant, who, others)
        taken = {host for lease in others for host in lease.hosts}
        found = (*chosen.addresses, *self._from_pools(chosen, who, taken))
        for lease in leases:
            if lease not in others:
                self.give_back(lease.grant, lease.who)
        if found:
            self._site.note(grant, who.key, {"cookie": f"{who.cookie:x}", "pod": who.pod, "addresses": found})
        return found

    def give_back(self, grant: Grant, who: Who) -> None:
        """The sandbox's addresses are free again; none is success. Raises ClaimError when the claim is no longer prepared: then they are free."""
        self._site.note(grant, who.key, None)

    def of(self, grant: Grant) -> tuple[Lease, ...]:
        """The leases of one grant."""
        found = (_lease(grant, record) for key, record in self._site.notes(grant).items() if key.startswith(_NOTE))
        return tuple(lease for lease in found if lease is not None)

    def leases(self) -> Iterator[Lease]:
        """Every lease of the node."""
        for grant in self._site.grants():
            yield from self.of(grant)

    def _is_over(self, lease: Lease, grant: Grant, who: Who) -> bool:
        """Whether a lease's sandbox is gone, or is the earlier one of the same pod, which has a new one now.

        A whole interface is in one pod at a time and is no member of a share: its lease ends when another sandbox takes it.
        """
        if exclusive.is_whole(lease.grant.device):
            return _is_same(lease.grant, grant) and lease.who.cookie != who.cookie
        replaced = bool(who.pod) and lease.who.pod == who.pod and lease.who.cookie != who.cookie and _is_same(lease.grant, grant)
        return replaced or not self._lives(lease.who)

    def _check_static(self, chosen: config.NicConfig, grant: Grant, who: Who, others: list[Lease]) -> None:
        wanted = hosts_of(chosen)
        for lease in others:
            for address in sorted(wanted & lease.hosts):
                raise errors.ConfigError(_taken(address, lease, grant, who), field="parameters.addresses")
        for other in self._site.grants():
            if other.claim.uid == grant.claim.uid and not _is_same(other, grant) and isinstance(other.config, config.NicConfig):
                siblings.check_apart(grant.claim, _asked(grant, chosen), _asked(other, other.config))

    def _from_pools(self, chosen: config.NicConfig, who: Who, taken: set[str]) -> tuple[str, ...]:
        own = {ipaddress.ip_interface(text).version for text in chosen.addresses}
        pools = [pool for pool in addressing.pools_of(chosen.address_pools, self._node) if pool.version not in own]
        return addressing.take(pools, taken, start=zlib.crc32(f"{who.cookie:x}".encode()))


def hosts_of(chosen: config.NicConfig) -> frozenset[str]:
    """The configured addresses without their prefixes."""
    return frozenset(text.partition("/")[0] for text in chosen.addresses)


def _asked(grant: Grant, chosen: config.NicConfig) -> siblings.Asked:
    return siblings.Asked(key="", request=grant.request, name=chosen.interface_name, hosts=hosts_of(chosen))


def _taken(address: str, lease: Lease, grant: Grant, who: Who) -> str:
    holder = f"claim {lease.grant.claim}{f' in pod {lease.who.pod}' if lease.who.pod else ''}"
    if _is_same(lease.grant, grant):
        return f"{address} is used by another pod of the {holder}; pods that share a claim need an address pool in the DeviceClass"
    if lease.who.cookie == who.cookie:
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
            return Lease(grant=grant, who=Who(cookie=int(cookie, 16), pod=pod), addresses=tuple(map(str, texts)))
        case _:
            return None
