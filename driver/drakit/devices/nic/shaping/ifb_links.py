"""The ifb of a shared NIC: the device through which its ingress passes to be shaped. Its name has the NIC's index, its alias the driver's mark.

The alias also records which driver shares the NIC and whether the NIC's ingress hook is ours, because neither an HTB nor a clsact qdisc has room for
a mark. A link with our name that is no ifb or has another alias belongs to somebody else. A mark without a driver's name, as older versions wrote it,
belongs to any driver.

The kernel decides which of two drivers gets a NIC, because a name belongs to one link. A link cannot get an alias when it is created, so a driver
creates its ifb under a name of its own (``private_name``), then sets the NIC's name and the mark in one request. So nobody sees the ifb unmarked, and
a crash in between leaves a link that only its driver uses again or deletes. An unmarked ifb with the NIC's name was left by an older version.
"""

import base64
import errno
import hashlib
import struct
from collections.abc import Mapping

from drakit.devices.nic.netlink import link_requests, rtnetlink

_NEWLINK, _GETLINK, _SETLINK = 16, 18, 19
_IFINFO = struct.Struct("=BxHiII")
_NAME, _LINKINFO, _ALIAS = 3, 18, 20
_INFO_KIND = 1
_UP = 1
PREFIX = "drb"
_PRIVATE_PREFIX, _PRIVATE_LETTERS = "drn", 12
_MARK = "drakit ingress of "
_BY = " by "
_OWN_HOOK, _FOREIGN_HOOK = "own hook", "foreign hook"
_LOST = frozenset({errno.EEXIST, errno.ENODEV})


class Link(link_requests.Link):
    """A link as found, with the content of its mark."""

    @property
    def is_ours(self) -> bool:
        """Whether a driver of ours created it. One without an alias was left by an older version, or an admin removed its alias."""
        return self.kind == "ifb" and (self.alias.startswith(_MARK) or not self.alias)

    @property
    def owner(self) -> str:
        """The driver that shares the NIC; empty where the mark names none."""
        return self.alias.partition(",")[0].partition(_BY)[2] if self.alias.startswith(_MARK) else ""

    @property
    def owns_hook(self) -> bool:
        """Whether the NIC's ingress hook is ours to delete."""
        return self.alias.endswith(_OWN_HOOK)


def name_for(nic: int) -> str:
    """Return the ifb's name for the NIC of this index."""
    return f"{PREFIX}{nic}"


def private_name(nic: int, owner: str) -> str:
    """Return the name under which a driver creates the ifb of this NIC: unlike any other driver's, and the same after a restart. 15 letters fit."""
    digest = hashlib.sha256(f"{nic}\0{owner}".encode()).digest()
    return _PRIVATE_PREFIX + base64.b32encode(digest).decode()[:_PRIVATE_LETTERS].lower()


def find(sock: rtnetlink.Socket, nic: int) -> Link | None:
    """Return the link with the name of this NIC's ifb."""
    return _named(sock, name_for(nic))


def _named(sock: rtnetlink.Socket, name: str) -> Link | None:
    try:
        answers = sock.ask(_GETLINK, _IFINFO.pack(0, 0, 0, 0, 0) + rtnetlink.text(_NAME, name))
    except OSError as error:
        if error.errno == errno.ENODEV:
            return None
        raise
    return next(map(Link, answers), None)


def name_of(sock: rtnetlink.Socket, ifindex: int) -> str:
    """Return the name of the link of this index; empty where there is none."""
    try:
        answers = sock.ask(_GETLINK, _IFINFO.pack(0, 0, ifindex, 0, 0))
    except OSError as error:
        if error.errno == errno.ENODEV:
            return ""
        raise
    return next((Link(answer).name for answer in answers), "")


def ours(sock: rtnetlink.Socket) -> Mapping[int, Link]:
    """Return every ifb of ours by the index of its NIC, which may be gone."""
    only = rtnetlink.pack(_LINKINFO, rtnetlink.text(_INFO_KIND, "ifb"))
    found = map(Link, sock.dump(_GETLINK, _IFINFO.pack(0, 0, 0, 0, 0) + only))
    return {int(link.name[len(PREFIX) :]): link for link in found if link.alias.startswith(_MARK) and link.name[len(PREFIX) :].isdecimal()}


def create(sock: rtnetlink.Socket, name: str) -> None:
    """Create an ifb, unmarked and down; EEXIST where the name is taken."""
    linkinfo = rtnetlink.pack(_LINKINFO, rtnetlink.text(_INFO_KIND, "ifb"))
    sock.ask(_NEWLINK, _IFINFO.pack(0, 0, 0, 0, 0) + rtnetlink.text(_NAME, name) + linkinfo, rtnetlink.CREATE | rtnetlink.EXCLUSIVE)


def claim(sock: rtnetlink.Socket, nic: int, *, owner: str, owns_hook: bool) -> bool:
    """Create the ifb, marked and up; reuse one that a crash left under the private name. False, with nothing left, where another driver was first."""
    name = private_name(nic, owner)
    try:
        create(sock, name)
    except OSError as error:
        if error.errno != errno.EEXIST:
            raise
    made = _named(sock, name)
    if made is None:
        return False
    if not _is_unmarked(made):
        raise OSError(errno.EEXIST, f"the name {name} belongs to a link of another program; rename it")
    try:
        sock.ask(_SETLINK, _marked(made.ifindex, nic, owner=owner, owns_hook=owns_hook) + rtnetlink.text(_NAME, name_for(nic)))
    except OSError as error:
        if error.errno not in _LOST:
            raise
        link_requests.delete(sock, made.ifindex)
        return False
    return True


def clear(sock: rtnetlink.Socket, nic: int, owner: str) -> None:
    """Delete the ifb that a crash left under the private name, if there is one."""
    left = _named(sock, private_name(nic, owner))
    if left is not None and _is_unmarked(left):
        link_requests.delete(sock, left.ifindex)


def _is_unmarked(link: Link) -> bool:
    return link.kind == "ifb" and not link.alias


def mark(sock: rtnetlink.Socket, ifindex: int, nic: int, *, owner: str, owns_hook: bool) -> None:
    """Write the alias and set the link up."""
    sock.ask(_SETLINK, _marked(ifindex, nic, owner=owner, owns_hook=owns_hook))


def _marked(ifindex: int, nic: int, *, owner: str, owns_hook: bool) -> bytes:
    alias = f"{_MARK}{nic}{_BY if owner else ''}{owner}, {_OWN_HOOK if owns_hook else _FOREIGN_HOOK}"
    return _IFINFO.pack(0, 0, ifindex, _UP, _UP) + rtnetlink.pack(_ALIAS, alias.encode())
