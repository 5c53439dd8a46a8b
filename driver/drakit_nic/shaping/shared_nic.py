"""The shares of one NIC in the kernel: installing, removing, comparing and repairing them, and their members.

Each call reads everything from the kernel: parts and classes by netlink, shares and members from the maps. So two processes of a rolling update, or
one that was killed between any two steps, continue from the present state. A share is written into the map before its classes and deleted from it
after them. A member has its class before frames are directed to it.
"""

import dataclasses
import errno
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import drakit
from drakit_nic import port
from drakit_nic.netlink import link_requests
from drakit_nic.shaping import htb, maps, parts, tc_messages

Step = tuple[str, Callable[[], object]]

_EGRESS, _INGRESS = "egress", "ingress"


class Nic:
    """One NIC, read for one call.

    ``held`` are the maps of an earlier call, used where no classifier holds them any more. The caller closes ``bpf_maps``, which may be these maps.
    """

    def __init__(self, context: parts.NicContext, held: maps.Maps | None = None) -> None:
        self.context = context
        self.present = parts.find(context.sock, context.nic)
        self.bpf_maps = parts.open_maps(self.present, held)

    @property
    def other_driver(self) -> str:
        """Return the name of another driver that shares this NIC, empty where none does."""
        return parts.other_driver(self.present.link, self.context.driver)

    @property
    def _sides(self) -> Mapping[str, int]:
        """Return the interfaces with the driver's HTB, by direction: the NIC, and its ifb."""
        present = self.present
        sides = {_EGRESS: (self.context.nic, present.root), _INGRESS: (present.link.ifindex if present.link else 0, present.ifb_root)}
        return {side: ifindex for side, (ifindex, root) in sides.items() if parts.is_our_root(root)}

    def install(self, uplink: port.Uplink, share: port.Share) -> None:
        """Create the missing parts of the NIC, then the share. A former share of the same class is removed.

        Raises HardwareError where the NIC has shares of the other kind, which were prepared before the setting was changed.
        """
        self._set_child((share,))
        former = self.bpf_maps.share(share.minor)
        if former is not None and former.id != share.id:
            self._remove_share(share.minor)
        self._check_one_kind(share)
        part_steps = [step for _, step in self._part_steps(uplink)]
        for step in part_steps:
            step()
        self.bpf_maps.write_share(share)
        if part_steps:
            for _, step in self._owner_steps(uplink, self.bpf_maps.read_members()):
                step()
            self.follow_host_addresses()
        members = self.bpf_maps.members_of(share.minor)
        if not members:
            self._delete_lost_members(share.minor)
        self._put_classes(htb.share_classes(uplink, share, members))

    def _delete_lost_members(self, minor: int) -> None:
        """Delete the classes below a share without members, which a crash in ``admit`` leaves. A class above others cannot get a queue."""
        for ifindex in self._sides.values():
            present = tc_messages.class_at(self.context.sock, ifindex, minor)
            if present is not None and not present.spec.quantum:
                self._delete_children(ifindex, minor)

    def remove(self, minor: int) -> None:
        """Remove a share, and after the last one all parts of the NIC."""
        self._remove_share(minor)
        if not self.bpf_maps.has_shares():
            parts.release(self.context)

    def tidy(self) -> None:
        """Remove the parts of a NIC without a share, which a crash in the first ``install`` or the last ``remove`` leaves.

        Where classes of shares exist but the maps are lost, everything stays, so that running pods keep their rates.
        """
        classes = {minor for ifindex in self._sides.values() for minor in tc_messages.classes(self.context.sock, ifindex)}
        if self.present.any_of_ours and not self.bpf_maps.has_shares() and classes.isdisjoint(htb.SHARES):
            parts.release(self.context)

    def _remove_all(self) -> None:
        """Remove all shares and parts."""
        for minor in self.bpf_maps.read_shares(self.context.nic, self.context.name):
            self._remove_share(minor)
        parts.release(self.context)

    def _set_child(self, shares: Iterable[port.Share]) -> None:
        """Read the kind of the NIC's children from its shares, and direct packets for the host's IP addresses to its class where that matters."""
        is_ipvlan = any(share.child is port.ChildKind.IPVLAN for share in shares)
        self.context = dataclasses.replace(self.context, child=port.ChildKind.IPVLAN if is_ipvlan else port.ChildKind.MACVLAN)
        if is_ipvlan:
            self.bpf_maps.ensure_hosts()

    def _check_one_kind(self, share: port.Share) -> None:
        """Raise HardwareError where the kernel could not create the share's interfaces beside those of other shares."""
        if parts.Part.INGRESS not in parts.missing(self.context, self.present, self.bpf_maps):
            return  # Its classifier is that of this kind.
        for other in self.bpf_maps.read_shares(self.context.nic, self.context.name).values():
            if other.child is not share.child:
                reason = f"{self.context.name} has {other.child.value} shares, beside which the kernel allows no {share.child.value}"
                fix = f"delete the pods of those shares, or set child: {other.child.value} for it in nic.rules"
                raise drakit.HardwareError("install", f"{reason}; {fix}")

    def follow_host_addresses(self) -> None:
        """Direct packets for the host's present IP addresses to its class, where the NIC's children share its address."""
        if self.bpf_maps.hosts is not None:
            self.bpf_maps.set_hosts(htb.HOST, self._host_addresses())

    def _host_addresses(self) -> frozenset[str]:
        """Return the IP addresses of the NIC and of the host's interfaces on top of it."""
        sock, nic = self.context.sock, self.context.nic
        on_top = {link.ifindex for link in link_requests.links(sock) if link.lower == nic and link.other_nsid is None}
        return link_requests.hosts(sock, {nic, *on_top})

    def admit(self, share: port.Share, cookie: int, mac: str, hosts: Collection[str] = ()) -> None:
        """Add a member. The address of another member moves to this one. Raises HardwareError for the host's address."""
        if self.bpf_maps.route(mac) == htb.HOST:
            raise drakit.HardwareError("admit", f"{mac} is the address of {self.context.name} itself")
        directed = {host: self.bpf_maps.host_class(host) for host in hosts}
        for host, minor in directed.items():
            if minor == htb.HOST:
                reason = f"{host} is an address of the host on {self.context.name}"
                raise drakit.HardwareError("admit", f"{reason}; remove it from the host, or give the pod another address")
        member = self.bpf_maps.member_at(mac)
        if member is not None and (member.share, member.cookie) != (share.minor, cookie):
            self._remove_member(member)
            member = None
        others = [member for member in self.bpf_maps.members_of(share.minor) if member.mac != mac]
        is_new = member is None
        if member is None:
            member = htb.ShareMember(minor=self._free_member(share.minor, others), share=share.minor, cookie=cookie, mac=mac)
        self._put_classes(htb.share_classes(self._uplink(), share, [*others, member]))
        if is_new and self.context.classifier is not port.Classifier.MAC:
            self.bpf_maps.count_member(cookie, member.minor)
        if is_new:
            self.bpf_maps.add_hosts(member.minor, hosts)
        elif any(minor != member.minor for minor in directed.values()):
            self.bpf_maps.set_hosts(member.minor, hosts)  # The member's former addresses are found only in the whole map.
        self.bpf_maps.add_member(member)
        self._set_owners(member)

    def _free_member(self, share: int, members: Iterable[htb.ShareMember]) -> int:
        """Return the lowest class number that is free in the maps and the kernel. Raises HardwareError where none is left.

        A class below the share without a member was left by a crash, and is reused.
        """
        own_minors = {member.minor for member in members}
        for read in (self.bpf_maps.member_numbers, self.bpf_maps.reload_member_numbers):
            numbers = read()
            while (minor := numbers.lowest()) is not None:
                existing = tc_messages.class_at(self.context.sock, self.context.nic, minor)
                if existing is None or (existing.spec.parent == share and minor not in own_minors):
                    return minor
                numbers.take(minor)
        raise drakit.HardwareError("admit", f"{self.context.name} has no class number left for one more sandbox")

    def dismiss(self, share: port.Share, cookie: int, mac: str, hosts: Collection[str] = ()) -> None:
        """Remove a member. The other members of the share get its part of the rate. Where no ``hosts`` are given, its IP addresses are searched."""
        member = self.bpf_maps.member_at(mac)
        if member is not None and (member.share, member.cookie) == (share.minor, cookie):
            self._remove_member(member, hosts)
            self._put_classes(htb.share_classes(self._uplink(), share, self.bpf_maps.members_of(share.minor)))

    def traffic(self) -> tuple[port.Traffic, ...]:
        """Return the counters of every share that has its classes in both directions."""
        sides = {side: tc_messages.classes(self.context.sock, ifindex) for side, ifindex in self._sides.items()}
        if len(sides) < len((_EGRESS, _INGRESS)):
            return ()
        shares = self.bpf_maps.read_shares(self.context.nic, self.context.name)
        queues = tc_messages.queues(self.context.sock, fair=self.context.fair)
        drops = {side: {minor: queue.drops for minor, queue in queues.get(ifindex, {}).items()} for side, ifindex in self._sides.items()}
        return tuple(
            port.Traffic(
                share_id=share.id,
                egress=_share_counters(sides[_EGRESS], minor, drops[_EGRESS]),
                ingress=_share_counters(sides[_INGRESS], minor, drops[_INGRESS]),
            )
            for minor, share in shares.items()
            if all(minor in side for side in sides.values())
        )

    def differences(self, uplink: port.Uplink, shares: Sequence[port.Share]) -> Iterator[Step]:
        """Yield each difference from the wanted state with the step that fixes it. Run each step before requesting the next."""
        if not shares:
            if self.present.any_of_ours:
                yield "queueing of drakit without a share", self._remove_all
            return
        self._set_child(shares)
        yield from self._part_steps(uplink)
        yield from self._ledger_steps(shares)
        wanted = {share.minor for share in shares}
        members = [member for member in self.bpf_maps.read_members() if member.share in wanted]
        yield from self._listing_steps(shares, members)
        yield from self._owner_steps(uplink, members)
        specs = htb.classes_for(uplink, shares, members)
        queues = tc_messages.queues(self.context.sock, fair=self.context.fair)
        for side, ifindex in self._sides.items():
            limits = {minor: queue.limit for minor, queue in queues.get(ifindex, {}).items()}
            present = {minor: entry.spec for minor, entry in tc_messages.classes(self.context.sock, ifindex, limits).items()}
            for change in htb.differences(specs, present):
                yield f"{side}: {change.why}", _step_for(self.context, ifindex, change)
        yield from self._conflict_steps()

    def _conflict_steps(self) -> Iterator[Step]:
        """Yield a step for each member's IP address that the host has too. It raises HardwareError, because only the admin can fix this."""
        if self.bpf_maps.hosts is None:
            return
        present, of_host = self.bpf_maps.read_hosts(), self._host_addresses()
        for host in sorted(host for host, minor in present.items() if minor != htb.HOST and host in of_host):
            why = f"the host has {host} on {self.context.name}, which is the address of a pod; remove it from the host, or delete the pod"
            yield why, functools.partial(_refuse, why)

    def _part_steps(self, uplink: port.Uplink) -> Iterator[Step]:
        if not link_requests.name_of(self.context.sock, self.context.nic):
            raise drakit.HardwareError("RTM_GETLINK", f"{self.context.name} is no longer there")
        parts.refuse_foreign(self.present, self.context.name)
        for part in parts.missing(self.context, self.present, self.bpf_maps):
            yield part.value, functools.partial(self._create_part, part, uplink)

    def _create_part(self, part: parts.Part, uplink: port.Uplink) -> None:
        """Create a part, and in a new HTB all classes."""
        parts.create(part, self.context, self.bpf_maps)
        self.present = parts.find(self.context.sock, self.context.nic)
        parts.refuse_other_driver(self.present.link, self.context.driver, self.context.name)
        if part in {parts.Part.ROOT, parts.Part.IFB_ROOT}:
            shares = self.bpf_maps.read_shares(self.context.nic, self.context.name).values()
            ifindex = self._sides.get(_EGRESS if part is parts.Part.ROOT else _INGRESS)
            if ifindex is None:
                raise drakit.HardwareError("RTM_NEWQDISC", f"another program has just removed the root qdisc of {self.context.name}")
            for spec in htb.classes_for(uplink, shares, self.bpf_maps.read_members()).values():
                tc_messages.put_class(self.context.sock, ifindex, spec, fair=self.context.fair)

    def _ledger_steps(self, shares: Iterable[port.Share]) -> Iterator[Step]:
        wanted = {share.minor: share for share in shares}
        installed = self.bpf_maps.read_shares(self.context.nic, self.context.name)
        for minor in installed.keys() - wanted.keys():
            yield f"share {installed[minor].id} has no claim", functools.partial(self._remove_share, minor)
        for minor, share in wanted.items():
            existing = installed.get(minor)
            if existing is None:
                yield f"share {share.id} is missing", functools.partial(self.bpf_maps.write_share, share)
            elif dataclasses.replace(existing, interface=share.interface) != share:
                yield f"share {share.id} differs from its claim", functools.partial(self.bpf_maps.write_share, share)

    def _listing_steps(self, shares: Iterable[port.Share], members: Iterable[htb.ShareMember]) -> Iterator[Step]:
        """Yield a step for each share whose entry lacks members, as after a concurrent write by another process."""
        present: dict[int, set[str]] = {}
        for member in members:
            present.setdefault(member.share, set()).add(member.mac)
        for share in shares:
            listed, macs = self.bpf_maps.listed_members(share.minor), present.get(share.minor, set())
            if listed is not None and not macs <= listed:
                yield f"share {share.id} does not list its members", functools.partial(self.bpf_maps.set_listed_members, share.minor, macs)

    def _owner_steps(self, uplink: port.Uplink, members: Sequence[htb.ShareMember]) -> Iterator[Step]:
        bpf_maps = self.bpf_maps
        wanted = htb.owners(self.context.classifier, host=self._host, mac=uplink.mac, members=members, child=self.context.child)
        present = bpf_maps.read_owners()
        for owner in present.keys() - wanted.keys():
            yield f"stale classifier entry for {owner[1]} in namespace {owner[0]}", functools.partial(bpf_maps.delete_owner, owner)
        for owner, minor in wanted.items():
            if present.get(owner) != minor:
                why = f"no classifier entry for {owner[1]} in namespace {owner[0]} to class {htb.text(minor)}"
                yield why, functools.partial(bpf_maps.set_owner, owner, minor)
        for mac in bpf_maps.addresses() - {uplink.mac} - {member.mac for member in members}:
            yield f"stale route for {mac}", functools.partial(bpf_maps.remove_member, mac)
        for minor in set(bpf_maps.read_hosts().values()) - {htb.HOST} - {member.minor for member in members}:
            yield f"stale IP addresses of class {htb.text(minor)}", functools.partial(bpf_maps.set_hosts, minor, ())
        if bpf_maps.route(uplink.mac) != htb.HOST:
            yield "no route for the host", functools.partial(bpf_maps.route_to, uplink.mac, htb.HOST)

    @property
    def _host(self) -> int:
        return self.context.sock.cookie if self.context.classifier is port.Classifier.NETNS else htb.ANY_NAMESPACE

    def _uplink(self) -> port.Uplink:
        """Return the NIC with its present speed, the rate of its root class. Raises HardwareError where it has no classes."""
        root = tc_messages.class_at(self.context.sock, self.context.nic, htb.ROOT)
        if root is None:
            raise drakit.HardwareError("RTM_GETTCLASS", f"{self.context.name} has no HTB classes; the next check restores them")
        return port.Uplink(interface=self.context.name, ifindex=self.context.nic, mac="", speed=root.spec.rate)

    def _put_classes(self, specs: Iterable[htb.HtbClass]) -> None:
        specs = tuple(specs)
        for ifindex in self._sides.values():
            for spec in specs:
                tc_messages.put_class(self.context.sock, ifindex, spec, fair=self.context.fair)

    def _remove_share(self, minor: int) -> None:
        for member in self.bpf_maps.members_of(minor):
            self._remove_member(member)
        for ifindex in self._sides.values():
            self._delete_class(ifindex, minor)
        self.bpf_maps.delete_share(minor)

    def _delete_class(self, ifindex: int, minor: int) -> None:
        """Delete a share's class, with member classes below it that a crash left without a map entry."""
        try:
            tc_messages.delete_class(self.context.sock, ifindex, minor)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            self._delete_children(ifindex, minor)
            tc_messages.delete_class(self.context.sock, ifindex, minor)

    def _delete_children(self, ifindex: int, minor: int) -> None:
        for child, child_class in tc_messages.classes(self.context.sock, ifindex).items():
            if child_class.spec.parent == minor:
                tc_messages.delete_class(self.context.sock, ifindex, child)

    def _set_owners(self, member: htb.ShareMember) -> None:
        """Direct the frames that a member sends to its class."""
        if self.context.classifier is port.Classifier.MAC:
            self.bpf_maps.set_owner((htb.ANY_NAMESPACE, member.mac), member.minor)
            return
        for owner, minor in htb.owners_of(member).items():
            self.bpf_maps.set_owner(owner, minor)
        self.bpf_maps.set_owner((member.cookie, htb.ANY), member.minor, unless_owned=True)

    def _remove_member(self, member: htb.ShareMember, hosts: Collection[str] = ()) -> None:
        bpf_maps = self.bpf_maps
        for owner in htb.owners_of(member):
            bpf_maps.delete_owner(owner)
        if hosts:
            bpf_maps.remove_hosts(member.minor, hosts)
        else:
            bpf_maps.set_hosts(member.minor, ())
        bpf_maps.remove_member(member.mac)
        if self.context.classifier is not port.Classifier.MAC and bpf_maps.uncount_member(member.cookie, member.minor):
            bpf_maps.delete_owner((member.cookie, htb.ANY))
        elif bpf_maps.owner((member.cookie, htb.ANY)) == member.minor:
            successor = next((other.minor for other in bpf_maps.read_members() if other.cookie == member.cookie), None)
            if successor is None:
                bpf_maps.delete_owner((member.cookie, htb.ANY))
            else:
                bpf_maps.set_first_member(member.cookie, successor)
        for ifindex in self._sides.values():
            tc_messages.delete_class(self.context.sock, ifindex, member.minor)


def _refuse(why: str) -> None:
    raise drakit.HardwareError("repair", why)


def _step_for(context: parts.NicContext, ifindex: int, change: htb.Change) -> Callable[[], object]:
    if change.is_drop:
        return functools.partial(tc_messages.delete_class, context.sock, ifindex, change.spec.minor)
    return functools.partial(tc_messages.put_class, context.sock, ifindex, change.spec, fair=context.fair)


def _share_counters(side: Mapping[int, tc_messages.Class], minor: int, drops: Mapping[int, int]) -> port.Counters:
    """Return a share's counters: bytes and packets of its class, and backlog and drops including its members' queues."""
    counters = side[minor].counters
    members = [number for number, entry in side.items() if entry.spec.parent == minor]
    member_backlog = sum(side[number].counters.backlog for number in members)
    return dataclasses.replace(
        counters, drops=sum(drops.get(number, 0) for number in (minor, *members)), backlog=counters.backlog + member_backlog
    )
