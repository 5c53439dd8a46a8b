"""The BPF programs of an interface that the kernel keeps across a move: those of XDP and tcx. Those of clsact go with its qdisc.

A record has the kernel's program id by the place, or for tcx the ids in their order. A program that a pod added is removed, also one that a link
holds. A program of the host that a pod removed is attached again if it still exists; tcx programs are not, because their order belongs to the
program that attached them. Functions raise OSError.
"""

import contextlib
import errno
import functools
import struct
from collections.abc import Mapping

import drakit
from drakit_nic.netlink import link_requests, namespaces, rtnetlink
from drakit_nic.shaping import bpf

_XDP, _NESTED = 43, 0x8000
_DESCRIPTOR, _FLAGS = 1, 3
_PLACES = {"driver": (5, 4), "generic": (6, 2), "hardware": (7, 8)}
"""For each place of XDP the attribute with the program's id, and the flag that selects the place (XDP_FLAGS_*)."""
_DIRECTIONS = {"ingress": bpf.TCX_INGRESS, "egress": bpf.TCX_EGRESS}
_NOT_SUPPORTED = frozenset({errno.EINVAL, errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP})


def xdp(link: link_requests.Link) -> Mapping[str, int]:
    """Return the programs of XDP of a link."""
    attrs = rtnetlink.attributes(link.attributes.get(_XDP, b""))
    return {place: rtnetlink.as_number(attrs[attribute]) for place, (attribute, _) in _PLACES.items() if attribute in attrs}


def write_xdp(sock: rtnetlink.Socket, link: link_requests.Link, wanted: drakit.Record) -> None:
    """Remove the programs of XDP that are not in a record, and attach those that are."""
    for place, (_, flag) in _PLACES.items():
        present, recorded = xdp(link).get(place), wanted.get(place)
        if present != recorded:
            _put_xdp(sock, link, flag, recorded if isinstance(recorded, int) else 0, present or 0)


def tcx(descriptor: int, link: link_requests.Link) -> drakit.Record | None:
    """Return the programs of tcx of a link in the open namespace, None if the kernel cannot say."""
    try:
        attached = {direction: _tcx(descriptor, link.ifindex, attach_type) for direction, attach_type in _DIRECTIONS.items()}
    except OSError as error:
        if error.errno in _NOT_SUPPORTED:
            return None
        raise
    return {direction: tuple(ids) for direction, ids in attached.items() if ids}


def write_tcx(descriptor: int, link: link_requests.Link, wanted: drakit.Record) -> None:
    """Remove the programs of tcx that are not in a record."""
    for direction, attach_type in _DIRECTIONS.items():
        recorded = wanted.get(direction, ())
        kept = set(recorded) if isinstance(recorded, list | tuple) else set()
        for program in _tcx(descriptor, link.ifindex, attach_type):
            if program not in kept:
                namespaces.run_in(descriptor, functools.partial(bpf.detach_tcx, link.ifindex, attach_type, program))


def _tcx(descriptor: int, ifindex: int, attach_type: int) -> tuple[int, ...]:
    return namespaces.run_in(descriptor, lambda: bpf.tcx_programs(ifindex, attach_type))


def _put_xdp(sock: rtnetlink.Socket, link: link_requests.Link, flag: int, wanted: int, present: int) -> None:
    """Replace the program of one place of XDP by the one with this id, 0 for none."""
    with bpf.program(wanted) if wanted else contextlib.nullcontext(-1) as descriptor:
        content = rtnetlink.pack(_DESCRIPTOR, struct.pack("=i", descriptor)) + rtnetlink.number(_FLAGS, flag)
        request = rtnetlink.pack(_XDP | _NESTED, content)
        try:
            link_requests.set_attributes(sock, link.ifindex, request)
        except OSError as error:
            if error.errno != errno.EBUSY:  # A link holds the program.
                raise
            bpf.detach_xdp_links(link.ifindex, present)
            if wanted:
                link_requests.set_attributes(sock, link.ifindex, request)
