"""The shares of all NICs of one network namespace: the calls of ``port.Port`` on the kernel.

Calls of one object are serialized. The object keeps descriptors of the maps of every NIC it has read, so that the maps survive an admin who deletes
the qdiscs and filters that use them. A process that starts later finds the maps by the filters.
"""

import contextlib
import dataclasses
import errno
import functools
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import drakit
from drakit_nic import port
from drakit_nic.netlink import link_events, link_requests, rtnetlink
from drakit_nic.shaping import htb, ifb_links, maps, parts, shared_nic, socket_namespace, tc_messages

_TRIAL_SHARE = port.Share(id="trial", interface="", ifindex=0, mac="02:00:00:00:00:02", bandwidth=10**7, minor=htb.SHARES[0])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Enforcement:
    """How a kernel enforces shares. ``offsets`` is set where programs read a socket's namespace from memory, because the kernel has no helper."""

    shaping: port.Shaping
    offsets: socket_namespace.Offsets | None = None


HELPER = Enforcement(shaping=port.Shaping(classifier=port.Classifier.NETNS))
ADDRESS = Enforcement(shaping=port.Shaping(classifier=port.Classifier.MAC))


def enforcements() -> Iterator[Enforcement]:
    """Yield the ways to know the sender of a frame, best first."""
    yield HELPER
    with contextlib.suppress(OSError):
        yield from_memory()
    yield ADDRESS


def from_memory() -> Enforcement:
    """Return the way that reads a socket's namespace from the kernel's memory. Raise OSError where the kernel does not describe its types."""
    return Enforcement(shaping=dataclasses.replace(HELPER.shaping, reads_memory=True), offsets=socket_namespace.read())


class KernelShares:
    """Shares in a namespace: None for the process's own, else a name under /run/netns, a path, or an open descriptor.

    ``driver`` is its name. NICs that another driver shares are read and never changed; without a name, the driver changes all NICs.
    ``candidates`` are the ways to enforce shares to choose from, best first. ``after_effect`` is called after every request that changes the kernel,
    before its answer is read. Only with ``uses_ipvlan`` is the kernel asked whether it has ipvlan, because the question loads the module.
    """

    def __init__(
        self,
        namespace: str | int | None = None,
        *,
        driver: str = "",
        candidates: Callable[[], Iterable[Enforcement]] = enforcements,
        after_effect: Callable[[], None] = lambda: None,
        uses_ipvlan: bool = False,
    ) -> None:
        self._namespace = namespace
        self._uses_ipvlan = uses_ipvlan
        self._driver = driver
        self._after_effect = after_effect
        self._lock = threading.RLock()
        self._held: dict[int, maps.Maps] = {}
        self._candidates = candidates
        self._enforcement: Enforcement | None = None

    def close(self) -> None:
        """Close all descriptors. Installed shares stay in the kernel."""
        with self._lock:
            while self._held:
                self._held.popitem()[1].close()

    def shaping(self) -> port.Shaping:
        return self._enforced().shaping

    def _enforced(self) -> Enforcement:
        with self._lock:
            if self._enforcement is None:
                try:
                    self._enforcement = _first_supported(self._candidates, uses_ipvlan=self._uses_ipvlan)
                except OSError as error:
                    missing = f"this kernel cannot enforce shares ({error}); it needs HTB, ifb, clsact, cls_bpf, mirred and root privileges"
                    self._enforcement = Enforcement(shaping=port.Shaping(classifier=port.Classifier.NONE, missing=missing))
            return self._enforcement

    def install(self, uplink: port.Uplink, share: port.Share) -> None:
        if share.minor not in htb.SHARES:
            raise drakit.HardwareError("install", f"{share.minor} is not a class number of a share")
        with self._sock("install") as sock, self._own_nic(sock, uplink.ifindex, uplink.interface) as nic:
            nic.install(uplink, share)

    def remove(self, share_id: str, hint: port.Share | None = None) -> None:
        with self._sock("remove") as sock:
            if hint is not None and self._remove_at(sock, hint):
                return
            location = self._search(sock, share_id)
            if location is not None:
                ifindex, minor = location
                with self._nic(sock, ifindex) as nic:
                    nic.remove(minor)
            elif hint is not None:
                ifb_links.clear(sock, hint.ifindex, self._driver)
                with self._nic(sock, hint.ifindex, hint.interface) as nic:
                    if not nic.other_driver:
                        nic.tidy()

    def _remove_at(self, sock: rtnetlink.Socket, hint: port.Share) -> bool:
        """Remove the share where it was planned, and return whether it was there."""
        with self._nic(sock, hint.ifindex, hint.interface) as nic:
            installed = nic.bpf_maps.share(hint.minor)
            if installed is None or installed.id != hint.id or nic.other_driver:
                return False
            nic.remove(hint.minor)
            return True

    def shares(self) -> tuple[port.Share, ...]:
        with self._sock("shares") as sock:
            installed = [
                share for ifindex, name, bpf_maps in self._all_maps(sock) for share in bpf_maps.read_shares(ifindex, name).values()
            ]
        return tuple(sorted(installed, key=lambda share: share.id))

    def share(self, ifindex: int, minor: int) -> port.Share | None:
        with self._sock("share") as sock, self._maps_of(sock, ifindex) as bpf_maps:
            share = None if bpf_maps is None else bpf_maps.share(minor)
            return None if share is None else dataclasses.replace(share, ifindex=ifindex, interface=link_requests.name_of(sock, ifindex))

    def admit(self, share: port.Share, *, cookie: int, mac: str, hosts: Collection[str] = ()) -> None:
        with self._sock("admit") as sock, self._own_nic(sock, share.ifindex, share.interface) as nic:
            installed = nic.bpf_maps.share(share.minor)
            if installed is None or installed.id != share.id:
                raise drakit.HardwareError("admit", f"share {share.id} is not installed on {share.interface}")
            # The installed share counts, because the admin may have lowered its ceil since the plan.
            nic.admit(installed, cookie, mac.lower(), hosts)

    def dismiss(self, share: port.Share, *, cookie: int, mac: str, hosts: Collection[str] = ()) -> None:
        with self._sock("dismiss") as sock, self._nic(sock, share.ifindex, share.interface) as nic:
            installed = nic.bpf_maps.share(share.minor)
            if installed is not None and installed.id == share.id and not nic.other_driver:
                nic.dismiss(installed, cookie, mac.lower(), hosts)

    def members(self, of: port.Share | None = None) -> tuple[port.Member, ...]:
        if of is not None:
            return self._members_of(of)
        members = []
        with self._sock("members") as sock:
            for ifindex, _, bpf_maps in self._all_maps(sock):
                ids = {minor: share.id for minor, share in bpf_maps.read_shares(ifindex, "").items()}
                members += [
                    port.Member(share_id=ids.get(member.share, ""), cookie=member.cookie, mac=member.mac)
                    for member in bpf_maps.read_members()
                ]
        return tuple(sorted(members, key=lambda member: (member.share_id, member.mac)))

    def _members_of(self, share: port.Share) -> tuple[port.Member, ...]:
        with self._sock("members") as sock, self._maps_of(sock, share.ifindex) as bpf_maps:
            installed = None if bpf_maps is None else bpf_maps.share(share.minor)
            if bpf_maps is None or installed is None or installed.id != share.id:
                return ()
            members = [port.Member(share_id=share.id, cookie=member.cookie, mac=member.mac) for member in bpf_maps.members_of(share.minor)]
        return tuple(sorted(members, key=lambda member: member.mac))

    def members_at(self, mac: str) -> tuple[port.Member, ...]:
        members = []
        with self._sock("members") as sock:
            for _, _, bpf_maps in self._all_maps(sock):
                member = bpf_maps.member_at(mac.lower())
                share = None if member is None else bpf_maps.share(member.share)
                members += [port.Member(share_id=share.id if share else "", cookie=member.cookie, mac=member.mac)] if member else []
        return tuple(sorted(members, key=lambda member: member.share_id))

    def check(self, uplink: port.Uplink, shares: Sequence[port.Share]) -> tuple[str, ...]:
        with self._sock("check") as sock, self._own_nic(sock, uplink.ifindex, uplink.interface) as nic:
            return tuple(why for why, _ in nic.differences(uplink, shares))

    def repair(self, uplink: port.Uplink, shares: Sequence[port.Share]) -> tuple[str, ...]:
        fixed = []
        with self._sock("repair") as sock:
            self._delete_stale_ifbs(sock)
            with self._own_nic(sock, uplink.ifindex, uplink.interface) as nic:
                nic.follow_host_addresses()
                for why, step in nic.differences(uplink, shares):
                    step()
                    fixed.append(why)
        return tuple(fixed)

    def traffic(self) -> tuple[port.Traffic, ...]:
        with self._sock("traffic") as sock:
            per_share = [traffic for nic in self._nics(sock) if not nic.other_driver for traffic in nic.traffic()]
        return tuple(sorted(per_share, key=lambda traffic: traffic.share_id))

    def watch(self) -> port.Watch:
        with _failing_as("watch"):
            return link_events.KernelWatch(self._namespace)

    @contextlib.contextmanager
    def _sock(self, call: str) -> Iterator[rtnetlink.Socket]:
        """Yield a socket in the namespace, to one call at a time. Raises an error of the body as HardwareError of the call."""
        with _failing_as(call), self._lock, rtnetlink.Socket.open(self._namespace, self._after_effect) as sock:
            yield sock

    @contextlib.contextmanager
    def _nic(self, sock: rtnetlink.Socket, ifindex: int, name: str = "") -> Iterator[shared_nic.Nic]:
        """Yield one NIC, and keep its maps open afterwards where they have shares."""
        enforced = self._enforced()
        context = parts.NicContext(
            sock=sock,
            nic=ifindex,
            name=name or link_requests.name_of(sock, ifindex),
            classifier=enforced.shaping.classifier,
            driver=self._driver,
            fair=enforced.shaping.fair_queues,
            offsets=enforced.offsets,
        )
        held = self._held.get(ifindex)
        nic = shared_nic.Nic(context, held)
        self._held.pop(ifindex, None)
        if held is not None and nic.bpf_maps is not held:
            held.close()
        try:
            yield nic
        finally:
            if nic.bpf_maps.has_shares() and not nic.other_driver:
                self._held[ifindex] = nic.bpf_maps
            else:
                nic.bpf_maps.close()

    @contextlib.contextmanager
    def _own_nic(self, sock: rtnetlink.Socket, ifindex: int, name: str) -> Iterator[shared_nic.Nic]:
        """Yield one NIC to change. Raises HardwareError where another driver shares it."""
        with self._nic(sock, ifindex, name) as nic:
            parts.refuse_other_driver(nic.present.link, self._driver, name)
            yield nic

    def _nics(self, sock: rtnetlink.Socket) -> Iterator[shared_nic.Nic]:
        for ifindex in sorted(ifb_links.ours(sock).keys() | self._held.keys()):
            with self._nic(sock, ifindex) as nic:
                yield nic

    def _all_maps(self, sock: rtnetlink.Socket) -> Iterator[tuple[int, str, maps.Maps]]:
        """Yield the index, name and maps of every shared NIC."""
        ours = ifb_links.ours(sock)
        for ifindex in sorted(ours.keys() | self._held.keys()):
            with self._maps_of(sock, ifindex) as bpf_maps:
                if bpf_maps is not None:
                    yield ifindex, link_requests.name_of(sock, ifindex), bpf_maps

    @contextlib.contextmanager
    def _maps_of(self, sock: rtnetlink.Socket, ifindex: int) -> Iterator[maps.Maps | None]:
        """Yield the maps of a NIC, None if it has none. The held maps are used while the classifiers are verified to use them."""
        held, ifb = self._held.get(ifindex), ifb_links.find(sock, ifindex)
        if held is None and (ifb is None or not ifb_links.is_ours(ifb)):
            yield None
        elif held is not None and ifb is not None and parts.are_verified(parts.classifier_filters(sock, ifindex, ifb.ifindex), held):
            yield held
        else:
            with self._nic(sock, ifindex) as nic:
                yield nic.bpf_maps

    def _search(self, sock: rtnetlink.Socket, share_id: str) -> tuple[int, int] | None:
        """Return the interface index and class of a share, None if it is not installed."""
        for ifindex, _, bpf_maps in self._all_maps(sock):
            for minor, share in bpf_maps.read_shares(ifindex, "").items():
                if share.id == share_id and not parts.other_driver(ifb_links.find(sock, ifindex), self._driver):
                    return ifindex, minor
        return None

    def _delete_stale_ifbs(self, sock: rtnetlink.Socket) -> None:
        """Delete the ifbs of NICs that are gone, and close their maps."""
        for ifindex, link in ifb_links.ours(sock).items():
            if not link_requests.name_of(sock, ifindex) and not parts.other_driver(link, self._driver):
                link_requests.delete(sock, link.ifindex)
                held = self._held.pop(ifindex, None)
                if held is not None:
                    held.close()


@contextlib.contextmanager
def _failing_as(call: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise drakit.HardwareError(call, str(error)) from error


@functools.cache
def _first_supported(candidates: Callable[[], Iterable[Enforcement]], *, uses_ipvlan: bool) -> Enforcement:
    """Return the first way that this kernel supports, after installing a share by it in a temporary namespace. Raise OSError if there is none.

    The kernel is tried once per process.
    """
    last = OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    for candidate in candidates():
        try:
            _try(candidate)
        except OSError as error:
            last = error
        else:
            features = dataclasses.replace(candidate.shaping, fair_queues=_has_fair_queues(), ipvlan=uses_ipvlan and _has_ipvlan())
            return dataclasses.replace(candidate, shaping=features)
    raise last


os.register_at_fork(after_in_child=_first_supported.cache_clear)  # A child may have fewer rights.


def _has_fair_queues() -> bool:
    """Return whether this kernel has fq_codel, after creating such a queue in a temporary namespace."""
    with _scratch_ifb() as (sock, ifb):
        try:
            return tc_messages.try_fair_queue(sock, ifb.ifindex)
        except OSError:
            return False


def _has_ipvlan() -> bool:
    """Return whether this kernel has ipvlan, after creating one in a temporary namespace."""
    with _scratch_ifb() as (sock, ifb):
        try:
            link_requests.create_ipvlan(sock, "ipvlan0", lower=ifb.ifindex)
        except OSError:
            return False
        return True


def _try(candidate: Enforcement) -> None:
    with _scratch_ifb() as (sock, ifb):
        # Every attachment records the one of its namespace. This is tried first, because Linux 5.10 may refuse the maps too, by RLIMIT_MEMLOCK.
        _ = sock.cookie
        context = parts.NicContext(
            sock=sock, nic=ifb.ifindex, name=ifb.name, classifier=candidate.shaping.classifier, offsets=candidate.offsets
        )
        nic = shared_nic.Nic(context)
        try:
            uplink = port.Uplink(interface=ifb.name, ifindex=ifb.ifindex, mac="02:00:00:00:00:01", speed=10**9)
            nic.install(uplink, _TRIAL_SHARE)
            nic.admit(_TRIAL_SHARE, 1, _TRIAL_SHARE.mac)
        finally:
            nic.bpf_maps.close()


@contextlib.contextmanager
def _scratch_ifb() -> Iterator[tuple[rtnetlink.Socket, link_requests.Link]]:
    """Yield an ifb in a temporary network namespace. Raises OSError."""
    with rtnetlink.Socket.scratch() as sock:
        ifb_links.create(sock, ifb_links.name_for(0))
        yield sock, link_requests.existing(sock, ifb_links.name_for(0))
