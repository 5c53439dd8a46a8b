"""The eBPF programs that classify the frames of shares.

``egress`` runs as a filter of the NIC's HTB and returns a class. A frame from a socket of a known network namespace goes to the class of that
namespace and source address, else to the class of that namespace. So a sender cannot choose a class of another namespace, whatever it writes into the
frame. A frame without a socket that this host's kernel created goes by its source address to the class registered for such frames. Every other frame
goes by its source address to the class registered for frames without a known owner, or else to the HTB's default class. Where the kernel cannot
report a namespace, the program does only the last lookup.

The namespace of a socket comes from a helper (since Linux 6.15), or is read from the kernel's memory at the offsets of ``socket_namespace``. The
kernel offers that to programs under GPL-compatible licenses only. So the programs that this module makes, not the module, may also be used under the
MIT License or the GPL, version 2.

``ingress`` runs on the ifb and classifies by destination address; all group addresses go to the host's class. ipvlan children have the NIC's address.
Where a NIC has them, an IP packet to that address is classified by its IP address. One for an unknown IP address goes to the default class, because a
pod can choose it. ``everything`` matches every frame, for the redirection to the ifb. ``guard`` clears a class that a sender wrote into the socket's
priority, which HTB would use before any filter.

Instructions: struct bpf_insn; context: struct __sk_buff (linux/bpf.h). Both classifiers use the ledger only to keep it in the kernel.
"""

import dataclasses
import socket
import struct
import sys

from drakit_nic.shaping import htb, socket_namespace

REVISION = 1
"""The revision in the filters' names, so that a newer driver replaces an older one's programs. Raise it with every change of a program."""

_MAC_AT_DESTINATION, _MAC_AT_SOURCE, _MAC_BYTES = 0, 6, 6
_PROTOCOL, _PRIORITY, _INGRESS_IFINDEX, _SOCKET = 16, 32, 36, 168
_IPV4, _IPV6 = 0x0800, 0x86DD
_IPV4_AT, _IPV4_BYTES, _IPV6_AT, _IPV6_BYTES = 30, 4, 38, 16
_IPV4_MAPPED = int.from_bytes(b"\0\0\xff\xff", sys.byteorder, signed=True)
_HOST, _HOST_PREFIX, _HOST_IPV4 = -32, -24, -20
_LOOK_UP, _LOAD_BYTES, _READ_MEMORY, _NETNS_COOKIE = 1, 26, 113, 122
_SOCKET_ADDRESS, _MEMORY, _KEY, _ADDRESS, _FRAME = -32, -24, -16, -8, 10
_R0, _R1, _R2, _R3, _R4, _R6, _R7 = 0, 1, 2, 3, 4, 6, 7


@dataclasses.dataclass
class _Code:
    """An assembler of one program. A jump may name a label that is placed later."""

    lines: list[tuple[int, int, int, int, int, str]] = dataclasses.field(default_factory=list)
    labels: dict[str, int] = dataclasses.field(default_factory=dict)

    def add(self, code: int, *, to: int = 0, of: int = 0, offset: int = 0, value: int = 0, label: str = "") -> None:
        self.lines.append((code, to, of, offset, value, label))

    def here(self, label: str) -> None:
        self.labels[label] = len(self.lines)

    def move(self, to: int, of: int) -> None:
        self.add(0xBF, to=to, of=of)

    def set(self, to: int, value: int) -> None:
        self.add(0xB7, to=to, value=value)

    def load(self, to: int, of: int, offset: int, *, size: int) -> None:
        self.add({8: 0x79, 4: 0x61, 1: 0x71}[size], to=to, of=of, offset=offset)

    def store(self, offset: int, of: int) -> None:
        self.add(0x7B, to=_FRAME, of=of, offset=offset)

    def store_value(self, offset: int, value: int) -> None:
        self.add(0x7A, to=_FRAME, offset=offset, value=value)

    def use_map(self, to: int, descriptor: int) -> None:
        self.add(0x18, to=to, of=1, value=descriptor)
        self.add(0)

    def call(self, number: int) -> None:
        self.add(0x85, value=number)

    def go(self, label: str) -> None:
        self.add(0x05, label=label)

    def go_if(self, register: int, value: int, label: str) -> None:
        self.add(0x15, to=register, value=value, label=label)

    def go_unless(self, register: int, value: int, label: str) -> None:
        self.add(0x55, to=register, value=value, label=label)

    def leave(self, value: int | None = None) -> None:
        if value is not None:
            self.set(_R0, value)
        self.add(0x95)

    def store_word(self, offset: int, value: int) -> None:
        self.add(0x62, to=_FRAME, offset=offset, value=value)

    def look_up(self, descriptor: int, key: int, label: str = "found") -> None:
        """Look up the key on the stack, and go to the label with the address of its value."""
        self.use_map(_R1, descriptor)
        self.move(_R2, _FRAME)
        self.add(0x07, to=_R2, value=key)
        self.call(_LOOK_UP)
        self.go_unless(_R0, 0, label)

    def read_address(self, offset: int) -> None:
        """Copy six bytes of the frame to the stack, and go to ``none`` for a shorter frame. Register r6 has the context."""
        self.store_value(_ADDRESS, 0)
        self.read_frame(offset, _MAC_BYTES, _ADDRESS)

    def read_frame(self, offset: int, size: int, to: int) -> None:
        """Copy bytes of the frame to the stack, and go to ``none`` for a shorter frame. Register r6 has the context."""
        self.move(_R1, _R6)
        self.set(_R2, offset)
        self.move(_R3, _FRAME)
        self.add(0x07, to=_R3, value=to)
        self.set(_R4, size)
        self.call(_LOAD_BYTES)
        self.go_unless(_R0, 0, "none")

    def read_memory(self, to: int) -> None:
        """Copy eight bytes of the kernel's memory at the address in r3 to the stack. Unreadable memory is read as 0."""
        self.move(_R1, _FRAME)
        self.add(0x07, to=_R1, value=to)
        self.set(_R2, 8)
        self.call(_READ_MEMORY)

    def answer(self) -> None:
        """Add the two exits of a classifier: no class, or the class of a lookup."""
        self.here("none")
        self.leave(0)
        self.here("found")
        self.load(_R0, _R0, 0, size=4)
        self.leave()

    def assembled(self) -> bytes:
        return b"".join(
            struct.pack("=BBhi", code, of << 4 | to, self.labels[label] - at - 1 if label else offset, _signed(value))
            for at, (code, to, of, offset, value, label) in enumerate(self.lines)
        )


def egress(*, owners: int, ledger: int, by_namespace: bool, offsets: socket_namespace.Offsets | None = None) -> bytes:
    """Return the classifier of the NIC's egress. ``owners`` and ``ledger`` are descriptors of maps.

    The namespace is read at ``offsets``, or by the helper without them.
    """
    code = _Code()
    code.move(_R6, _R1)
    code.use_map(_R1, ledger)
    code.read_address(_MAC_AT_SOURCE)
    if by_namespace:
        _add_namespace_lookups(code, owners, offsets)
    code.here("nobody")
    code.store_value(_KEY, htb.ANY_NAMESPACE)
    code.look_up(owners, _KEY)
    code.answer()
    return code.assembled()


def _add_namespace_lookups(code: _Code, owners: int, offsets: socket_namespace.Offsets | None) -> None:
    code.load(_R7, _FRAME, _ADDRESS, size=8)
    code.load(_R1, _R6, _SOCKET, size=8)
    code.go_if(_R1, 0, "no socket")
    if offsets is None:
        code.move(_R1, _R6)
        code.call(_NETNS_COOKIE)
        code.store(_KEY, _R0)
    else:
        _add_cookie_read(code, offsets)
    code.look_up(owners, _KEY)
    code.store_value(_ADDRESS, 0)
    code.look_up(owners, _KEY)
    code.store(_ADDRESS, _R7)
    code.go("nobody")
    code.here("no socket")
    code.load(_R1, _R6, _INGRESS_IFINDEX, size=4)
    code.go_unless(_R1, 0, "nobody")
    code.store_value(_KEY, htb.KERNEL_MADE)
    code.look_up(owners, _KEY)


def _add_cookie_read(code: _Code, offsets: socket_namespace.Offsets) -> None:
    """Store the cookie of the socket in r1 as the key's namespace.

    The verifier allows no arithmetic on the socket's address. So the address is stored on the stack and read from there as memory, which makes it a
    number.
    """
    code.store(_SOCKET_ADDRESS, _R1)
    code.move(_R3, _FRAME)
    code.add(0x07, to=_R3, value=_SOCKET_ADDRESS)
    code.read_memory(_MEMORY)
    for offset, to in ((offsets.namespace, _MEMORY), (offsets.cookie, _KEY)):
        code.load(_R3, _FRAME, _MEMORY, size=8)
        code.add(0x07, to=_R3, value=offset)
        code.read_memory(to)


def ingress(*, routes: int, ledger: int, host_class: int, hosts: int | None = None) -> bytes:
    """Return the classifier of the ifb. ``routes``, ``ledger`` and ``hosts`` are descriptors of maps.

    ``host_class`` is for multicast, broadcast and the NIC's own address, in which ``hosts`` distinguishes the IP addresses of ipvlan children.
    """
    code = _Code()
    code.move(_R6, _R1)
    code.use_map(_R1, ledger)
    code.read_address(_MAC_AT_DESTINATION)
    code.load(_R1, _FRAME, _ADDRESS, size=1)
    code.add(0x57, to=_R1, value=1)
    code.go_unless(_R1, 0, "group")
    code.look_up(routes, _ADDRESS, "found" if hosts is None else "route")
    if hosts is not None:
        _add_host_lookup(code, hosts, host_class)
    code.answer()
    code.here("group")
    code.leave(host_class)
    return code.assembled()


def _add_host_lookup(code: _Code, hosts: int, host_class: int) -> None:
    """Look up the destination of an IP packet for the NIC's own address. IPv4 addresses are keys as IPv4-mapped IPv6 addresses."""
    code.go("none")
    code.here("route")
    code.load(_R1, _R0, 0, size=4)
    code.go_unless(_R1, host_class, "found")
    code.load(_R1, _R6, _PROTOCOL, size=4)
    code.go_if(_R1, socket.htons(_IPV4), "IPv4")
    code.go_unless(_R1, socket.htons(_IPV6), "found")
    code.read_frame(_IPV6_AT, _IPV6_BYTES, _HOST)
    code.go("host")
    code.here("IPv4")
    code.store_value(_HOST, 0)
    code.store_word(_HOST_PREFIX, _IPV4_MAPPED)
    code.read_frame(_IPV4_AT, _IPV4_BYTES, _HOST_IPV4)
    code.here("host")
    code.look_up(hosts, _HOST)


def everything() -> bytes:
    """Return the program that matches every frame and leaves the class and actions to its filter (-1)."""
    code = _Code()
    code.leave(-1)
    return code.assembled()


def guard() -> bytes:
    """Return the program that clears a priority that names a class and passes the frame on (TC_ACT_UNSPEC, -1). Other priorities stay."""
    code = _Code()
    code.load(_R2, _R1, _PRIORITY, size=4)
    code.add(0x77, to=_R2, value=16)
    code.go_if(_R2, 0, "passed")
    code.set(_R2, 0)
    code.add(0x63, to=_R1, of=_R2, offset=_PRIORITY)
    code.here("passed")
    code.leave(-1)
    return code.assembled()


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
