"""The shares of one NIC in the kernel: installed, removed, given members, compared and repaired.

Each call reads everything from the kernel: parts and classes by netlink, shares and members from the maps. So two processes of a rolling update, or
one that was killed between any two steps, continue from what exists. Order: a share is in the map before it has classes, and is deleted from it
after them; a member has its class before frames are directed to it.
"""

import dataclasses
import errno
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from drakit.core import errors
from drakit.devices.nic import port
from drakit.devices.nic.netlink import link_requests
from drakit.devices.nic.shaping import htb, maps, parts, tc_messages

Step = tuple[str, Callable[[], object]]

_OUT, _IN = "egress", "ingress"


class Nic:
    """One NIC, read for one call. ``held`` are maps of an earlier call, used where no classifier holds them any more.

    The caller closes ``memory``, which may be these maps.
    """

    def __init__(self, context: parts.NicContext, held: maps.Maps | None = None) -> None:
        self.context = context
        self.present = parts.find(context.sock, context.nic)
        self.memory = parts.memory_of(self.present, held)

    @property
    def other_owner(self) -> str:
        """The name of another driver that shares this NIC; empty if none does."""
        return parts.other_owner(self.present.link, self.context.owner)

    @property
    def _sides(self) -> Mapping[str, int]:
        """The interfaces that have classes now, by direction: the NIC, and its ifb."""
        present = self.present
        sides = {_OUT: (self.context.nic, present.root), _IN: (present.link.ifindex if present.link else 0, present.ifb_root)}
        return {side: ifindex for side, (ifindex, root) in sides.items() if parts.is_our_root(root)}

    def install(self, uplink: port.Uplink, share: port.Share) -> None:
        """Create the missing parts of the NIC, then the share."""
        former = self.memory.share(share.minor)
        if former is not None and former.id != share.id:
            self._take(share.minor)
        fresh = [step for _, step in self._part_steps(uplink)]
        for step in fresh:
            step()
        self.memory.write_share(share)
        if fresh:
            for _, step in self._owner_steps(uplink, self.memory.read_members()):
                step()
        self._put(htb.share_classes(uplink, share, self.memory.members_of(share.minor)))

    def remove(self, minor: int) -> None:
        """Remove a share, and with the last one all parts of the NIC."""
        self._take(minor)
        if not self.memory.has_shares():
            parts.release(self.context)

    def tidy(self) -> None:
        """Restore the NIC where it has no share: a crash in the first ``install`` or the last ``remove`` leaves parts without one.

        Where classes exist but the maps that name their shares are lost, everything stays, so that running pods keep their rates.
        """
        classes = {minor for ifindex in self._sides.values() for minor in tc_messages.classes(self.context.sock, ifindex)}
        if self.present.any_of_ours and not self.memory.has_shares() and classes.isdisjoint(htb.SHARES):
            parts.release(self.context)

    def _empty(self) -> None:
        """Remove all shares and parts."""
        for minor in self.memory.read_shares(self.context.nic, self.context.name):
            self._take(minor)
        parts.release(self.context)

    def admit(self, share: port.Share, cookie: int, mac: str) -> None:
        """Add a member. An address of another member moves to this one. Raises HardwareError for the host's address."""
        if self.memory.route(mac) == htb.HOST:
            raise errors.HardwareError("admit", f"{mac} is the address of {self.context.name} itself")
        member = self.memory.member_at(mac)
        if member is not None and (member.share, member.cookie) != (share.minor, cookie):
            self._remove_member(member)
            member = None
        others = [member for member in self.memory.members_of(share.minor) if member.mac != mac]
        is_new = member is None
        if member is None:
            member = htb.ShareMember(minor=self._free_member(share.minor, others), share=share.minor, cookie=cookie, mac=mac)
        self._put(htb.share_classes(self._uplink(), share, [*others, member]))
        if is_new and self.context.classifier is not port.Classifier.MAC:
            self.memory.count_member(cookie, member.minor)
        self.memory.add_member(member)
        self._own(member)

    def _free_member(self, share: int, members: Iterable[htb.ShareMember]) -> int:
        """Return the lowest class number that neither the maps nor the kernel has in use.

        A class below the share without a member was left by a crash, and is reused.
        """
        own = {member.minor for member in members}
        for read in (self.memory.member_numbers, self.memory.reload_member_numbers):
            numbers = read()
            while (minor := numbers.lowest()) is not None:
                existing = tc_messages.class_at(self.context.sock, self.context.nic, minor)
                if existing is None or (existing.spec.parent == share and minor not in own):
                    return minor
                numbers.take(minor)
        raise errors.HardwareError("admit", f"{self.context.name} has no class number left for one more sandbox")

    def dismiss(self, share: port.Share, cookie: int, mac: str) -> None:
        """Remove a member; the others of its share get its part of the rate."""
        member = self.memory.member_at(mac)
        if member is not None and (member.share, member.cookie) == (share.minor, cookie):
            self._remove_member(member)
            self._put(htb.share_classes(self._uplink(), share, self.memory.members_of(share.minor)))

    def traffic(self) -> tuple[port.Traffic, ...]:
        """Counters of every share that has its classes in both directions."""
        sides = {side: tc_messages.classes(self.context.sock, ifindex) for side, ifindex in self._sides.items()}
        if len(sides) < len((_OUT, _IN)):
            return ()
        shares = self.memory.read_shares(self.context.nic, self.context.name)
        queues = tc_messages.queues(self.context.sock, fair=self.context.fair)
        drops = {side: {minor: queue.drops for minor, queue in queues.get(ifindex, {}).items()} for side, ifindex in self._sides.items()}
        return tuple(
            port.Traffic(
                share_id=share.id,
                egress=_counters(sides[_OUT], minor, drops[_OUT]),
                ingress=_counters(sides[_IN], minor, drops[_IN]),
            )
            for minor, share in shares.items()
            if all(minor in side for side in sides.values())
        )

    def differences(self, uplink: port.Uplink, shares: Sequence[port.Share]) -> Iterator[Step]:
        """Yield each difference from the wanted state with the step that fixes it. Run each step before requesting the next."""
        if not shares:
            if self.present.any_of_ours:
                yield "queueing of drakit without a share", self._empty
            return
        yield from self._part_steps(uplink)
        yield from self._ledger_steps(shares)
        wanted = {share.minor for share in shares}
        members = [member for member in self.memory.read_members() if member.share in wanted]
        yield from self._listing_steps(shares, members)
        yield from self._owner_steps(uplink, members)
        specs = htb.classes_for(uplink, shares, members)
        queues = tc_messages.queues(self.context.sock, fair=self.context.fair)
        for side, ifindex in self._sides.items():
            limits = {minor: queue.limit for minor, queue in queues.get(ifindex, {}).items()}
            present = {minor: entry.spec for minor, entry in tc_messages.classes(self.context.sock, ifindex, limits).items()}
            for change in htb.differences(specs, present):
                yield f"{side}: {change.why}", _change(self.context, ifindex, change)

    def _part_steps(self, uplink: port.Uplink) -> Iterator[Step]:
        if not link_requests.name_of(self.context.sock, self.context.nic):
            raise errors.HardwareError("RTM_GETLINK", f"{self.context.name} is no longer there")
        parts.refuse_foreign(self.present, self.context.name)
        for part in parts.missing(self.context, self.present, self.memory):
            yield part.value, functools.partial(self._make, part, uplink)

    def _make(self, part: parts.Part, uplink: port.Uplink) -> None:
        """Make a part, and all classes in a fresh HTB."""
        parts.make(part, self.context, self.memory)
        self.present = parts.find(self.context.sock, self.context.nic)
        parts.refuse_other_owner(self.present.link, self.context.owner, self.context.name)
        if part in {parts.Part.ROOT, parts.Part.IFB_ROOT}:
            shares = self.memory.read_shares(self.context.nic, self.context.name).values()
            ifindex = self._sides.get(_OUT if part is parts.Part.ROOT else _IN)
            if ifindex is None:
                raise errors.HardwareError("RTM_NEWQDISC", f"another program has just removed the root qdisc of {self.context.name}")
            for spec in htb.classes_for(uplink, shares, self.memory.read_members()).values():
                tc_messages.put_class(self.context.sock, ifindex, spec, fair=self.context.fair)

    def _ledger_steps(self, shares: Iterable[port.Share]) -> Iterator[Step]:
        wanted = {share.minor: share for share in shares}
        installed = self.memory.read_shares(self.context.nic, self.context.name)
        for minor in installed.keys() - wanted.keys():
            yield f"share {installed[minor].id} has no claim", functools.partial(self._take, minor)
        for minor, share in wanted.items():
            kept = installed.get(minor)
            if kept is None:
                yield f"share {share.id} is missing", functools.partial(self.memory.write_share, share)
            elif dataclasses.replace(kept, interface=share.interface) != share:
                yield f"share {share.id} differs from its claim", functools.partial(self.memory.write_share, share)

    def _listing_steps(self, shares: Iterable[port.Share], members: Iterable[htb.ShareMember]) -> Iterator[Step]:
        """Yield the shares whose entry lists fewer members than exist, as after a concurrent write by another process."""
        present: dict[int, set[str]] = {}
        for member in members:
            present.setdefault(member.share, set()).add(member.mac)
        for share in shares:
            listed, macs = self.memory.listed_members(share.minor), present.get(share.minor, set())
            if listed is not None and not macs <= listed:
                yield f"share {share.id} does not list its members", functools.partial(self.memory.set_listed_members, share.minor, macs)

    def _owner_steps(self, uplink: port.Uplink, members: Sequence[htb.ShareMember]) -> Iterator[Step]:
        memory = self.memory
        wanted = htb.owners(self.context.classifier, host=self._host, mac=uplink.mac, members=members)
        present = memory.read_owners()
        for owner in present.keys() - wanted.keys():
            yield f"stale classifier entry for {owner[1]} in namespace {owner[0]}", functools.partial(memory.delete_owner, owner)
        for owner, minor in wanted.items():
            if present.get(owner) != minor:
                why = f"no classifier entry for {owner[1]} in namespace {owner[0]} to class {htb.text(minor)}"
                yield why, functools.partial(memory.set_owner, owner, minor)
        for mac in memory.addresses() - {uplink.mac} - {member.mac for member in members}:
            yield f"stale route for {mac}", functools.partial(memory.remove_member, mac)
        if memory.route(uplink.mac) != htb.HOST:
            yield "no route for the host", functools.partial(memory.route_to, uplink.mac, htb.HOST)

    @property
    def _host(self) -> int:
        return self.context.sock.cookie if self.context.classifier is port.Classifier.NETNS else htb.ANY_NAMESPACE

    def _uplink(self) -> port.Uplink:
        """Return the NIC as it is shaped now: by its root class."""
        root = tc_messages.class_at(self.context.sock, self.context.nic, htb.ROOT)
        if root is None:
            raise errors.HardwareError("RTM_GETTCLASS", f"{self.context.name} has lost its classes; the next check restores them")
        return port.Uplink(interface=self.context.name, ifindex=self.context.nic, mac="", speed=root.spec.rate)

    def _put(self, specs: Iterable[htb.HtbClass]) -> None:
        listed = tuple(specs)
        for ifindex in self._sides.values():
            for spec in listed:
                tc_messages.put_class(self.context.sock, ifindex, spec, fair=self.context.fair)

    def _take(self, minor: int) -> None:
        for member in self.memory.members_of(minor):
            self._remove_member(member)
        for ifindex in self._sides.values():
            self._delete(ifindex, minor)
        self.memory.delete_share(minor)

    def _delete(self, ifindex: int, minor: int) -> None:
        """Delete a share's class, and member classes below it that a crash left without a map entry."""
        try:
            tc_messages.delete_class(self.context.sock, ifindex, minor)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            for child, below in tc_messages.classes(self.context.sock, ifindex).items():
                if below.spec.parent == minor:
                    tc_messages.delete_class(self.context.sock, ifindex, child)
            tc_messages.delete_class(self.context.sock, ifindex, minor)

    def _own(self, member: htb.ShareMember) -> None:
        if self.context.classifier is port.Classifier.MAC:
            self.memory.set_owner((htb.ANY_NAMESPACE, member.mac), member.minor)
            return
        for owner, minor in htb.owners_of(member).items():
            self.memory.set_owner(owner, minor)
        self.memory.set_owner((member.cookie, htb.ANY), member.minor, unless_owned=True)

    def _remove_member(self, member: htb.ShareMember) -> None:
        memory = self.memory
        for owner in htb.owners_of(member):
            memory.delete_owner(owner)
        memory.remove_member(member.mac)
        if self.context.classifier is not port.Classifier.MAC and memory.uncount_member(member.cookie, member.minor):
            memory.delete_owner((member.cookie, htb.ANY))
        elif memory.owner((member.cookie, htb.ANY)) == member.minor:
            successor = next((other.minor for other in memory.read_members() if other.cookie == member.cookie), None)
            if successor is None:
                memory.delete_owner((member.cookie, htb.ANY))
            else:
                memory.set_first_member(member.cookie, successor)
        for ifindex in self._sides.values():
            tc_messages.delete_class(self.context.sock, ifindex, member.minor)


def _change(context: parts.NicContext, ifindex: int, change: htb.Change) -> Callable[[], object]:
    if change.is_drop:
        return functools.partial(tc_messages.delete_class, context.sock, ifindex, change.spec.minor)
    return functools.partial(tc_messages.put_class, context.sock, ifindex, change.spec, fair=context.fair)


def _counters(side: Mapping[int, tc_messages.Class], minor: int, drops: Mapping[int, int]) -> port.Counters:
    """Return a share's counters: bytes and packets of its class, and backlog and drops including its members' queues."""
    own = side[minor].counters
    members = [number for number, entry in side.items() if entry.spec.parent == minor]
    waiting = sum(side[number].counters.backlog for number in members)
    return dataclasses.replace(own, drops=sum(drops.get(number, 0) for number in (minor, *members)), backlog=own.backlog + waiting)
