"""The ifb of a NIC: the device its ingress passes through to be shaped. It is named after the NIC's index and marked by its alias.

The alias also remembers which driver shares the NIC out, by its name, and whether the NIC's ingress hook is ours, because neither an HTB nor a clsact
qdisc has a place for a mark of its own. What has our name but not our mark is somebody else's, unless it is an ifb fresh from a creation that a crash
cut short. A mark without a name, as older versions wrote it, is any driver's.
"""

import dataclasses
import errno
import struct
from collections.abc import Mapping

from drakit.devices.nic.tc import rtnetlink

_NEWLINK, _DELLINK, _GETLINK, _SETLINK = 16, 17, 18, 19
_IFINFO = struct.Struct("=BxHiII")
_NAME, _LINKINFO, _ALIAS = 3, 18, 20
_INFO_KIND = 1
_UP = 1
_PREFIX = "drb"
_MARK = "drakit ingress of "
_BY = " by "
_OWN_HOOK, _FOREIGN_HOOK = "own hook", "foreign hook"


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
        """Whether we made it, or were about to mark it."""
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
    return f"{_PREFIX}{nic}"


def find(sock: rtnetlink.Socket, nic: int) -> Link | None:
    """The link with the name of this NIC's ifb."""
    try:
        answers = sock.ask(_GETLINK, _IFINFO.pack(0, 0, 0, 0, 0) + rtnetlink.text(_NAME, name_for(nic)))
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
    return {
        int(link.name[len(_PREFIX) :]): link for link in found if link.alias.startswith(_MARK) and link.name[len(_PREFIX) :].isdecimal()
    }


def make(sock: rtnetlink.Socket, nic: int) -> None:
    """Make the ifb, unmarked and down."""
    linkinfo = rtnetlink.pack(_LINKINFO, rtnetlink.text(_INFO_KIND, "ifb"))
    sock.ask(
        _NEWLINK, _IFINFO.pack(0, 0, 0, 0, 0) + rtnetlink.text(_NAME, name_for(nic)) + linkinfo, rtnetlink.CREATE | rtnetlink.EXCLUSIVE
    )


def mark(sock: rtnetlink.Socket, ifindex: int, nic: int, *, owner: str, owns_hook: bool) -> None:
    """Write the alias and set the link up."""
    alias = f"{_MARK}{nic}{_BY if owner else ''}{owner}, {_OWN_HOOK if owns_hook else _FOREIGN_HOOK}"
    sock.ask(_SETLINK, _IFINFO.pack(0, 0, ifindex, _UP, _UP) + rtnetlink.pack(_ALIAS, alias.encode()))


def delete(sock: rtnetlink.Socket, ifindex: int) -> None:
    """Delete a link; one that is gone is success."""
    try:
        sock.ask(_DELLINK, _IFINFO.pack(0, 0, ifindex, 0, 0))
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise


def _link(answer: bytes) -> Link:
    _, _, ifindex, flags, _ = _IFINFO.unpack_from(answer)
    told = rtnetlink.attributes(answer[_IFINFO.size :])
    kind = rtnetlink.attributes(told.get(_LINKINFO, b"")).get(_INFO_KIND, b"")
    return Link(
        ifindex=ifindex,
        name=rtnetlink.as_text(told[_NAME]),
        kind=rtnetlink.as_text(kind),
        alias=rtnetlink.as_text(told.get(_ALIAS, b"")),
        up=bool(flags & _UP),
    )
