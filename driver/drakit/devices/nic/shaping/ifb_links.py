"""The ifb of a NIC: the device its ingress passes through to be shaped. It is named after the NIC's index and marked by its alias.

The alias also remembers which driver shares the NIC out, by its name, and whether the NIC's ingress hook is ours, because neither an HTB nor a clsact
qdisc has a place for a mark of its own. What has our name and another alias, or is no ifb, is somebody else's. A mark without a name, as older
versions wrote it, is any driver's.

Which of two drivers has a NIC is decided by the kernel, which gives a name to one link. No alias can be given with a creation, so a driver makes
its ifb under a name that is its own (``name_before``), and gives it the NIC's name and the mark in one request. So nobody sees that ifb unmarked, and
a death in between leaves a link that nobody else looks at and its driver takes up or removes. An unmarked ifb of the NIC's name was left by an
older version.
"""

import base64
import dataclasses
import errno
import hashlib
import struct
from collections.abc import Mapping

from drakit.devices.nic.netlink import rtnetlink

_NEWLINK, _DELLINK, _GETLINK, _SETLINK = 16, 17, 18, 19
_IFINFO = struct.Struct("=BxHiII")
_NAME, _LINKINFO, _ALIAS = 3, 18, 20
_INFO_KIND = 1
_UP = 1
PREFIX = "drb"
_PREFIX_BEFORE, _LETTERS_BEFORE = "drn", 12
_MARK = "drakit ingress of "
_BY = " by "
_OWN_HOOK, _FOREIGN_HOOK = "own hook", "foreign hook"
_LOST = frozenset({errno.EEXIST, errno.ENODEV})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Link:
    """A link as found."""

    ifindex: int
    name: str
    kind: str
    alias: str
    up: bool

    @property
    def is_ours(self) -> bool:
        """Whether a driver of ours made it; one that has no alias was left so by an older version, or an admin took the alias away."""
        return self.kind == "ifb" and (self.alias.startswith(_MARK) or not self.alias)

    @property
    def owner(self) -> str:
        """The driver that shares the NIC out; empty where the mark names none."""
        return self.alias.partition(",")[0].partition(_BY)[2] if self.alias.startswith(_MARK) else ""

    @property
    def owns_hook(self) -> bool:
        """Whether the NIC's ingress hook is ours to delete."""
        return self.alias.endswith(_OWN_HOOK)


def name_for(nic: int) -> str:
    """The ifb's name for the NIC of this index."""
    return f"{PREFIX}{nic}"


def name_before(nic: int, owner: str) -> str:
    """The name under which a driver makes the ifb of this NIC: no other driver's, and the same in its next life. 15 letters, all that fit."""
    digest = hashlib.sha256(f"{nic}\0{owner}".encode()).digest()
    return _PREFIX_BEFORE + base64.b32encode(digest).decode()[:_LETTERS_BEFORE].lower()


def find(sock: rtnetlink.Socket, nic: int) -> Link | None:
    """The link with the name of this NIC's ifb."""
    return _named(sock, name_for(nic))


def _named(sock: rtnetlink.Socket, name: str) -> Link | None:
    try:
        answers = sock.ask(_GETLINK, _IFINFO.pack(0, 0, 0, 0, 0) + rtnetlink.text(_NAME, name))
    except OSError as error:
        if error.errno == errno.ENODEV:
            return None
        raise
    return next(map(_link, answers), None)


def name_of(sock: rtnetlink.Socket, ifindex: int) -> str:
    """The name of the link of this index; empty where there is none."""
    try:
        answers = sock.ask(_GETLINK, _IFINFO.pack(0, 0, ifindex, 0, 0))
    except OSError as error:
        if error.errno == errno.ENODEV:
            return ""
        raise
    return next((_link(answer).name for answer in answers), "")


def ours(sock: rtnetlink.Socket) -> Mapping[int, Link]:
    """Every ifb of ours, by the index of its NIC, which need not be there any more."""
    only = rtnetlink.pack(_LINKINFO, rtnetlink.text(_INFO_KIND, "ifb"))
    found = map(_link, sock.dump(_GETLINK, _IFINFO.pack(0, 0, 0, 0, 0) + only))
    return {int(link.name[len(PREFIX) :]): link for link in found if link.alias.startswith(_MARK) and link.name[len(PREFIX) :].isdecimal()}


def make(sock: rtnetlink.Socket, name: str) -> None:
    """Make an ifb, unmarked and down; EEXIST where the name is taken."""
    linkinfo = rtnetlink.pack(_LINKINFO, rtnetlink.text(_INFO_KIND, "ifb"))
    sock.ask(_NEWLINK, _IFINFO.pack(0, 0, 0, 0, 0) + rtnetlink.text(_NAME, name) + linkinfo, rtnetlink.CREATE | rtnetlink.EXCLUSIVE)


def claim(sock: rtnetlink.Socket, nic: int, *, owner: str, owns_hook: bool) -> bool:
    """Make the ifb, marked and up; False, with nothing left, where somebody else has it since. One that a death left unnamed is taken up."""
    name = name_before(nic, owner)
    try:
        make(sock, name)
    except OSError as error:
        if error.errno != errno.EEXIST:
            raise
    made = _named(sock, name)
    if made is None:
        return False
    if not _is_unnamed(made):
        raise OSError(errno.EEXIST, f"the name {name} belongs to a link of somebody else's; rename it")
    try:
        sock.ask(_SETLINK, _marked(made.ifindex, nic, owner=owner, owns_hook=owns_hook) + rtnetlink.text(_NAME, name_for(nic)))
    except OSError as error:
        if error.errno not in _LOST:
            raise
        delete(sock, made.ifindex)
        return False
    return True


def clear(sock: rtnetlink.Socket, nic: int, owner: str) -> None:
    """Delete the ifb that a death left unnamed, if there is one."""
    left = _named(sock, name_before(nic, owner))
    if left is not None and _is_unnamed(left):
        delete(sock, left.ifindex)


def _is_unnamed(link: Link) -> bool:
    return link.kind == "ifb" and not link.alias


def mark(sock: rtnetlink.Socket, ifindex: int, nic: int, *, owner: str, owns_hook: bool) -> None:
    """Write the alias and set the link up."""
    sock.ask(_SETLINK, _marked(ifindex, nic, owner=owner, owns_hook=owns_hook))


def _marked(ifindex: int, nic: int, *, owner: str, owns_hook: bool) -> bytes:
    alias = f"{_MARK}{nic}{_BY if owner else ''}{owner}, {_OWN_HOOK if owns_hook else _FOREIGN_HOOK}"
    return _IFINFO.pack(0, 0, ifindex, _UP, _UP) + rtnetlink.pack(_ALIAS, alias.encode())


def delete(sock: rtnetlink.Socket, ifindex: int) -> None:
    """Delete a link; one that is gone is success."""
    try:
        sock.ask(_DELLINK, _IFINFO.pack(0, 0, ifindex, 0, 0))
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise


def _link(answer: bytes) -> Link:
    _, _, ifindex, flags, _ = _IFINFO.unpack_from(answer)
    attrs = rtnetlink.attributes(answer[_IFINFO.size :])
    kind = rtnetlink.attributes(attrs.get(_LINKINFO, b"")).get(_INFO_KIND, b"")
    return Link(
        ifindex=ifindex,
        name=rtnetlink.as_text(attrs[_NAME]),
        kind=rtnetlink.as_text(kind),
        alias=rtnetlink.as_text(attrs.get(_ALIAS, b"")),
        up=bool(flags & _UP),
    )
