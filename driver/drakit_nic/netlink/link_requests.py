"""Requests for one interface by rtnetlink: the link itself, its addresses and neighbours.

Each change is idempotent: an equal object that exists is ignored. Reads use the kernel's own filters and take the same time however many links,
addresses and routes the host has. Layouts: linux/if_link.h, linux/if_addr.h. Functions raise OSError.
"""

import errno
import ipaddress
import struct
from collections.abc import Collection, Iterator

from drakit_nic import config
from drakit_nic.addresses import ip_pools
from drakit_nic.netlink import namespace_numbers, rtnetlink

_NEWLINK, _GETLINK, _SETLINK, _GETADDR = 16, 18, 19, 22
_IFINFO = struct.Struct("=BxHiII")
_IFADDR = struct.Struct("=BBBBI")
_ADDRESS, _IFNAME, _MTU, _LINK, _MASTER, _OPERSTATE, _LINKINFO, _IFALIAS, _CARRIER = 1, 3, 4, 5, 10, 16, 18, 20, 33
_LINK_NETNSID, _PHYS_PORT_NAME, _XDP, _PROP_LIST, _ALT_IFNAME, _PERM_ADDRESS, _PARENT = 37, 38, 43, 52, 53, 54, 56
_NET_NS_FD = 28
_INFO_KIND, _INFO_DATA = 1, 2
IPVLAN, _IPVLAN_MODE, _IPVLAN_FLAGS = "ipvlan", 1, 2
_IPVLAN_L2, _IPVLAN_PRIVATE = 0, 1
_VXLAN, _VXLAN_LINK = "vxlan", 3
_XDP_ATTACHED = 2
_IFA_ADDRESS, _IFA_LOCAL, _IFA_FLAGS, _IFA_TARGET = 1, 2, 8, 10
_UP, _LOWER_UP = 1, 0x10000
_ETHERNET = 1
_NODAD, _DAD_FAILED, _TENTATIVE = 0x02, 0x08, 0x40
_SCOPE_LINK = 253
_STATES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")
NAME_BYTES_MAX = 15


class Link:
    """One link as the kernel reports it.

    ``place`` is the bus address and burnt-in MAC of hardware, which no pod can change, and empty for other links. ``other`` is the index of its other
    end: a veth's peer, the NIC below a macvlan. ``other_nsid`` is the number of that end's namespace in the socket's namespace, None if it is in
    the link's own. ``lower`` is that end too, or the link that a vxlan is bound to. ``layer`` is the kernel's number of the link layer (ARPHRD_*),
    ``state`` the operational state of RFC 2863 in lower case. ``attributes`` are all attributes of the message.
    """

    def __init__(self, body: bytes) -> None:
        self.ifindex: int
        self.layer: int
        self.flags: int
        _, self.layer, self.ifindex, self.flags, _ = _IFINFO.unpack_from(body)
        self.attributes = attrs = rtnetlink.attributes(body[_IFINFO.size :])
        self.up, self.has_carrier = bool(self.flags & _UP), bool(self.flags & _LOWER_UP)
        self.is_ethernet = self.layer == _ETHERNET
        self.name = rtnetlink.as_text(attrs[_IFNAME])
        self.mac = attrs.get(_ADDRESS, b"").hex(":")
        self.mtu = rtnetlink.as_number(attrs[_MTU])
        self.alias = rtnetlink.as_text(attrs.get(_IFALIAS, b""))
        info = rtnetlink.attributes(attrs.get(_LINKINFO, b""))
        self.kind = rtnetlink.as_text(info.get(_INFO_KIND, b""))
        self.other = rtnetlink.as_number(attrs[_LINK]) if _LINK in attrs else 0
        self.lower = self.other or _bound_to(self.kind, info)
        self.other_nsid = struct.unpack("=i", attrs[_LINK_NETNSID])[0] if _LINK_NETNSID in attrs else None
        properties = rtnetlink.walk(attrs.get(_PROP_LIST, b""))
        self.altnames = tuple(rtnetlink.as_text(content) for kind, content in properties if kind == _ALT_IFNAME)
        self.port = rtnetlink.as_text(attrs.get(_PHYS_PORT_NAME, b""))
        parent = rtnetlink.as_text(attrs.get(_PARENT, b""))
        self.place = f"{parent} {attrs.get(_PERM_ADDRESS, b'').hex(':')}" if parent else ""

    @property
    def carrier(self) -> bool:
        """Return whether the link has a carrier."""
        return bool(self.attributes.get(_CARRIER, b"\0")[0])

    @property
    def state(self) -> str:
        """Return the operational state."""
        number = self.attributes.get(_OPERSTATE, b"\0")[0]
        return _STATES[number] if number < len(_STATES) else "unknown"

    @property
    def master(self) -> int | None:
        """Return the index of the link's bond or bridge, None if it has none."""
        return (rtnetlink.as_number(self.attributes[_MASTER]) or None) if _MASTER in self.attributes else None

    @property
    def has_xdp(self) -> bool:
        """Return whether an XDP program is attached."""
        return bool(rtnetlink.attributes(self.attributes.get(_XDP, b"")).get(_XDP_ATTACHED, b"\0")[0])


def _bound_to(kind: str, info: rtnetlink.Attributes) -> int:
    """Return the index of the link that a vxlan is bound to, which the kernel reports with the options of its kind only, 0 for none."""
    options = rtnetlink.attributes(info.get(_INFO_DATA, b"")) if kind == _VXLAN else {}
    return rtnetlink.as_number(options[_VXLAN_LINK]) if _VXLAN_LINK in options else 0


def find(sock: rtnetlink.Socket, name: str, more: bytes = b"") -> Link | None:
    """Return the link of this name, None if none has it or only as an alternative name. ``more`` are further request attributes."""
    link = at(sock, 0, rtnetlink.text(_IFNAME, name) + more)
    return link if link is not None and link.name == name else None


def existing(sock: rtnetlink.Socket, name: str, more: bytes = b"") -> Link:
    """Return the link of this name. Raises OSError where there is none."""
    link = find(sock, name, more)
    if link is None:
        raise OSError(errno.ENODEV, f"there is no interface {name}")
    return link


def holder_of(sock: rtnetlink.Socket, name: str) -> Link | None:
    """Return the link that has this name, also as an alternative name, None if none has."""
    return at(sock, 0, rtnetlink.text(_IFNAME if len(name) <= NAME_BYTES_MAX else _ALT_IFNAME, name))


def name_of(sock: rtnetlink.Socket, ifindex: int) -> str:
    """Return the name of the link of this index, empty where there is none."""
    link = at(sock, ifindex)
    return "" if link is None else link.name


def at(sock: rtnetlink.Socket, ifindex: int, more: bytes = b"") -> Link | None:
    """Return the link of this index, or with index 0 the one that the attributes ``more`` select, None if there is none."""
    try:
        answers = sock.ask(_GETLINK, _header(ifindex) + more)
    except OSError as error:
        if error.errno == errno.ENODEV:
            return None
        raise
    return next(map(Link, answers), None)


def _header(ifindex: int = 0, flags: int = 0, changed: int = 0) -> bytes:
    return _IFINFO.pack(0, 0, ifindex, flags, changed)


def links(sock: rtnetlink.Socket, number: int | None = None, *, kind: str = "") -> tuple[Link, ...]:
    """Return every link of the socket's namespace, or of the one with this number.

    ``kind`` asks the kernel for links of that kind only. A namespace that is gone has no links.
    """
    body = _header() + (b"" if number is None else namespace_numbers.in_namespace(number))
    body += rtnetlink.pack(_LINKINFO, rtnetlink.text(_INFO_KIND, kind)) if kind else b""
    return tuple(map(Link, sock.dump(_GETLINK, body)))


def create(
    sock: rtnetlink.Socket,
    name: str,
    kind: str,
    *,
    lower: int = 0,
    mac: str = "",
    mtu: int = 0,
    namespace: int | None = None,
    macvlan_mode: str | None = None,
) -> None:
    """Create a link, down. Raises OSError, with EEXIST where the name is taken.

    ``lower`` is the index of the link below, ``namespace`` the open descriptor of another namespace.
    """
    sock.change(
        "link",
        "add",
        ifname=name,
        kind=kind,
        link=lower or None,
        address=mac or None,
        mtu=mtu or None,
        net_ns_fd=namespace,
        macvlan_mode=macvlan_mode,
    )


def create_ipvlan(sock: rtnetlink.Socket, name: str, *, lower: int, mtu: int = 0, namespace: int | None = None) -> None:
    """Create an ipvlan in L2 mode that cannot reach its siblings, down. Arguments and errors are those of ``create``.

    pyroute2 does not know the attribute that makes it private. The mode counts for all ipvlans of the link below.
    """
    options = rtnetlink.pack(_IPVLAN_MODE, struct.pack("=H", _IPVLAN_L2)) + rtnetlink.pack(
        _IPVLAN_FLAGS, struct.pack("=H", _IPVLAN_PRIVATE)
    )
    body = _header() + rtnetlink.text(_IFNAME, name) + rtnetlink.number(_LINK, lower)
    body += rtnetlink.number(_MTU, mtu) if mtu else b""
    body += b"" if namespace is None else rtnetlink.number(_NET_NS_FD, namespace)
    body += rtnetlink.pack(_LINKINFO, rtnetlink.text(_INFO_KIND, IPVLAN) + rtnetlink.pack(_INFO_DATA, options))
    sock.ask(_NEWLINK, body, rtnetlink.CREATE | rtnetlink.EXCLUSIVE)


def alter(
    sock: rtnetlink.Socket,
    ifindex: int,
    *,
    up: bool | None = None,
    name: str = "",
    mtu: int = 0,
    mac: str = "",
    alias: str | None = None,
) -> None:
    """Change the given settings of a link in one request."""
    state = None if up is None else "up" if up else "down"
    own_name, own_alias = _as_bytes(name) or None, None if alias is None else _as_bytes(alias)
    sock.change("link", "set", index=ifindex, state=state, ifname=own_name, mtu=mtu or None, address=mac or None, ifalias=own_alias)


def set_attributes(sock: rtnetlink.Socket, ifindex: int, attributes: bytes) -> None:
    """Set attributes of a link that the driver read from the kernel and writes back unread. pyroute2 does not know all of them."""
    sock.ask(_SETLINK, _header(ifindex) + attributes)


def set_alias(sock: rtnetlink.Socket, ifindex: int, alias: str) -> None:
    """Set a link's alias, or with an empty text remove it. The kernel takes 255 bytes, of which pyroute2 would need one for a zero."""
    set_attributes(sock, ifindex, rtnetlink.pack(_IFALIAS, _as_bytes(alias)))


def set_flags(sock: rtnetlink.Socket, ifindex: int, flags: int, mask: int) -> None:
    """Set the flags of a link (IFF_*) that are in the mask."""
    sock.change("link", "set", index=ifindex, flags=flags & mask, change=mask)


def add_altnames(sock: rtnetlink.Socket, ifindex: int, names: Collection[str]) -> None:
    """Add alternative names to a link. Raises OSError, with EEXIST where another link has one."""
    if names:
        sock.change("link", "property_add", index=ifindex, altname=list(map(_as_bytes, names)))


def delete_altnames(sock: rtnetlink.Socket, ifindex: int, names: Collection[str]) -> None:
    """Delete alternative names of a link."""
    if names:
        sock.change("link", "property_del", index=ifindex, altname=list(map(_as_bytes, names)))


def move(sock: rtnetlink.Socket, ifindex: int, namespace: int, *, name: str = "", new_index: int = 0) -> None:
    """Move a link into the namespace of an open descriptor, with a new name and index where given. The link must be down."""
    sock.change("link", "set", index=ifindex, net_ns_fd=namespace, ifname=_as_bytes(name) or None, new_ifindex=new_index or None)


def _as_bytes(text: str) -> bytes:
    """Return a name as the kernel has it, which need not be UTF-8."""
    return text.encode(errors="surrogateescape")


def delete(sock: rtnetlink.Socket, ifindex: int, number: int | None = None) -> None:
    """Delete a link, in the namespace of this number where one is given. A link that is gone is ignored."""
    try:
        sock.change("link", "del", index=ifindex, if_netnsid=number)
    except OSError as error:
        # With EINVAL the namespace is gone, and with it the number.
        gone = {errno.ENODEV} if number is None else {errno.ENODEV, errno.EINVAL}
        if error.errno not in gone:
            raise


def addresses(sock: rtnetlink.Socket, ifindex: int) -> tuple[str, ...]:
    """Return the addresses of a link in CIDR form, sorted, without IPv6 link-local ones."""
    texts = (
        f"{address}/{prefix}"
        for index, prefix, _, address in _addresses(sock)
        if index == ifindex and not (address.version == ip_pools.IPV6 and address.is_link_local)
    )
    return tuple(sorted(texts))


def hosts(sock: rtnetlink.Socket, ifindexes: Collection[int]) -> frozenset[str]:
    """Return the addresses of these links without prefixes, also IPv6 link-local ones."""
    return frozenset(str(address) for index, _, _, address in _addresses(sock) if index in ifindexes)


def _addresses(
    sock: rtnetlink.Socket, ifindex: int = 0, more: bytes = b""
) -> Iterator[tuple[int, int, int, ipaddress.IPv4Address | ipaddress.IPv6Address]]:
    """Yield the link's index, the length of the prefix, the flags and the address, of every address. With an index, others may be missing."""
    for body in sock.dump(_GETADDR, _IFADDR.pack(0, 0, 0, 0, ifindex) + more):
        _, prefix, short_flags, _, index = _IFADDR.unpack_from(body)
        attrs = rtnetlink.attributes(body[_IFADDR.size :])
        packed = attrs.get(_IFA_LOCAL, attrs.get(_IFA_ADDRESS, b""))
        if packed:
            flags = rtnetlink.as_number(attrs[_IFA_FLAGS]) if _IFA_FLAGS in attrs else short_flags
            yield index, prefix, flags, ipaddress.ip_address(packed)


def addressed(sock: rtnetlink.Socket, ifindex: int = 0) -> frozenset[int]:
    """Return the links with an address of global scope. With an index, others may be missing."""
    headers = (_IFADDR.unpack_from(body) for body in sock.dump(_GETADDR, _IFADDR.pack(0, 0, 0, 0, ifindex)))
    return frozenset(index for _, _, _, scope, index in headers if scope < _SCOPE_LINK)


def usable_hosts(sock: rtnetlink.Socket, ifindex: int, number: int) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, ...]:
    """Return the addresses of a link in the namespace of this number, without those that duplicate address detection has not confirmed."""
    found = _addresses(sock, ifindex, rtnetlink.pack(_IFA_TARGET, struct.pack("=i", number)))
    return tuple(address for index, _, flags, address in found if index == ifindex and not flags & (_TENTATIVE | _DAD_FAILED))


def add_address(sock: rtnetlink.Socket, ifindex: int, text: str) -> None:
    """Add an address. An IPv6 address skips duplicate address detection, because the starting container needs it at once."""
    wanted = ipaddress.ip_interface(text)
    flags = _NODAD if wanted.version == ip_pools.IPV6 else None
    sock.change("addr", "replace", index=ifindex, address=str(wanted.ip), prefixlen=wanted.network.prefixlen, flags=flags)


def add_neighbour(sock: rtnetlink.Socket, ifindex: int, wanted: config.Neighbour) -> None:
    """Add a permanent entry to the neighbour table."""
    sock.change("neigh", "replace", ifindex=ifindex, dst=str(ipaddress.ip_address(wanted.address)), lladdr=wanted.mac)
