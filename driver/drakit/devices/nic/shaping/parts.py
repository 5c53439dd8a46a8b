"""The parts of a shared NIC besides classes (ifb, roots, hooks, filters): found, checked and created one by one.

Each part is created alone, so that the next call completes what a crash or an admin left between two.
The order of creation lets no frame pass unshaped: the redirection comes after its target.
"""

import dataclasses
import enum
import errno
import os
from collections.abc import Iterable, Iterator, Mapping

from drakit.core import errors
from drakit.devices.nic import port
from drakit.devices.nic.netlink import link_requests, rtnetlink
from drakit.devices.nic.shaping import bpf, classifiers, htb, ifb_links, maps, tc_messages

_OWN = "_own"
_CLAIM_TRIES = 5
_EGRESS_MAPS = frozenset({"drakit_owners", "drakit_ledger"})
_INGRESS_MAPS = frozenset({"drakit_routes", "drakit_ledger"})


class Part(enum.Enum):
    """A part; its value describes the problem when it is missing."""

    IFB = "the device that ingress is shaped on is missing or down"
    IFB_ROOT = "the root qdisc of the ingress device is not ours"
    INGRESS = "the classifier of ingress is missing"
    ROOT = "the root qdisc is not ours"
    EGRESS = "the classifier of egress is missing"
    HOOK = "there is no ingress qdisc"
    REDIRECT = "ingress is not redirected"
    GUARD = "the guard of socket priorities is missing"


@dataclasses.dataclass(frozen=True, kw_only=True)
class NicParts:
    """The parts of a NIC as they are."""

    root: tc_messages.Qdisc | None
    hook: tc_messages.Qdisc | None
    link: link_requests.Link | None
    ifb_root: tc_messages.Qdisc | None
    egress: tc_messages.Filter | None
    ingress: tc_messages.Filter | None
    redirect: tc_messages.Filter | None
    guard: tc_messages.Filter | None

    @property
    def any_of_ours(self) -> bool:
        """Whether any part of ours exists."""
        return is_our_root(self.root) or any((self.link and ifb_links.is_ours(self.link), self.redirect, self.guard))

    @property
    def owns_hook(self) -> bool:
        """Whether the hook qdisc is ours: the ifb records it and, in case the ifb is lost, so do the names of our filters there."""
        marked = any(hooked.name.endswith(_OWN) for hooked in (self.redirect, self.guard) if hooked)
        return marked or (self.link is not None and ifb_links.owns_hook(self.link))


@dataclasses.dataclass(frozen=True, kw_only=True)
class NicContext:
    """The NIC that parts belong to: a socket of its namespace, its index and name, its classifier, and whether queues are fair.

    ``owner`` is the driver that asks, empty for one without a name.
    """

    sock: rtnetlink.Socket
    nic: int
    name: str
    classifier: port.Classifier
    owner: str = ""
    fair: bool = False


def find(sock: rtnetlink.Socket, nic: int) -> NicParts:
    """Read all parts of a NIC, which need not be there.

    The ifb is created first and deleted last. Where it is missing and other parts exist, another driver may have created it since: it is read again.
    """
    present = _read(sock, nic)
    if present.link is None and present.any_of_ours and ifb_links.find(sock, nic) is not None:
        return _read(sock, nic)
    return present


def _read(sock: rtnetlink.Socket, nic: int) -> NicParts:
    link = ifb_links.find(sock, nic)
    root, hook = (tc_messages.qdisc(sock, nic, parent) for parent in (tc_messages.AT_ROOT, tc_messages.AT_INGRESS))
    ifb = link.ifindex if link else 0
    return NicParts(
        root=root,
        hook=hook,
        link=link,
        ifb_root=tc_messages.qdisc(sock, ifb, tc_messages.AT_ROOT) if ifb else None,
        egress=tc_messages.filter_at(sock, nic, tc_messages.OURS) if is_our_root(root) else None,
        ingress=tc_messages.filter_at(sock, ifb, tc_messages.OURS) if ifb else None,
        redirect=tc_messages.filter_at(sock, nic, tc_messages.HOOK_INGRESS) if hook else None,
        guard=tc_messages.filter_at(sock, nic, tc_messages.HOOK_EGRESS) if has_egress_hook(hook) else None,
    )


def classifier_filters(sock: rtnetlink.Socket, nic: int, ifb: int) -> Iterator[tc_messages.Filter | None]:
    """Yield the two filters that look into maps: of what comes in, and of what goes out."""
    yield tc_messages.filter_at(sock, ifb, tc_messages.OURS)
    yield tc_messages.filter_at(sock, nic, tc_messages.OURS)


def is_our_root(root: tc_messages.Qdisc | None) -> bool:
    """Return whether a root qdisc is our HTB."""
    return root is not None and root.kind == "htb" and root.handle == tc_messages.OURS


def chosen_by_others(root: tc_messages.Qdisc | None) -> str:
    """Return the root qdisc as text where another program configured it; empty for the kernel's default (handle 0) and for ours."""
    return str(root) if root and root.handle and not is_our_root(root) else ""


def other_owner(link: link_requests.Link | None, owner: str) -> str:
    """The driver that shares a NIC out, by the NIC's ifb, where it is another than the one that asks; a driver without a name knows no other."""
    sharer = ifb_links.owner(link) if link is not None and owner and ifb_links.is_ours(link) else ""
    return sharer if sharer != owner else ""


def refuse_other_owner(link: link_requests.Link | None, owner: str, name: str) -> None:
    """Raise HardwareError where another driver shares the NIC of this name out."""
    other = other_owner(link, owner)
    if other:
        fix = "only one driver can share out an interface; exclude it from the other (nic.exclude)"
        raise errors.HardwareError("RTM_NEWQDISC", f"{name} is shared out by the driver {other}; {fix}")


def has_egress_hook(hook: tc_messages.Qdisc | None) -> bool:
    """Return whether a NIC's hook qdisc has an egress side; an admin's plain ``ingress`` has not."""
    return hook is not None and hook.kind == "clsact"


def refuse_foreign(present: NicParts, name: str) -> None:
    """Raise HardwareError where another program's root qdisc or link is in the way."""
    if chosen_by_others(present.root):
        fix = "remove it, or take the interface out of nic.include"
        raise errors.HardwareError("RTM_NEWQDISC", f"{name} has a root qdisc of another program ({present.root}); {fix}")
    if present.link and not ifb_links.is_ours(present.link):
        raise errors.HardwareError("RTM_NEWLINK", f"the name {present.link.name} belongs to a link of another program; rename it")


def memory_of(present: NicParts, held: maps.Maps | None) -> maps.Maps:
    """Return the maps that the classifiers use: those held where they are known to, else all that can be found, completed. The caller closes them."""
    if held is not None and are_verified((present.ingress, present.egress), held):
        return held
    return maps.Maps.complete(_used_maps(present, held))


def are_verified(filters: Iterable[tc_messages.Filter | None], held: maps.Maps) -> bool:
    """Return whether all of these classifiers are there and known to look into these maps."""
    return all(classifier is not None and classifier.program in held.verified for classifier in filters)


def _used_maps(present: NicParts, held: maps.Maps | None) -> dict[str, int]:
    """Descriptors of the maps that the classifiers use; of those that none uses, what is still held."""
    kept: dict[str, int] = {}
    for classifier in (present.ingress, present.egress):
        for name, descriptor in (bpf.maps_of(classifier.program) if classifier else {}).items():
            if name in maps.NAMES and name not in kept:
                kept[name] = descriptor
            else:
                os.close(descriptor)
    for name, descriptor in held.descriptors().items() if held else ():
        if name not in kept:
            kept[name] = os.dup(descriptor)
    return kept


def missing(context: NicContext, present: NicParts, memory: maps.Maps) -> tuple[Part, ...]:
    """Return the parts that are missing or not as they should be, in the order in which they are to be made."""
    is_there: Mapping[Part, bool] = {
        Part.IFB: _is_marked(context, present.link),
        Part.IFB_ROOT: is_our_root(present.ifb_root),
        Part.INGRESS: _is_current(context, Part.INGRESS, present.ingress) and _uses(present.ingress, _INGRESS_MAPS, memory),
        Part.ROOT: is_our_root(present.root),
        Part.EGRESS: _is_current(context, Part.EGRESS, present.egress) and _uses(present.egress, _EGRESS_MAPS, memory),
        Part.HOOK: present.hook is not None,
        Part.REDIRECT: _is_current(context, Part.REDIRECT, present.redirect) and _leads_to(present.redirect, present.link),
        Part.GUARD: _is_current(context, Part.GUARD, present.guard) or (present.hook is not None and not has_egress_hook(present.hook)),
    }
    return tuple(part for part, there in is_there.items() if not there)


def make(part: Part, context: NicContext, memory: maps.Maps) -> None:
    """Create one part; the parts before it must exist."""
    sock, nic = context.sock, context.nic
    match part:
        case Part.IFB:
            _make_ifb(context)
        case Part.IFB_ROOT:
            tc_messages.add_root(sock, _ifb(context))
        case Part.INGRESS:
            program = classifiers.ingress(routes=memory.routes, ledger=memory.ledger, group_class=tc_messages.OURS | htb.HOST)
            _attach(context, _ifb(context), tc_messages.OURS, _label(context, part), program)
        case Part.ROOT:
            tc_messages.add_root(sock, nic)
        case Part.EGRESS:
            by_namespace = context.classifier is port.Classifier.NETNS
            program = classifiers.egress(owners=memory.owners, ledger=memory.ledger, by_namespace=by_namespace)
            _attach(context, nic, tc_messages.OURS, _label(context, part), program)
        case Part.HOOK:
            tc_messages.add_hooks(sock, nic)
            ifb_links.mark(sock, _ifb(context), nic, driver=context.owner, with_hook=True)
        case Part.REDIRECT:
            name = _label_at_hook(context, part)
            _attach(context, nic, tc_messages.HOOK_INGRESS, name, classifiers.everything(), redirect=_ifb(context))
        case Part.GUARD:
            _attach(context, nic, tc_messages.HOOK_EGRESS, _label_at_hook(context, part), classifiers.guard(), action=True)


def release(context: NicContext) -> None:
    """Remove all parts. The kernel restores the default root qdisc. The ifb is removed last, because it marks the NIC as ours."""
    sock, nic = context.sock, context.nic
    present = find(sock, nic)
    refuse_other_owner(present.link, context.owner, context.name)
    if present.hook:
        tc_messages.delete_filter(sock, nic, tc_messages.HOOK_INGRESS)
        if has_egress_hook(present.hook):
            tc_messages.delete_filter(sock, nic, tc_messages.HOOK_EGRESS)
        if present.owns_hook and has_egress_hook(present.hook) and not _is_used(sock, nic):
            tc_messages.delete_hooks(sock, nic)
    if is_our_root(present.root):
        tc_messages.delete_root(sock, nic)
    if present.link and ifb_links.is_ours(present.link):
        link_requests.delete(sock, present.link.ifindex)


def _is_used(sock: rtnetlink.Socket, nic: int) -> bool:
    return any(tc_messages.has_filters(sock, nic, hook) for hook in (tc_messages.HOOK_INGRESS, tc_messages.HOOK_EGRESS))


def _label(context: NicContext, part: Part) -> str:
    """Return the name of a filter, which names its program and its revision."""
    kind = f"_{context.classifier.value}" if part is Part.EGRESS else ""
    return f"drakit_{part.name.lower()}{kind}_{classifiers.REVISION}"


def _is_current(context: NicContext, part: Part, installed: tc_messages.Filter | None) -> bool:
    return installed is not None and installed.name.removesuffix(_OWN) == _label(context, part)


def _is_marked(context: NicContext, link: link_requests.Link | None) -> bool:
    """Return whether the ifb is up and marked, and by name where the driver has one: a mark of an older version is completed."""
    return link is not None and link.up and bool(link.alias) and (not context.owner or ifb_links.owner(link) == context.owner)


def _leads_to(installed: tc_messages.Filter | None, link: link_requests.Link | None) -> bool:
    return installed is not None and link is not None and installed.redirect == link.ifindex


def _uses(installed: tc_messages.Filter | None, names: frozenset[str], memory: maps.Maps) -> bool:
    """Return whether a classifier looks into just these of our maps."""
    if installed is None:
        return False
    if installed.program not in memory.verified:
        numbers = memory.numbers()
        with maps.closing(bpf.maps_of(installed.program)) as used:
            if {name: bpf.map_id(descriptor) for name, descriptor in used.items()} != {name: numbers[name] for name in names}:
                return False
        memory.verified.add(installed.program)
    return True


def _ifb(context: NicContext) -> int:
    """Return the index of the ifb, which unlike its name is never another link's."""
    link = ifb_links.find(context.sock, context.nic)
    if link is None:
        raise OSError(errno.ENODEV, f"{ifb_links.name_for(context.nic)} has just gone")
    refuse_other_owner(link, context.owner, context.name)
    return link.ifindex


def _make_ifb(context: NicContext) -> None:
    """Create the ifb, which makes the NIC this driver's, or mark the existing one."""
    for _ in range(_CLAIM_TRIES):
        present = find(context.sock, context.nic)
        refuse_other_owner(present.link, context.owner, context.name)
        refuse_foreign(present, context.name)
        is_own_hook = present.owns_hook or (present.hook is None and not (present.link and present.link.alias))
        if present.link is None:
            if ifb_links.claim(context.sock, context.nic, driver=context.owner, with_hook=is_own_hook):
                return
        elif present.link.alias or is_our_root(present.ifb_root):
            ifb_links.mark(context.sock, present.link.ifindex, context.nic, driver=context.owner, with_hook=is_own_hook)
            return
        else:  # Two drivers could mark it, but only one can put its own in its place.
            link_requests.delete(context.sock, present.link.ifindex)
    raise OSError(errno.EBUSY, f"{ifb_links.name_for(context.nic)} is created and deleted by another program")


def _label_at_hook(context: NicContext, part: Part) -> str:
    """Return a filter's name at the hook, which records the owner of the hook."""
    return _label(context, part) + (_OWN if find(context.sock, context.nic).owns_hook else "")


def _attach(context: NicContext, ifindex: int, parent: int, name: str, program: bytes, *, redirect: int = 0, action: bool = False) -> None:
    descriptor = bpf.load(name, program)
    try:
        tc_messages.put_filter(context.sock, ifindex, parent, program=descriptor, name=name, redirect=redirect, action=action)
    finally:
        os.close(descriptor)
