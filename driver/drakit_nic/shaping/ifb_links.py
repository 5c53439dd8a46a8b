"""The ifb of a shared NIC, the device that shapes its ingress. Its name has the NIC's index, its alias the driver's mark.

The alias also records which driver shares the NIC and whether the NIC's ingress hook is the driver's, because neither an HTB nor a clsact qdisc can
store a mark. A link of this name that is no ifb or has another alias belongs to another program. A mark without a driver's name, as older versions
wrote it, belongs to any driver.

The kernel decides which of two drivers gets a NIC, because a name belongs to one link. A link cannot get an alias when it is created, so a driver
creates its ifb under a private name (``private_name``), then sets the NIC's name and the mark in one request. So no other program sees an unmarked
ifb, and a crash in between leaves a link that only its driver reuses or deletes. An unmarked ifb with the NIC's name was left by an older version.
"""

import base64
import errno
import hashlib
from collections.abc import Mapping

from drakit_nic.netlink import link_requests, rtnetlink

PREFIX = "drb"
_KIND = "ifb"
_PRIVATE_PREFIX, _PRIVATE_LETTERS = "drn", 12
_MARK = "drakit ingress of "
_BY = " by "
_OWN_HOOK, _FOREIGN_HOOK = "own hook", "foreign hook"
_LOST = frozenset({errno.EEXIST, errno.ENODEV})


def is_ours(link: link_requests.Link) -> bool:
    """Return whether a drakit driver created the link. One without an alias was left by an older version, or an admin removed its alias."""
    return link.kind == _KIND and (link.alias.startswith(_MARK) or not link.alias)


def driver_of(link: link_requests.Link) -> str:
    """Return the driver that shares the NIC, empty where the mark names none."""
    return link.alias.partition(",")[0].partition(_BY)[2] if link.alias.startswith(_MARK) else ""


def owns_hook(link: link_requests.Link) -> bool:
    """Return whether the driver created the NIC's ingress hook and may delete it."""
    return link.alias.endswith(_OWN_HOOK)


def name_for(nic: int) -> str:
    """Return the ifb's name for the NIC of this index."""
    return f"{PREFIX}{nic}"


def private_name(nic: int, driver: str) -> str:
    """Return the name under which a driver creates the ifb of this NIC: unique to the driver, the same after a restart, and of 15 letters."""
    digest = hashlib.sha256(f"{nic}\0{driver}".encode()).digest()
    return _PRIVATE_PREFIX + base64.b32encode(digest).decode()[:_PRIVATE_LETTERS].lower()


def find(sock: rtnetlink.Socket, nic: int) -> link_requests.Link | None:
    """Return the link with the name of this NIC's ifb, None if there is none."""
    return link_requests.find(sock, name_for(nic))


def ours(sock: rtnetlink.Socket) -> Mapping[int, link_requests.Link]:
    """Return every marked ifb by the index of its NIC, which may be gone."""
    links = link_requests.links(sock, kind=_KIND)
    return {int(link.name[len(PREFIX) :]): link for link in links if link.alias.startswith(_MARK) and link.name[len(PREFIX) :].isdecimal()}


def create(sock: rtnetlink.Socket, name: str) -> None:
    """Create an ifb, unmarked and down. Raises OSError, with EEXIST where the name is taken."""
    link_requests.create(sock, name, _KIND)


def claim(sock: rtnetlink.Socket, nic: int, *, driver: str, with_hook: bool) -> bool:
    """Create the ifb, marked and up, and return whether this driver was the first. Otherwise the new link is deleted again.

    A link that a crash left under the private name is reused.
    """
    name = private_name(nic, driver)
    try:
        create(sock, name)
    except OSError as error:
        if error.errno != errno.EEXIST:
            raise
    link = link_requests.find(sock, name)
    if link is None:
        return False
    if not _is_unmarked(link):
        raise OSError(errno.EEXIST, f"the name {name} belongs to a link of another program; rename it")
    try:
        mark(sock, link.ifindex, nic, driver=driver, with_hook=with_hook, name=name_for(nic))
    except OSError as error:
        if error.errno not in _LOST:
            raise
        link_requests.delete(sock, link.ifindex)
        return False
    return True


def clear(sock: rtnetlink.Socket, nic: int, driver: str) -> None:
    """Delete the ifb that a crash left under the private name, if it exists."""
    link = link_requests.find(sock, private_name(nic, driver))
    if link is not None and _is_unmarked(link):
        link_requests.delete(sock, link.ifindex)


def _is_unmarked(link: link_requests.Link) -> bool:
    return link.kind == _KIND and not link.alias


def mark(sock: rtnetlink.Socket, ifindex: int, nic: int, *, driver: str, with_hook: bool, name: str = "") -> None:
    """Set the link up with the mark as its alias, and with a name where one is given."""
    alias = f"{_MARK}{nic}{_BY if driver else ''}{driver}, {_OWN_HOOK if with_hook else _FOREIGN_HOOK}"
    link_requests.alter(sock, ifindex, up=True, name=name, alias=alias)
