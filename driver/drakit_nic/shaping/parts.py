"""The parts of a shared NIC besides classes (ifb, root qdiscs, hooks, filters): read, checked and created one by one.

Each part is created by a request of its own, so that the next call completes the parts that a crash or an admin left.
The redirection is created after its target, so that no frame passes unshaped.
"""

import contextlib
import dataclasses
import enum
import errno
import os
from collections.abc import Iterable, Iterator, Mapping

import drakit
from drakit_nic import port
from drakit_nic.netlink import link_requests, rtnetlink
from drakit_nic.shaping import bpf, classifiers, htb, ifb_links, maps, socket_namespace, tc_messages

_OWN_SUFFIX = "_own"
_CLAIM_TRIES = 5
_EGRESS_MAPS = frozenset({"drakit_owners", "drakit_ledger"})
_INGRESS_MAPS = frozenset({"drakit_routes", "drakit_ledger"})
_IPVLAN_INGRESS_MAPS = _INGRESS_MAPS | {maps.HOSTS}


class Part(enum.Enum):
    """A part. Its value is the text that reports it missing."""

    IFB = "the ingress device is missing or down"
    IFB_ROOT = "the root qdisc of the ingress device is not drakit's"
    INGRESS = "the ingress classifier is missing"
    ROOT = "the root qdisc is not drakit's"
    EGRESS = "the egress classifier is missing"
    HOOK = "the ingress qdisc is missing"
    REDIRECT = "the ingress redirection is missing"
    GUARD = "the socket priority guard is missing"


@dataclasses.dataclass(frozen=True, kw_only=True)
class NicParts:
    """The existing parts of a NIC."""

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
        """Return whether any part of the driver's exists."""
        return is_our_root(self.root) or any((self.link and ifb_links.is_ours(self.link), self.redirect, self.guard))

    @property
    def owns_hook(self) -> bool:
        """Return whether the hook qdisc is the driver's. The ifb records that and, in case the ifb is lost, so do the filters' names at the hook."""
        is_marked = any(hook_filter.name.endswith(_OWN_SUFFIX) for hook_filter in (self.redirect, self.guard) if hook_filter)
        return is_marked or (self.link is not None and ifb_links.owns_hook(self.link))


@dataclasses.dataclass(frozen=True, kw_only=True)
class NicContext:
    """The NIC that parts belong to: a socket of its namespace, its index and name, its classifier, and whether queues are fair.

    ``driver`` is the name of the calling driver, empty where it has none. ``offsets`` is for kernels whose programs have no helper for namespaces.
    ``child`` is the kind of the NIC's children, which decides how received frames are classified.
    """

    sock: rtnetlink.Socket
    nic: int
    name: str
    classifier: port.Classifier
    driver: str = ""
    fair: bool = False
    offsets: socket_namespace.Offsets | None = None
    child: port.ChildKind = port.ChildKind.MACVLAN

    @property
    def is_ipvlan(self) -> bool:
        """Return whether the NIC's children are ipvlans, which have the NIC's address."""
        return self.child is port.ChildKind.IPVLAN


def find(sock: rtnetlink.Socket, nic: int) -> NicParts:
    """Return the existing parts of a NIC, which may be gone.

    The ifb is created first and deleted last. Where only the ifb is missing, another driver may have created it meanwhile, so all is read again.
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
    """Yield the two filters that use maps: the classifier of ingress, then the one of egress."""
    yield tc_messages.filter_at(sock, ifb, tc_messages.OURS)
    yield tc_messages.filter_at(sock, nic, tc_messages.OURS)


def is_our_root(root: tc_messages.Qdisc | None) -> bool:
    """Return whether a root qdisc is the driver's HTB."""
    return root is not None and root.kind == "htb" and root.handle == tc_messages.OURS


def chosen_by_others(root: tc_messages.Qdisc | None) -> str:
    """Return the root qdisc as text where another program configured it, empty for the kernel's default (handle 0) and the driver's own."""
    return str(root) if root and root.handle and not is_our_root(root) else ""


def other_driver(link: link_requests.Link | None, driver: str) -> str:
    """Return the other driver that shares the NIC of this ifb, empty where there is none. A driver without a name detects no other."""
    present = ifb_links.driver_of(link) if link is not None and driver and ifb_links.is_ours(link) else ""
    return present if present != driver else ""


def refuse_other_driver(link: link_requests.Link | None, driver: str, name: str) -> None:
    """Raise HardwareError where another driver shares the NIC of this name."""
    other = other_driver(link, driver)
    if other:
        fix = "only one driver can share out an interface; exclude it from the other (nic.exclude)"
        raise drakit.HardwareError("RTM_NEWQDISC", f"{name} is shared out by the driver {other}; {fix}")


def has_egress_hook(hook: tc_messages.Qdisc | None) -> bool:
    """Return whether a NIC's hook qdisc has an egress hook. An admin's plain ``ingress`` qdisc has none."""
    return hook is not None and hook.kind == "clsact"


def refuse_foreign(present: NicParts, name: str) -> None:
    """Raise HardwareError where another program has the root qdisc or the ifb's name."""
    if chosen_by_others(present.root):
        fix = "remove it, or take the interface out of nic.include"
        raise drakit.HardwareError("RTM_NEWQDISC", f"{name} has a root qdisc of another program ({present.root}); {fix}")
    if present.link and not ifb_links.is_ours(present.link):
        raise drakit.HardwareError("RTM_NEWLINK", f"the name {present.link.name} belongs to a link of another program; rename it")


def open_maps(present: NicParts, held: maps.Maps | None) -> maps.Maps:
    """Return the maps that the classifiers use, with new ones for those missing. The caller closes them.

    The held maps are returned where the classifiers are verified to use them.
    """
    if held is not None and are_verified((present.ingress, present.egress), held):
        return held
    with contextlib.ExitStack() as on_error:
        opened = maps.Maps.complete(_used_maps(present, held, on_error))
        on_error.pop_all()
    return opened


def are_verified(filters: Iterable[tc_messages.Filter | None], held: maps.Maps) -> bool:
    """Return whether all of these classifiers exist and are verified to use these maps."""
    return all(classifier is not None and classifier.program in held.verified for classifier in filters)


def _used_maps(present: NicParts, held: maps.Maps | None, on_error: contextlib.ExitStack) -> dict[str, int]:
    """Return descriptors of the maps that the classifiers use, and of held maps that no classifier uses any more. ``on_error`` closes them."""
    descriptors: dict[str, int] = {}
    for classifier in (present.ingress, present.egress):
        for name, descriptor in (bpf.maps_of(classifier.program) if classifier else {}).items():
            if name in maps.NAMES and name not in descriptors:
                descriptors[name] = descriptor
                on_error.callback(os.close, descriptor)
            else:
                os.close(descriptor)
    for name, descriptor in held.descriptors().items() if held else ():
        if name not in descriptors:
            descriptors[name] = os.dup(descriptor)
            on_error.callback(os.close, descriptors[name])
    return descriptors


def missing(context: NicContext, present: NicParts, bpf_maps: maps.Maps) -> tuple[Part, ...]:
    """Return the parts that are missing or differ from the wanted ones, in the order of their creation."""
    ingress_maps = _IPVLAN_INGRESS_MAPS if context.is_ipvlan else _INGRESS_MAPS
    is_correct: Mapping[Part, bool] = {
        Part.IFB: _is_marked(context, present.link),
        Part.IFB_ROOT: is_our_root(present.ifb_root),
        Part.INGRESS: _is_current(context, Part.INGRESS, present.ingress) and _uses_maps(present.ingress, ingress_maps, bpf_maps),
        Part.ROOT: is_our_root(present.root),
        Part.EGRESS: _is_current(context, Part.EGRESS, present.egress) and _uses_maps(present.egress, _EGRESS_MAPS, bpf_maps),
        Part.HOOK: present.hook is not None,
        Part.REDIRECT: _is_current(context, Part.REDIRECT, present.redirect) and _redirects_to(present.redirect, present.link),
        Part.GUARD: _is_current(context, Part.GUARD, present.guard) or (present.hook is not None and not has_egress_hook(present.hook)),
    }
    return tuple(part for part, correct in is_correct.items() if not correct)


def create(part: Part, context: NicContext, bpf_maps: maps.Maps) -> None:
    """Create one part. The parts before it must exist."""
    sock, nic = context.sock, context.nic
    match part:
        case Part.IFB:
            _create_ifb(context)
        case Part.IFB_ROOT:
            tc_messages.add_root(sock, _ifb(context))
        case Part.INGRESS:
            host_class, hosts = tc_messages.OURS | htb.HOST, bpf_maps.hosts if context.is_ipvlan else None
            program = classifiers.ingress(routes=bpf_maps.routes, ledger=bpf_maps.ledger, host_class=host_class, hosts=hosts)
            _attach_filter(context, _ifb(context), tc_messages.OURS, _filter_name(context, part), program)
        case Part.ROOT:
            tc_messages.add_root(sock, nic)
        case Part.EGRESS:
            by_namespace = context.classifier is port.Classifier.NETNS
            program = classifiers.egress(owners=bpf_maps.owners, ledger=bpf_maps.ledger, by_namespace=by_namespace, offsets=context.offsets)
            _attach_filter(context, nic, tc_messages.OURS, _filter_name(context, part), program)
        case Part.HOOK:
            tc_messages.add_hooks(sock, nic)
            ifb_links.mark(sock, _ifb(context), nic, driver=context.driver, with_hook=True)
        case Part.REDIRECT:
            name = _hook_filter_name(context, part)
            _attach_filter(context, nic, tc_messages.HOOK_INGRESS, name, classifiers.everything(), redirect=_ifb(context))
        case Part.GUARD:
            _attach_filter(context, nic, tc_messages.HOOK_EGRESS, _hook_filter_name(context, part), classifiers.guard(), action=True)


def release(context: NicContext) -> None:
    """Remove all parts. The kernel restores the default root qdisc. The ifb is removed last, because it marks the NIC as this driver's."""
    sock, nic = context.sock, context.nic
    present = find(sock, nic)
    refuse_other_driver(present.link, context.driver, context.name)
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


def _filter_name(context: NicContext, part: Part) -> str:
    """Return the name of a filter, which has its program and its revision."""
    kind = f"_{context.classifier.value}" if part is Part.EGRESS else "_ipvlan" if part is Part.INGRESS and context.is_ipvlan else ""
    return f"drakit_{part.name.lower()}{kind}_{classifiers.REVISION}"


def _is_current(context: NicContext, part: Part, installed: tc_messages.Filter | None) -> bool:
    return installed is not None and installed.name.removesuffix(_OWN_SUFFIX) == _filter_name(context, part)


def _is_marked(context: NicContext, link: link_requests.Link | None) -> bool:
    """Return whether the ifb is up and its mark complete. A mark of an older version lacks the driver's name."""
    return link is not None and link.up and bool(link.alias) and (not context.driver or ifb_links.driver_of(link) == context.driver)


def _redirects_to(installed: tc_messages.Filter | None, link: link_requests.Link | None) -> bool:
    return installed is not None and link is not None and installed.redirect == link.ifindex


def _uses_maps(installed: tc_messages.Filter | None, names: frozenset[str], bpf_maps: maps.Maps) -> bool:
    """Return whether a classifier uses exactly these of the driver's maps."""
    if installed is None:
        return False
    if installed.program not in bpf_maps.verified:
        numbers = bpf_maps.numbers()
        with maps.closing(bpf.maps_of(installed.program)) as used:
            if {name: bpf.map_id(descriptor) for name, descriptor in used.items()} != {name: numbers[name] for name in names}:
                return False
        bpf_maps.verified.add(installed.program)
    return True


def _ifb(context: NicContext) -> int:
    """Return the index of the ifb, because another link may get its name. Raises OSError, HardwareError."""
    link = ifb_links.find(context.sock, context.nic)
    if link is None:
        raise OSError(errno.ENODEV, f"{ifb_links.name_for(context.nic)} was just deleted")
    refuse_other_driver(link, context.driver, context.name)
    return link.ifindex


def _create_ifb(context: NicContext) -> None:
    """Create the ifb, which claims the NIC for this driver, or mark the existing one."""
    for _ in range(_CLAIM_TRIES):
        present = find(context.sock, context.nic)
        refuse_other_driver(present.link, context.driver, context.name)
        refuse_foreign(present, context.name)
        is_own_hook = present.owns_hook or (present.hook is None and not (present.link and present.link.alias))
        if present.link is None:
            if ifb_links.claim(context.sock, context.nic, driver=context.driver, with_hook=is_own_hook):
                return
        elif present.link.alias or is_our_root(present.ifb_root):
            ifb_links.mark(context.sock, present.link.ifindex, context.nic, driver=context.driver, with_hook=is_own_hook)
            return
        else:  # Two drivers could mark it, but only one can create its own in its place.
            link_requests.delete(context.sock, present.link.ifindex)
    raise OSError(errno.EBUSY, f"{ifb_links.name_for(context.nic)} is created and deleted by another program")


def _hook_filter_name(context: NicContext, part: Part) -> str:
    """Return the name of a filter at the hook, which records whether the hook is the driver's."""
    return _filter_name(context, part) + (_OWN_SUFFIX if find(context.sock, context.nic).owns_hook else "")


def _attach_filter(
    context: NicContext, ifindex: int, parent: int, name: str, program: bytes, *, redirect: int = 0, action: bool = False
) -> None:
    descriptor = bpf.load(name, program)
    try:
        tc_messages.put_filter(context.sock, ifindex, parent, program=descriptor, name=name, redirect=redirect, action=action)
    finally:
        os.close(descriptor)
